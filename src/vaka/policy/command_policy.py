"""Decisions on shell commands by command rules and the rules for the files they use."""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import msgspec

from vaka.core.types.tool import Verdict
from vaka.policy import bash
from vaka.policy.bash import guard
from vaka.policy.decision import PermissionDecision, Subcommand, question_name_of
from vaka.policy.rules import Rule

_Decided = TypeVar("_Decided", PermissionDecision, Subcommand)

_PIPE_SIGN = r"(?<!\|)\|(?!\|)"


class CommandPolicy:
    """Judges the commands of one tool; its rules are compiled once."""

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
        self, command: str, default: PermissionDecision, *, use_profile: bool, may_read: Callable[[str], Verdict],
        may_write: Callable[[str], Verdict], is_inside: Callable[[str], bool], start: str = "",
    ) -> PermissionDecision:  # fmt: skip
        """Return the decision on a command; ``default`` is the decision where no rule matches."""
        script = bash.read_script(command)
        if isinstance(script, bash.ShellScript):
            script = msgspec.structs.replace(script, start_folder=start)
        judgement = bash.judge_script(
            script, self._rules_with_default(default), use_profile=use_profile, default=default.rule_verdict,
            may_read=may_read, may_write=may_write, is_inside=is_inside,
        )  # fmt: skip
        parts = tuple(_name_default(part, default) for part in judgement.subcommands)
        decision = msgspec.structs.replace(_name_default(judgement, default), subcommands=parts)
        if decision.decision != "ask":
            return decision
        matching = self._matching_ask_rules(script)
        subject = _question_subject(command, script, parts, {text for text, _ in self._ask_rules}, matching)
        asking = [part for part in parts if part.decision == "ask"]
        origins = [(decision.rule, decision.layer), *((part.rule, part.layer) for part in asking)]
        names = {question_name_of(rule, layer, subject) for rule, layer in origins}
        return msgspec.structs.replace(decision, subject=subject, asks=tuple(sorted(names | matching)))

    def is_answered(self, command: str, asks: Iterable[str]) -> bool:
        """Return whether grants for all these ask rules allow every part of a command."""
        script = bash.read_script(command) if self._grant_rules is not None else None
        if self._grant_rules is None or script is None or is_doubtful(script):
            return False
        return all(self._grant_rules.is_answered(text, simple) for text in asks for simple in script.commands)

    def _rules_with_default(self, default: PermissionDecision) -> bash.CommandRules:
        """A default that allows is added as a rule, so that it covers redirections too."""
        layer = default.layer if default.decision == "allow" else ""
        if layer not in self._rules_by_default_layer:
            allow_all = [bash.CommandRule(None, "allow", layer)] if layer else []
            self._rules_by_default_layer[layer] = bash.CommandRules([*self._rules, *allow_all])
        return self._rules_by_default_layer[layer]

    def _matching_ask_rules(self, script: "bash.ShellScript | bash.UnreadableScript") -> set[str]:
        """Return the texts of the rules that ask about a part of a command."""
        return {
            text for text, rules in self._ask_rules if any(rules.find_restriction(simple) for simple in script.commands)
        }


def _question_subject(
    command: str, script: "bash.ShellScript | bash.UnreadableScript", parts: tuple[Subcommand, ...],
    ask_rules: set[str], matching: set[str],
) -> str:  # fmt: skip
    """Return what is asked about: the ask rules that match, or else exactly this command."""
    asking = [part for part in parts if part.decision == "ask"]
    if not asking or any(part.rule not in ask_rules for part in asking) or is_doubtful(script):
        return f"Bash({exact_command_pattern(command)})"
    return " & ".join(sorted({part.rule for part in asking} | matching))


def select_commands(command: str, asking: Sequence[bool]) -> "list[bash.SimpleCommand]":
    """Return the parts of a command that are asked about, by default all.

    The list is empty when a rule about their words would match more than the command: rules do not cover their input.
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
    """Return whether a pattern occurs in a text outside its words."""
    return len(re.findall(pattern, text)) > sum(len(re.findall(pattern, word)) for word in words)


def redirection_targets_of(simple: "bash.SimpleCommand") -> list[str]:
    """Return the files that a part of a command writes to by redirection, as written."""
    writes = [one for one in simple.redirections if guard.is_write(one) and not guard.touches_no_file(one)]
    return [one.target.path for one in writes if one.target.path is not None]


def _name_default(judged: _Decided, default: PermissionDecision) -> _Decided:
    """Return a decision with the rule and reason of the default, where the rule added for the default made it."""
    if default.decision != "allow" or (judged.rule, judged.layer) != ("Bash", default.layer):
        return judged
    return msgspec.structs.replace(judged, rule=default.rule, reason=default.reason)


def is_doubtful(script: "bash.ShellScript | bash.UnreadableScript") -> bool:
    """Return whether the whole command must be asked about, whatever rules say about its parts."""
    return isinstance(script, bash.UnreadableScript) or bool(script.doubts) or script.fork_bomb


def exact_command_pattern(command: str) -> str:
    """Return the pattern that matches exactly this command."""
    return re.sub(r"([*\\])", r"\\\1", command)
