"""Command rules, the forms of a command they are matched against, and what they find."""

import posixpath
from collections.abc import Iterator, Sequence
from typing import Literal, TypeAlias

import msgspec

from vaka.core.types.tool import Allow, Ask, Deny, Verdict
from vaka.policy.bash.judge.patterns import (
    CommandPattern,
    CommandView,
    MatchResult,
    matches_line,
    parse_patterns,
    spans_commands,
)
from vaka.policy.bash.parse.syntax import Assignment, SimpleCommand, Word, Words, literal_word
from vaka.policy.bash.parse.wrappers import EXACT_ONLY_WRAPPERS, base_name

DecisionKind: TypeAlias = Literal["allow", "ask", "deny"]

_STRICTNESS = {"allow": 0, "ask": 1, "deny": 2}


class CommandRule(msgspec.Struct, frozen=True):
    """What somebody said about commands: a pattern, or ``None`` for all of them."""

    pattern: str | None
    kind: DecisionKind
    layer: str = ""
    answers: frozenset[str] = frozenset()
    """The rules that asked and were answered with this one: they do not ask about what it allows."""

    @property
    def text(self) -> str:
        """The rule as people write it."""
        return "Bash" if self.pattern is None else f"Bash({self.pattern})"


class JudgedCommand(msgspec.Struct, frozen=True):
    """One simple command and what was decided about it."""

    command: str
    decision: DecisionKind
    rule: str = ""
    layer: str = ""
    reason: str = ""


class Finding(msgspec.Struct, frozen=True):
    """A decision, the rule and layer it came from, and why."""

    decision: DecisionKind
    rule: str = ""
    layer: str = ""
    reason: str = ""

    @classmethod
    def from_verdict(cls, verdict: Verdict) -> "Finding":
        """Return what a verdict of the policy port says."""
        if isinstance(verdict, Allow):
            return cls("allow", verdict.rule, verdict.layer)
        return cls("deny" if isinstance(verdict, Deny) else "ask", verdict.rule, verdict.layer, verdict.reason)

    def for_command(self, simple: SimpleCommand) -> JudgedCommand:
        """Return this as the verdict on a command."""
        return JudgedCommand(simple.source, self.decision, self.rule, self.layer, self.reason)


