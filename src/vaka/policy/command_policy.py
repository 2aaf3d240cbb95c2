"""Shell commands judged by command rules together with the rules for the files they touch."""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from vaka.core.types.tool import Verdict
from vaka.policy import bash
from vaka.policy.bash.judge import guard
from vaka.policy.decision import PermissionDecision, Subcommand, question_name_of
from vaka.policy.rules import Rule

_PIPE_SIGN = r"(?<!\|)\|(?!\|)"


class CommandPolicy:
    """Judges the commands of one tool; rules are taken apart once."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._rules = [
            bash.CommandRule(
                rule.pattern if rule.match_kind == "command" else None, rule.kind, rule.layer, rule.answers
            )
            for rule in rules
            if rule.match_kind in ("command", "tool")
        ]
        self._rules_by_default_layer: dict[str, bash.CommandRules] = {}
        answers = [rule for rule in self._rules if rule.answers]
        self._ask_rules = [
            (rule.text, bash.CommandRules([rule, *answers])) for rule in self._rules if rule.kind == "ask"
        ]
        self._grant_rules = bash.CommandRules(answers) if answers else None

    def decide(
        self, command: str, default: PermissionDecision, *, profile: bool, may_read: Callable[[str], Verdict],
        may_write: Callable[[str], Verdict], inside: Callable[[str], bool], start: str = "",
    ) -> PermissionDecision:  # fmt: skip
        """Return the decision on a command; ``unmatched`` is what is said where nothing else speaks."""
        script = bash.read_script(command)
        if isinstance(script, bash.ShellScript):
            script = msgspec.structs.replace(script, start_folder=start)
        found = bash.judge_script(
            script,
            self._rules_with_default(default),
            use_profile=profile,
            default=default.rule_verdict,
            may_read=may_read,
            may_write=may_write,
            is_inside=inside,
        )
        parts = tuple(Subcommand(command=part.command, **_decision_fields(part, default)) for part in found.subcommands)
        facts = _decision_fields(found, default)
        if found.decision != "ask":
            return PermissionDecision(**facts, subcommands=parts)
        met = self._matching_ask_rules(script)
        subject = _question_subject(command, script, parts, {text for text, _ in self._ask_rules}, met)
        asking = [(part.rule, part.layer) for part in parts if part.decision == "ask"]
        names = {question_name_of(rule, layer, subject) for rule, layer in [*asking, (facts["rule"], facts["layer"])]}
        return PermissionDecision(**facts, subcommands=parts, subject=subject, asks=tuple(sorted(names | met)))

    def is_answered(self, command: str, asks: Iterable[str]) -> bool:
        """Return whether a person has answered all these rules with some that allow every part of a command."""
        script = bash.read_script(command) if self._grant_rules is not None else None
        if self._grant_rules is None or script is None or is_doubtful(script):
            return False
        return all(self._grant_rules.is_answered(text, simple) for text in asks for simple in script.commands)

    def _rules_with_default(self, default: PermissionDecision) -> bash.CommandRules:
        """What allows everything where nothing else speaks is a rule like another: it covers redirections, too."""
        layer = default.layer if default.decision == "allow" else ""
        if layer not in self._rules_by_default_layer:
            more = [bash.CommandRule(None, "allow", layer)] if layer else []
            self._rules_by_default_layer[layer] = bash.CommandRules([*self._rules, *more])
        return self._rules_by_default_layer[layer]

    def _matching_ask_rules(self, script: "bash.ShellScript | bash.UnreadableScript") -> set[str]:
        """Return the rules that ask about a part of a command."""
        return {
            text for text, rules in self._ask_rules if any(rules.find_restriction(simple) for simple in script.commands)
        }


def _question_subject(
    command: str,
    script: "bash.ShellScript | bash.UnreadableScript",
    parts: tuple[Subcommand, ...],
    ask_rules: set[str],
    matching: set[str],
) -> str:
    """Return what is asked about: what the ask rules mean, or else exactly this command."""
    asking = [part for part in parts if part.decision == "ask"]
    if not asking or any(part.rule not in ask_rules for part in asking) or is_doubtful(script):
        return f"Bash({exact_command_pattern(command)})"
    return " & ".join(sorted({part.rule for part in asking} | matching))


def select_commands(command: str, asking: Sequence[bool]) -> "list[bash.SimpleCommand]":
    """Return the parts of a command that are asked about, all of them when that is not said.

    None when a rule about their words would mean more than the command: what they are fed is no part of a rule.
    """
    script = bash.read_script(command)
    if is_doubtful(script):
        return []
    chosen = [at for at in range(len(script.commands)) if len(asking) != len(script.commands) or asking[at]]
    parts = [script.commands[at] for at in chosen]
    words = [word.source for simple in script.commands for word in simple.words]
    if any(simple.origin or any("<" in one.operator for one in simple.redirections) for simple in parts):
        return []
    if (
        ">(" in command
        or _occurs_outside_words(r"<", command, words)
        or (_occurs_outside_words(_PIPE_SIGN, command, words) and chosen != [0])
    ):
        return []
    return parts


def _occurs_outside_words(pattern: str, text: str, words: list[str]) -> bool:
    """Return whether something stands in a text that does not belong to its words."""
    return len(re.findall(pattern, text)) > sum(len(re.findall(pattern, word)) for word in words)


def redirection_targets_of(simple: "bash.SimpleCommand") -> list[str]:
    """Return the files that a part of a command writes to by redirection, as they are written there."""
    found = [one for one in simple.redirections if guard.is_write(one) and not guard.touches_no_file(one)]
    return [one.target.path for one in found if one.target.path is not None]


def _decision_fields(judged: "bash.Judgement | bash.JudgedCommand", default: PermissionDecision) -> dict[str, Any]:
    """Return who says what; what allows everything where nothing else speaks has a name of its own."""
    last = default.decision == "allow" and (judged.rule, judged.layer) == ("Bash", default.layer)
    rule, reason = (default.rule, default.reason) if last else (judged.rule, judged.reason)
    return {"decision": judged.decision, "rule": rule, "layer": judged.layer, "reason": reason}


def is_doubtful(script: "bash.ShellScript | bash.UnreadableScript") -> bool:
    """Return whether the whole of a command is in doubt, whatever rules say of its parts."""
    return isinstance(script, bash.UnreadableScript) or bool(script.doubts) or script.fork_bomb


def exact_command_pattern(command: str) -> str:
    """Return the pattern that means exactly this command."""
    return re.sub(r"([*\\])", r"\\\1", command)
