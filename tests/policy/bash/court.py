"""What the tests of this folder share: rules in a few words, and commands in tables."""

from collections.abc import Iterable
from typing import Any

from vaka.policy.bash import Judgement, Rule, judge, read


def rules(
    allow: Iterable[str | None] = (), ask: Iterable[str | None] = (), deny: Iterable[str | None] = ()
) -> list[Rule]:
    """Rules of one layer."""
    return [
        *(Rule(pattern, "allow", "user") for pattern in allow),
        *(Rule(pattern, "ask", "user") for pattern in ask),
        *(Rule(pattern, "deny", "user") for pattern in deny),
    ]


def judged(
    command: str,
    *,
    allow: Iterable[str | None] = (),
    ask: Iterable[str | None] = (),
    deny: Iterable[str | None] = (),
    **more: Any,
) -> Judgement:
    """The judgement on a command under some rules."""
    return judge(read(command), rules(allow, ask, deny), **more)


def lines(table: str) -> list[str]:
    """The commands of a table: one a line, ``⏎`` for a line's end inside one and ``⇥`` for a tab."""
    rows = [line.strip() for line in table.strip().splitlines()]
    return [row.replace("⏎", "\n").replace("⇥", "\t") for row in rows if row]
