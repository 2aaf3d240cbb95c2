"""What the tests of this folder share: rules in a few words, and commands in tables."""

from collections.abc import Iterable
from typing import Any

from vaka.policy.bash import CommandRule, Judgement, judge_script, read_script


def make_rules(
    allow: Iterable[str | None] = (), ask: Iterable[str | None] = (), deny: Iterable[str | None] = ()
) -> list[CommandRule]:
    """Rules of one layer."""
    return [
        *(CommandRule(pattern, "allow", "user") for pattern in allow),
        *(CommandRule(pattern, "ask", "user") for pattern in ask),
        *(CommandRule(pattern, "deny", "user") for pattern in deny),
    ]


def judge_command(
    command: str,
    *,
    allow: Iterable[str | None] = (),
    ask: Iterable[str | None] = (),
    deny: Iterable[str | None] = (),
    **more: Any,
) -> Judgement:
    """The judgement on a command under some rules."""
    return judge_script(read_script(command), make_rules(allow, ask, deny), **more)


def split_table(table: str) -> list[str]:
    """The commands of a table: one a line, ``⏎`` for a line's end inside one and ``⇥`` for a tab."""
    rows = [line.strip() for line in table.strip().splitlines()]
    return [row.replace("⏎", "\n").replace("⇥", "\t") for row in rows if row]
