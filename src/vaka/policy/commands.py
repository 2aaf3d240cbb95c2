"""Commands, judged by the rules that speak of them and by what the rules for files say of what they touch."""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from vaka.core.types.tool import Verdict
from vaka.policy import bash
from vaka.policy.bash import places
from vaka.policy.decision import Decision, Subcommand, name_of
from vaka.policy.rules import Rule

_PIPE = r"(?<!\|)\|(?!\|)"


class Commands:
    """Judges the commands of one tool; rules are taken apart once."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._rules = [
            bash.Rule(rule.pattern if rule.sort == "command" else None, rule.kind, rule.layer, rule.answers)
            for rule in rules
            if rule.sort in ("command", "tool")
        ]
        self._held: dict[str, bash.Rules] = {}
        answers = [rule for rule in self._rules if rule.answers]
        self._asks = [(rule.text, bash.Rules([rule, *answers])) for rule in self._rules if rule.kind == "ask"]
        self._answers = bash.Rules(answers) if answers else None

    def decide(
        self, command: str, unmatched: Decision, *, profile: bool, may_read: Callable[[str], Verdict],
        may_write: Callable[[str], Verdict], inside: Callable[[str], bool], start: str = "",
    ) -> Decision:  # fmt: skip
        """Return the decision on a command; ``unmatched`` is what is said where nothing else speaks."""
        script = bash.read(command)
        if isinstance(script, bash.Script):
            script = msgspec.structs.replace(script, start=start)
        found = bash.judge(
            script, self._with(unmatched), profile=profile, unmatched=unmatched.said, may_read=may_read,
            may_write=may_write, inside=inside,
        )  # fmt: skip
        parts = tuple(Subcommand(command=part.command, **_facts(part, unmatched)) for part in found.subcommands)
        facts = _facts(found, unmatched)
        if found.decision != "ask":
            return Decision(**facts, subcommands=parts)
        met = self._met(script)
        subject = _subject(command, script, parts, {text for text, _ in self._asks}, met)
        asking = [(part.rule, part.layer) for part in parts if part.decision == "ask"]
        names = {name_of(rule, layer, subject) for rule, layer in [*asking, (facts["rule"], facts["layer"])]}
        return Decision(**facts, subcommands=parts, subject=subject, asks=tuple(sorted(names | met)))

    def answered(self, command: str, asks: Iterable[str]) -> bool:
        """Return whether a person has answered all these rules with some that allow every part of a command."""
        script = bash.read(command) if self._answers is not None else None
        if self._answers is None or script is None or script_doubts(script):
            return False
        return all(self._answers.answered(text, simple) for text in asks for simple in script.commands)

    def _with(self, unmatched: Decision) -> bash.Rules:
        """What allows everything where nothing else speaks is a rule like another: it covers redirections, too."""
        layer = unmatched.layer if unmatched.decision == "allow" else ""
        if layer not in self._held:
            more = [bash.Rule(None, "allow", layer)] if layer else []
            self._held[layer] = bash.Rules([*self._rules, *more])
        return self._held[layer]

    def _met(self, script: "bash.Script | bash.Unreadable") -> set[str]:
        """Return the rules that ask about a part of a command."""
        return {text for text, rules in self._asks if any(rules.forbids(simple) for simple in script.commands)}


def _subject(
    command: str, script: "bash.Script | bash.Unreadable", parts: tuple[Subcommand, ...], known: set[str], met: set[str]
) -> str:
    """Return what is asked about: what the ask rules mean, or else exactly this command."""
    asking = [part for part in parts if part.decision == "ask"]
    if not asking or any(part.rule not in known for part in asking) or script_doubts(script):
        return f"Bash({exact(command)})"
    return " & ".join(sorted({part.rule for part in asking} | met))


def parts_of(command: str, asking: Sequence[bool]) -> "list[bash.Simple]":
    """Return the parts of a command that are asked about, all of them when that is not said.

    None when a rule about their words would mean more than the command: what they are fed is no part of a rule.
    """
    script = bash.read(command)
    if script_doubts(script):
        return []
    chosen = [at for at in range(len(script.commands)) if len(asking) != len(script.commands) or asking[at]]
    parts = [script.commands[at] for at in chosen]
    words = [word.source for simple in script.commands for word in simple.words]
    if any(simple.origin or any("<" in one.operator for one in simple.redirections) for simple in parts):
        return []
    if ">(" in command or _more(r"<", command, words) or (_more(_PIPE, command, words) and chosen != [0]):
        return []
    return parts


def _more(pattern: str, text: str, words: list[str]) -> bool:
    """Return whether something stands in a text that does not belong to its words."""
    return len(re.findall(pattern, text)) > sum(len(re.findall(pattern, word)) for word in words)


def written_by(simple: "bash.Simple") -> list[str]:
    """Return the files that a part of a command writes to by redirection, as they are written there."""
    found = [one for one in simple.redirections if places.writes(one) and not places.is_free(one)]
    return [one.target.path for one in found if one.target.path is not None]


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
