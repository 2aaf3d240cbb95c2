"""Commands, judged by the rules that speak of them and by what the rules for files say of what they touch."""

import re
from collections.abc import Callable, Iterable
from typing import Any

from vaka.core.types.tool import Verdict
from vaka.policy import bash
from vaka.policy.decision import Decision, Subcommand
from vaka.policy.rules import Rule


class Commands:
    """Judges the commands of one tool; rules are taken apart once."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._rules = [
            bash.Rule(rule.pattern if rule.sort == "command" else None, rule.kind, rule.layer)
            for rule in rules
            if rule.sort in ("command", "tool")
        ]
        self._held: dict[str, bash.Rules] = {}
        self._asks = [(rule.text, bash.Rules([rule])) for rule in self._rules if rule.kind == "ask"]

    def decide(
        self, command: str, unmatched: Decision, *, profile: bool, may_read: Callable[[str], Verdict],
        may_write: Callable[[str], Verdict], inside: Callable[[str], bool],
    ) -> Decision:  # fmt: skip
        """Return the decision on a command; ``unmatched`` is what is said where nothing else speaks."""
        script = bash.read(command)
        found = bash.judge(
            script, self._with(unmatched), profile=profile, unmatched=unmatched.said, may_read=may_read,
            may_write=may_write, inside=inside,
        )  # fmt: skip
        parts = tuple(Subcommand(command=part.command, **_facts(part, unmatched)) for part in found.subcommands)
        grant = self._grant(command, script, parts) if found.decision == "ask" else ""
        return Decision(**_facts(found, unmatched), subcommands=parts, grant=grant)

    def _with(self, unmatched: Decision) -> bash.Rules:
        """What allows everything where nothing else speaks is a rule like another: it covers redirections, too."""
        layer = unmatched.layer if unmatched.decision == "allow" else ""
        if layer not in self._held:
            more = [bash.Rule(None, "allow", layer)] if layer else []
            self._held[layer] = bash.Rules([*self._rules, *more])
        return self._held[layer]

    def _grant(self, command: str, script: "bash.Script | bash.Unreadable", parts: tuple[Subcommand, ...]) -> str:
        """Return what a yes for the session covers: what the ask rules mean, or else exactly this command."""
        known = {text for text, _ in self._asks}
        asking = [part for part in parts if part.decision == "ask"]
        if not asking or any(part.rule not in known for part in asking) or script_doubts(script):
            return f"Bash({exact(command)})"
        met = {text for text, rules in self._asks if any(rules.forbids(simple) for simple in script.commands)}
        return " & ".join(sorted({part.rule for part in asking} | met))


def _facts(said: "bash.Judgement | bash.Subcommand", unmatched: Decision) -> dict[str, Any]:
    """Return who says what; what allows everything where nothing else speaks has a name of its own."""
    last = unmatched.decision == "allow" and (said.rule, said.layer) == ("Bash", unmatched.layer)
    rule, reason = (unmatched.rule, unmatched.reason) if last else (said.rule, said.reason)
    return {"decision": said.decision, "rule": rule, "layer": said.layer, "reason": reason}


def script_doubts(script: "bash.Script | bash.Unreadable") -> bool:
    """Return whether the whole of a command is in doubt, whatever rules say of its parts."""
    return isinstance(script, bash.Unreadable) or bool(script.doubts) or script.bomb


def exact(command: str) -> str:
    """Return the pattern that means exactly this command."""
    return re.sub(r"([*\\])", r"\\\1", command)