class Judgement(msgspec.Struct, frozen=True):
    """What was decided about a whole command, by which rule of which layer, and why; then about each part of it."""

    decision: DecisionKind
    rule: str = ""
    layer: str = ""
    reason: str = ""
    subcommands: tuple[JudgedCommand, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """The same as the policy port says it."""
        if self.decision == "allow":
            return Allow(self.rule, self.layer)
        return (Ask if self.decision == "ask" else Deny)(self.reason, self.rule, self.layer)


def strictest_finding(findings: Sequence[Finding]) -> Finding:
    """Return the opinion that permits least, the first of several; when all allow, all their rules are named."""
    found = max(findings, key=lambda one: _STRICTNESS[one.decision])
    if found.decision != "allow":
        return found
    rules = dict.fromkeys(one.rule for one in findings if one.rule)
    layers = dict.fromkeys(one.layer for one in findings if one.rule)
    return (
        Finding("allow", ", ".join(rules), ", ".join(layers) or found.layer, found.reason)
        if len(rules) > 1
        else _first_with_rule(findings)
    )


def _first_with_rule(findings: Sequence[Finding]) -> Finding:
    return next((one for one in findings if one.rule), findings[0])


TRUSTED_FOLDERS = frozenset({
    "/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin", "/opt/homebrew/bin",
    "/opt/homebrew/sbin", "/run/current-system/sw/bin",
})  # fmt: skip
"""Where the programs are that everybody knows by their name alone."""

_GIT_VALUED_OPTIONS = frozenset({
    "-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path", "--super-prefix", "--config-env",
    "--attr-source", "--list-cmds",
})  # fmt: skip


def strip_trusted_folder(value: str) -> str:
    """Return a command word as rules that allow see it: the bare name when it lies where programs belong."""
    if not value.startswith("/"):
        return value
    folder, _, name = posixpath.normpath(value).replace("//", "/", 1).rpartition("/")
    return name if folder in TRUSTED_FOLDERS else value


def with_trusted_name(words: Words) -> Words:
    """Return a command with its word as rules that allow see it."""
    value = words[0].value if words else None
    if value is None or (name := strip_trusted_folder(value)) == value:
        return words
    return (Word(name, words[0].source, unquoted=words[0].unquoted, from_braces=words[0].from_braces), *words[1:])


def restriction_forms_of(simple: SimpleCommand) -> Iterator[Words]:
    """Yield a command in every way in which rules that deny or ask look at it."""
    if simple.assignments and simple.words:
        yield (*map(_assignment_word, simple.assignments), *simple.words)
    for words in (simple.words, *simple.wrapped_commands):
        if not words:
            continue
        yield words
        guess = words[0].guess
        if guess is None:
            continue
        name = base_name(guess)
        if name != words[0].value:
            words = (literal_word(name), *words[1:])
            yield words
        if any(word.value is None and word.guess is not None for word in words):
            yield tuple(
                word if word.value is not None or word.guess is None else literal_word(word.guess) for word in words
            )
        if name == "git" and (skipped := strip_git_options(words)) != words:
            yield skipped


def _assignment_word(one: Assignment) -> Word:
    """Return a variable that is set as the word it is written as."""
    value = one.value.value
    pieces = (f"{one.name}=", *one.value.pieces)
    return literal_word(f"{one.name}={value}") if value is not None else Word(None, one.value.source, pieces)


def strip_git_options(words: Words) -> Words:
    """Return a git command without the options that stand before its subcommand."""
    at = 1
    while at < len(words):
        value = words[at].placeholder_text
        if not value.startswith("-"):
            break
        at += 2 if value in _GIT_VALUED_OPTIONS else 1
    return (words[0], *words[at:])


_FIND_ACTIONS = frozenset({"-exec", "-execdir", "-ok", "-okdir", "-delete", "-fprint", "-fprint0", "-fprintf", "-fls"})

_FD_EXEC_OPTIONS = frozenset({"-x", "--exec", "-X", "--exec-batch"})


class CommandRules:
    """Rules with their patterns taken apart, so that many commands can be judged by them."""

    def __init__(self, rules: Sequence[CommandRule]) -> None:
        self.deny = _compile_rules("deny", rules)
        self.ask = _compile_rules("ask", rules)
        self.allow = _compile_rules("allow", rules)
        everything = next((rule for rule, said in self.allow if said.kind == "any"), None)
        self.allow_all = Finding("allow", everything.text, everything.layer) if everything is not None else None
        """What allows every command, if anything does."""
        self._line_rules = [rule for rule in rules if rule.kind != "allow" and spans_commands(rule.pattern)]
        self._grants_by_rule = {
            text: [(rule, said) for rule, said in self.allow if text in rule.answers]
            for text in {text for rule, _ in self.allow for text in rule.answers}
        }

    def find_restriction(self, simple: SimpleCommand) -> Finding | None:
        """Return the rule that denies a command or asks about it; one that perhaps denies it asks."""
        if not self.deny and not self.ask:
            return None
        views = [CommandView(words) for words in restriction_forms_of(simple)]
        perhaps: Finding | None = None
        for rule, said in self.deny:
            fits = _best_match(said, views)
            if fits == "yes":
                return Finding("deny", rule.text, rule.layer, f"the rule {rule.text} denies it")
            if fits == "maybe" and perhaps is None:
                perhaps = Finding("ask", rule.text, rule.layer, f"the rule {rule.text} may deny what it becomes")
        for rule, said in self.ask:
            if _best_match(said, views) != "no" and not self.is_answered(rule.text, simple):
                return Finding("ask", rule.text, rule.layer, f"the rule {rule.text} asks about it")
        return perhaps

    def find_line_restrictions(self, text: str) -> Iterator[Finding]:
        """Yield what rules that name several commands at once, as ``curl * | sh``, say of a line as it is written."""
        for rule in self._line_rules:
            if matches_line(rule.pattern or "", text):
                does = "denies it" if rule.kind == "deny" else "asks about it"
                yield Finding(rule.kind, rule.text, rule.layer, f"the rule {rule.text} {does}")

    def find_permission(self, simple: SimpleCommand) -> Finding | None:
        """Return the rule that allows a command."""
        return self._find_permission_in(simple, self.allow)

    def find_permission_with_assignments(self, simple: SimpleCommand) -> Finding | None:
        """Return the rule that allows a command together with the variables that are set for it, word by word."""
        values = [one.value.value for one in simple.assignments]
        if not self.allow or not values or None in values or _requires_exact_rule(simple.words):
            return None
        names = (literal_word(f"{one.name}={value}") for one, value in zip(simple.assignments, values, strict=True))
        words = (*names, *simple.words)
        for rule, said in self.allow:
            if said.kind != "any" and said.starts_with_assignment and CommandView(words).match(said) == "yes":
                return Finding("allow", rule.text, rule.layer, f"the rule {rule.text} allows it")
        return None

    def is_answered(self, text: str, simple: SimpleCommand) -> bool:
        """Return whether a person has answered a rule that asks with one that allows this command."""
        given = self._grants_by_rule.get(text)
        return given is not None and (not simple.words or self._find_permission_in(simple, given) is not None)

    def _find_permission_in(
        self, simple: SimpleCommand, rules: list[tuple[CommandRule, CommandPattern]]
    ) -> Finding | None:
        if not rules:
            return None
        words = self.words_for_allow(simple)
        views = [CommandView(words)]
        if words is not simple.words:  # a rule may also mean it as it is written
            views += [
                CommandView(with_trusted_name(simple.words)),
                CommandView(simple.unwrapped_words),
                CommandView(simple.words),
            ]
        exact = _requires_exact_rule(words)
        for rule, said in rules:
            if exact and said.kind not in {"exact", "any"}:
                continue
            if views[0].match(said) == "yes" or any(view.match(said) == "yes" for view in views[1:]):
                return Finding("allow", rule.text, rule.layer, f"the rule {rule.text} allows it")
        return None

    def words_for_allow(self, simple: SimpleCommand) -> Words:
        """Return a command as rules that allow see it."""
        return with_trusted_name(simple.unwrapped_words or simple.words)


def _compile_rules(kind: DecisionKind, rules: Sequence[CommandRule]) -> list[tuple[CommandRule, CommandPattern]]:
    return [
        (rule, said)
        for rule in rules
        if rule.kind == kind
        for said in parse_patterns(rule.pattern, wide=kind != "allow")
    ]


def _best_match(pattern: CommandPattern, views: list[CommandView]) -> MatchResult:
    """Only a rule about every command speaks of one without words."""
    found: MatchResult = "yes" if pattern.kind == "any" else "no"
    for view in views:
        one = view.match(pattern)
        if one == "yes":
            return one
        found = one if one == "maybe" else found
    return found


def _requires_exact_rule(words: Words) -> bool:
    name = words[0].value if words else None
    if name in EXACT_ONLY_WRAPPERS:
        return True
    acts = _FIND_ACTIONS if name == "find" else _FD_EXEC_OPTIONS if name in {"fd", "fdfind"} else frozenset[str]()
    return any((word.value or "").partition("=")[0] in acts for word in words[1:])
