"""Rules and decisions on commands for the tests of this folder."""

from collections.abc import Iterable
from typing import Any

from vaka.policy.bash import CommandRule, judge_script, read_script
from vaka.policy.decision import PermissionDecision


def make_rules(
    allow: Iterable[str | None] = (), ask: Iterable[str | None] = (), deny: Iterable[str | None] = ()
) -> list[CommandRule]:
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
) -> PermissionDecision:
    return judge_script(read_script(command), make_rules(allow, ask, deny), **more)
