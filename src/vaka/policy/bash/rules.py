"""Command rules: their patterns, the forms of a command they are matched against, and their findings."""

import posixpath
import re
from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from vaka.matching.globs import matches_parts, matches_wildcards
from vaka.policy.bash.parse.hidden_programs import find_possible_commands, is_interpreter
from vaka.policy.bash.parse.inline_scripts import SHELLS
from vaka.policy.bash.parse.syntax import (
    Assignment,
    ShellScript,
    SimpleCommand,
    UnreadableScript,
    Word,
    Words,
    literal_word,
)
from vaka.policy.bash.parse.wrappers import (
    EXACT_ONLY_WRAPPERS,
    FD_EXEC_OPTIONS,
    FIND_EXEC_ACTIONS,
    WRAPPERS,
    base_name,
    split_fd_options,
)
from vaka.policy.bash.programs import read_set
from vaka.policy.decision import STRICTNESS, DecisionKind, Finding

SYNTAX_LAYER = "syntax"
"""The layer of commands that rules cannot judge: they are asked about, or run nothing."""

_QUOTED_SPACE = "\x1f"  # a blank inside a word; a blank between words does not match it
_UNKNOWN_MARK = "\x1e"  # unknown until bash expands it; only a wildcard matches it
_LITERAL_STAR = "\x1d"  # a star that is not a wildcard
_ANY_WORD = "\x1c"  # a star that is a word of a prefix rule: it matches one word

_BLANK = re.compile(r"[ \t\n]")

MatchResult: TypeAlias = Literal["yes", "maybe", "no"]


class CommandPattern(NamedTuple):
    """A parsed pattern of a rule."""

    kind: Literal["any", "prefix", "exact", "glob"]
    tokens: tuple[str, ...] = ()
    """The words of ``prefix`` and ``exact``."""
    segments: tuple[str, ...] = ()
    """The texts between the wildcards of ``glob``."""
    optional_tail: bool = False
    """Whether ``glob`` also matches without its last wildcard and the blank before it."""

    @property
    def starts_with_star(self) -> bool:
        """Whether its first word is a star."""
        return self.tokens[:1] == (_ANY_WORD,) or (self.segments[:1] == ("",) and self.segments[1][:1] == " ")

    @property
    def program(self) -> str:
        """Its first word, ``""`` if a star is in it."""
        if self.tokens:
            return self.tokens[0] if self.tokens[0] != _ANY_WORD else ""
        return self.segments[0].partition(" ")[0] if self.segments and " " in self.segments[0] else ""

    @property
    def starts_with_assignment(self) -> bool:
        """Whether it starts with a full assignment, as ``CI=1 npm test``."""
        first = self.tokens[0] if self.tokens else self.segments[0].rpartition(" ")[0] if self.segments else ""
        return re.match(r"[A-Za-z_]\w*=", first) is not None


def parse_patterns(text: str | None, *, wide: bool = False) -> tuple[CommandPattern, ...]:
    """Return the patterns that a rule's text may mean: as written, and with its backslashes as in bash.

    Claude Code writes a backslash before parentheses and backslashes when it saves a command as a rule. ``wide``: a
    star is a wildcard also where ``:*`` ends the rule.
    """
    first = parse_pattern(text)
    if (
        wide
        and text is not None
        and first.kind == "prefix"
        and any("*" in token or token == _ANY_WORD for token in first.tokens)
    ):
        start = text.strip()[:-2]
        return (first, _parse_pattern_text(start, exact=False), _parse_pattern_text(f"{start} *", exact=False))
    if text is None or "\\" not in text:
        return (first,)
    unescaped = re.sub(r"\\([()\\])", r"\1", text)
    return tuple(dict.fromkeys((first, *(_parse_pattern_text(form, exact=True) for form in (text, unescaped)))))


@lru_cache(maxsize=4096)
def parse_pattern(text: str | None) -> CommandPattern:
    """Parse a rule's pattern; ``None`` matches any command."""
    return CommandPattern("any") if text is None else _parse_pattern_text(text, exact=False)


def _parse_pattern_text(text: str, *, exact: bool) -> CommandPattern:
    text = _drop_open_quote(text.strip())
    if text in {"*", ":*"}:
        return CommandPattern("any")
    if text.endswith(":*") and not text.endswith("\\:*"):
        prefix = _remove_quotes(text[:-2], exact=exact)
        words = (_ANY_WORD if word == "*" else word.replace("*", _LITERAL_STAR) for word in prefix.split(" "))
        return CommandPattern("prefix", _split_tokens(" ".join(words)))
    flat = _remove_quotes(text, exact=exact)
    if "*" not in flat:
        return CommandPattern("exact", _split_tokens(flat))
    flat = re.sub(" +", " ", flat)
    segments = tuple(part.replace(_LITERAL_STAR, "*") for part in flat.split("*"))
    return CommandPattern("glob", segments=segments, optional_tail=flat.endswith(" *") and flat.count("*") == 1)


def _drop_open_quote(text: str) -> str:
    """Remove a quote that is opened only before the last wildcard: ``git commit -m ' *``, ``python -c ":*``."""
    found = re.fullmatch(r"(.*\S)\s+(['\"])(:\*|\s*\*)", text, re.DOTALL)
    if found is None or found[2] in found[1]:
        return text
    return f"{found[1]}:*" if found[3] == ":*" else f"{found[1]} *"


def _split_tokens(flat: str) -> tuple[str, ...]:
    return tuple(token.replace(_QUOTED_SPACE, " ").replace(_LITERAL_STAR, "*") for token in flat.split(" ") if token)


def _remove_quotes(text: str, *, exact: bool) -> str:
    """Remove quotes and backslashes; blanks inside quotes become ``_QUOTED_SPACE``.

    In double quotes bash keeps most backslashes; rules rarely mean them, so only ``exact`` does so.
    """
    out: list[str] = []
    quote, position = "", 0
    while position < len(text):
        character = text[position]
        kept = exact and quote == '"' and text[position + 1 : position + 2] not in {"$", "`", '"', "\\"}
        if character == "\\" and kept and text.startswith("*", position + 1):
            position += 1
            out.append("\\" + _LITERAL_STAR)
        elif character == "\\" and quote != "'" and position + 1 < len(text) and not kept:
            position += 1
            out.append({"*": _LITERAL_STAR, " ": _QUOTED_SPACE}.get(text[position], text[position]))
        elif quote and character == quote:
            quote = ""
        elif not quote and character in "'\"" and text.find(character, position + 1) > 0:
            quote = character
        else:
            out.append((_QUOTED_SPACE if quote else " ") if character in " \t\n" else character)
        position += 1
    return "".join(out)


def matches_command(text: str | None, words: Sequence[str | Word]) -> bool:
    """Return whether a rule's pattern certainly matches a command, given by its words."""
    view = CommandView(tuple(literal_word(word) if isinstance(word, str) else word for word in words))
    return view.match(parse_pattern(text)) == "yes"


class CommandView:
    """One form of a command; its text is rendered once for many patterns."""

    __slots__ = ("text", "words")

    def __init__(self, words: Words) -> None:
        self.words = words
        self.text: str | None = None

    def match(self, pattern: CommandPattern) -> MatchResult:
        """Return whether a pattern matches; ``maybe`` when that depends on expansions."""
        if pattern.kind == "any":
            return "yes"
        if not self.words:
            return "no"
        if pattern.kind != "glob":
            return _match_tokens(pattern, self.words)
        if self.text is None:
            self.text = " ".join([_render_word(word) for word in self.words])
        return _match_glob(pattern, self.text)


def _match_tokens(pattern: CommandPattern, words: Words) -> MatchResult:
    result: MatchResult = "yes"
    for index, token in enumerate(pattern.tokens):
        if index >= len(words):
            return "no"
        word = words[index]
        if word.value == token or (token == _ANY_WORD and not word.may_split):
            continue
        if word.value is not None or (token != _ANY_WORD and not _may_become(word, token)):
            return "no"
        if word.may_split:
            return "maybe"
        result = "maybe"
    if pattern.kind == "prefix" or len(words) == len(pattern.tokens):
        return result if pattern.tokens else "no"
    rest = words[len(pattern.tokens) :]
    return "maybe" if all(word.may_split for word in rest) else "no"


def _may_become(word: Word, token: str) -> bool:
    if word.may_split and all(not isinstance(piece, str) for piece in word.pieces):
        return True
    prefix, suffix = word.prefix, word.suffix
    if word.may_split:
        return token.startswith(prefix) or (" " not in prefix and prefix.startswith(token))
    return len(token) >= len(prefix) + len(suffix) and token.startswith(prefix) and token.endswith(suffix)


def _render_word(word: Word) -> str:
    if word.value is not None:
        return _BLANK.sub(_QUOTED_SPACE, word.value)
    texts = [_BLANK.sub(_QUOTED_SPACE, piece) if isinstance(piece, str) else _UNKNOWN_MARK for piece in word.pieces]
    return "".join(texts) or _UNKNOWN_MARK


def _match_glob(pattern: CommandPattern, text: str) -> MatchResult:
    if matches_parts(pattern.segments, text) or (pattern.optional_tail and text == pattern.segments[0][:-1]):
        return "yes"
    if _UNKNOWN_MARK not in text:
        return "no"
    before, _, _ = text.partition(_UNKNOWN_MARK)
    after = text.rpartition(_UNKNOWN_MARK)[2]
    first, last = pattern.segments[0], pattern.segments[-1]
    fits = (before.startswith(first) or first.startswith(before)) and (after.endswith(last) or last.endswith(after))
    return "maybe" if fits else "no"


_OPERATOR = re.compile(r"&&|\|\||\|&|[|;&<>]+")


def spans_commands(text: str) -> bool:
    """Return whether a rule's text contains a control operator or a redirection: it matches no single command."""
    return re.search(r"[|;&<>]", _remove_quotes(text, exact=False)) is not None


class LinePattern:
    """The pattern of a rule about several commands: a line as written, or commands in this order."""

    def __init__(self, text: str) -> None:
        flat = _space_operators(text.replace(":*", " *"))
        self._lines = (flat, flat.removesuffix(" *"))
        operators = set(_OPERATOR.findall(text))
        parts = [part.strip() for part in _OPERATOR.split(text)]
        plain = all(parts) and operators <= {"|", "|&", "&&", "||", ";", "&"} and not re.search(r"[(){}`'\"]", text)
        self._parts = [parse_patterns(part, wide=True) for part in parts] if plain else []
        self._is_pipeline = operators <= {"|", "|&"}

    def match(self, script: ShellScript | UnreadableScript) -> MatchResult:
        """Return whether the line, one of its commands as written, or its commands in order match."""
        texts = (script.text, *(simple.source for simple in script.commands))
        if any(matches_wildcards(line, _space_operators(text)) for text in texts for line in self._lines):
            return "yes"
        if isinstance(script, UnreadableScript) or not self._parts:
            return "no"
        matches = [[self._match_part(part, simple) for simple in script.commands] for part in self._parts]
        whole = (tuple(range(index, index + 1) for index in range(len(script.commands))),)
        sequences = script.pipelines if self._is_pipeline else whole
        for wanted in (("yes",), ("yes", "maybe")):
            if any(_occur_in_order(matches, sequence, wanted) for sequence in sequences):
                return "yes" if len(wanted) == 1 else "maybe"
        return "no"

    def _match_part(self, patterns: tuple[CommandPattern, ...], simple: SimpleCommand) -> MatchResult:
        views = [CommandView(words) for words in restriction_forms_of(simple)]
        results = {_best_match(pattern, views) for pattern in patterns}
        return "yes" if "yes" in results else "maybe" if "maybe" in results else "no"


def _occur_in_order(matches: Sequence[Sequence[str]], sequence: tuple[range, ...], wanted: tuple[str, ...]) -> bool:
    """Return whether each part of a pattern matches a command, in this order, with others between them."""
    position = 0
    for results in matches:
        while position < len(sequence) and not any(results[index] in wanted for index in sequence[position]):
            position += 1
        if position == len(sequence):
            return False
        position += 1
    return True


def _space_operators(text: str) -> str:
    return " ".join(_OPERATOR.sub(r" \g<0> ", text).split())


class CommandRule(msgspec.Struct, frozen=True):
    """A rule about commands: a pattern, or ``None`` for every command."""

    pattern: str | None
    kind: DecisionKind
    layer: str = ""
    answers: frozenset[str] = frozenset()
    """The ask rules that this grant answers: they do not ask about commands that it allows."""

    @property
    def text(self) -> str:
        return "Bash" if self.pattern is None else f"Bash({self.pattern})"


def strictest_finding(findings: Sequence[Finding]) -> Finding:
    """Return the first of the strictest findings; if all allow, a finding with the names of all their rules."""
    strictest = max(findings, key=lambda finding: STRICTNESS[finding.decision])
    if strictest.decision != "allow":
        return strictest
    ruled = [finding for finding in findings if finding.rule]
    rules = dict.fromkeys(finding.rule for finding in ruled)
    layers = dict.fromkeys(finding.layer for finding in ruled)
    if len(rules) < 2:
        return ruled[0] if ruled else findings[0]
    return Finding("allow", ", ".join(rules), ", ".join(layers) or strictest.layer, strictest.reason)


_TRUSTED_FOLDERS, _GIT_VALUED_OPTIONS = read_set("trusted_folders"), read_set("git_valued_options")


def strip_trusted_folder(words: Words) -> Words:
    """Return a command as allow rules see it: without the path of a program in a trusted folder."""
    value = words[0].value if words else None
    if value is None or not value.startswith("/"):
        return words
    folder, _, name = posixpath.normpath(value).replace("//", "/", 1).rpartition("/")
    return (msgspec.structs.replace(words[0], value=name), *words[1:]) if folder in _TRUSTED_FOLDERS else words


def restriction_forms_of(simple: SimpleCommand) -> Iterator[Words]:
    """Yield every form of a command that deny and ask rules are matched against."""
    if simple.assignments and simple.words:
        yield (*map(_assignment_word, simple.assignments), *simple.words)
    for words in simple.forms:
        if not words:
            continue
        yield words
        guess = words[0].guess
        if guess is None:
            continue
        name = base_name(guess).lower()  # some file systems ignore case
        if name != words[0].value:
            words = (literal_word(name), *words[1:])
            yield words
        if any(word.value is None and word.guess is not None for word in words):
            yield tuple(
                word if word.value is not None or word.guess is None else literal_word(word.guess) for word in words
            )
        if name == "git" and (skipped := strip_git_options(words)) != words:
            yield skipped


def _assignment_word(assignment: Assignment) -> Word:
    name, value = f"{assignment.name}=", assignment.value
    return (
        literal_word(name + value.value) if value.value is not None else Word(None, value.source, (name, *value.pieces))
    )


def strip_git_options(words: Words) -> Words:
    """Return a git command without the options before its subcommand."""
    index = 1
    while index < len(words) and words[index].placeholder_text.startswith("-"):
        index += 2 if words[index].placeholder_text in _GIT_VALUED_OPTIONS else 1
    return (words[0], *words[index:])


_FIND_ACTIONS = FIND_EXEC_ACTIONS | {"-delete", "-fprint", "-fprint0", "-fprintf", "-fls"}


class CommandRules:
    """Rules with compiled patterns."""

    def __init__(self, rules: Sequence[CommandRule]) -> None:
        self.deny = _compile_rules("deny", rules)
        self.ask = _compile_rules("ask", rules)
        self.allow = _compile_rules("allow", rules)
        any_command = next((rule for rule, pattern in self.allow if pattern.kind == "any"), None)
        self.allow_all = Finding("allow", any_command.text, any_command.layer) if any_command is not None else None
        """The finding of a rule that allows every command."""
        self._line_rules = [
            (rule, LinePattern(rule.pattern))
            for rule in rules
            if rule.kind != "allow" and rule.pattern is not None and spans_commands(rule.pattern)
        ]
        self._grants_by_rule = {
            text: [(rule, pattern) for rule, pattern in self.allow if text in rule.answers]
            for text in {text for rule, _ in self.allow for text in rule.answers}
        }

    def find_restriction(self, simple: SimpleCommand) -> Finding | None:
        """Return the finding of a rule that denies a command or asks about it; a deny rule that may match asks."""
        if not self.deny and not self.ask:
            return None
        views = [CommandView(words) for words in restriction_forms_of(simple)]
        possible: Finding | None = None
        for rule, pattern in self.deny:
            match = _best_match(pattern, views)
            if match == "yes":
                return Finding("deny", rule.text, rule.layer, f"the rule {rule.text} denies it")
            if match == "maybe" and possible is None:
                possible = Finding("ask", rule.text, rule.layer, f"the rule {rule.text} may deny what it becomes")
        for rule, pattern in self.ask:
            if _best_match(pattern, views) != "no" and not self.is_answered(rule.text, simple):
                return Finding("ask", rule.text, rule.layer, f"the rule {rule.text} asks about it")
        return possible or self._find_named_command(simple)

    def _find_named_command(self, simple: SimpleCommand) -> Finding | None:
        """Return a question if the arguments of an unknown program are a command that a rule denies or asks about."""
        forms = () if simple.calls_function else (form for one in simple.forms for form in find_possible_commands(one))
        views = [CommandView((literal_word(base_name(form[0].guess or "")), *form[1:])) for form in forms if form]
        for rule, pattern in (*self.deny, *self.ask) if views else ():
            if pattern.kind != "any" and any(view.match(pattern) == "yes" for view in views):
                if self.is_answered(rule.text, simple):
                    continue
                reason = f"it may run a command in its arguments; see the rule {rule.text}"
                return Finding("ask", rule.text, rule.layer, reason)
        return None

    def find_hidden_program(self, simple: SimpleCommand, *, restrict_files: bool = False) -> Finding | None:
        """Return a question about a command that may run a denied one unseen; an exact rule covers its arguments.

        ``restrict_files``: whether rules deny or ask about files, which the command may use.
        """
        if not self.deny and not self.ask and not restrict_files:
            return None
        reason = simple.hidden_input
        if not reason and simple.hidden_program:
            exact = [(rule, pattern) for rule, pattern in self.allow if pattern.kind == "exact"]
            reason = simple.hidden_program if self._find_permission_in(simple, exact) is None else ""
        return Finding("ask", "", SYNTAX_LAYER, f"{reason}, and a rule may deny it") if reason else None

    def find_line_restrictions(self, script: ShellScript | UnreadableScript) -> Iterator[Finding]:
        """Yield the findings of rules about several commands, such as ``curl * | sh``."""
        for rule, pattern in self._line_rules:
            match = pattern.match(script)
            if match == "yes" or (match == "maybe" and rule.kind == "ask"):
                does = "denies it" if rule.kind == "deny" else "asks about it"
                yield Finding(rule.kind, rule.text, rule.layer, f"the rule {rule.text} {does}")
            elif match == "maybe":
                yield Finding("ask", rule.text, rule.layer, f"the rule {rule.text} may deny what it becomes")

    def find_permission(self, simple: SimpleCommand) -> Finding | None:
        return self._find_permission_in(simple, self.allow)

    def names_programs(self, simple: SimpleCommand, programs: Collection[str]) -> bool:
        """Return whether a rule allows a command and names these programs, or is exactly the command."""
        named = [(rule, pattern) for rule, pattern in self.allow if pattern.kind == "exact"]
        if {*programs} == {base_name(simple.name or "")}:
            named += [(rule, pattern) for rule, pattern in self.allow if base_name(pattern.program) in programs]
        return self._find_permission_in(simple, named) is not None

    def find_permission_with_assignments(self, simple: SimpleCommand) -> Finding | None:
        """Return the finding of a rule that allows a command together with its variable assignments, word by word."""
        assigned = tuple(map(_assignment_word, simple.assignments))
        unknown = any(word.value is None for word in assigned)
        if not self.allow or not assigned or unknown or _requires_exact_rule(simple.words):
            return None
        words = (*assigned, *simple.words)
        for rule, pattern in self.allow:
            if pattern.kind != "any" and pattern.starts_with_assignment and CommandView(words).match(pattern) == "yes":
                return Finding("allow", rule.text, rule.layer, f"the rule {rule.text} allows it")
        return None

    def is_answered(self, text: str, simple: SimpleCommand) -> bool:
        """Return whether a grant for an ask rule allows this command."""
        grants = self._grants_by_rule.get(text)
        return grants is not None and (not simple.words or self._find_permission_in(simple, grants) is not None)

    def _find_permission_in(
        self, simple: SimpleCommand, rules: list[tuple[CommandRule, CommandPattern]]
    ) -> Finding | None:
        if not rules:
            return None
        words = self.words_for_allow(simple)
        forms = [words]
        if words is not simple.words:  # a rule may also match it as written
            forms += [strip_trusted_folder(simple.words), simple.unwrapped_words, simple.words]
        views = [CommandView(form) for form in forms]
        exact = _requires_exact_rule(words)
        for rule, pattern in rules:
            if exact and pattern.kind not in {"exact", "any"}:
                continue
            possible = views
            if pattern.starts_with_star:
                possible = [one for one in views if _is_one_program(one.words, pattern) and not simple.calls_function]
            if any(view.match(pattern) == "yes" for view in possible):
                return Finding("allow", rule.text, rule.layer, f"the rule {rule.text} allows it")
        return None

    def words_for_allow(self, simple: SimpleCommand) -> Words:
        return strip_trusted_folder(simple.unwrapped_words or simple.words)


def _compile_rules(kind: DecisionKind, rules: Sequence[CommandRule]) -> list[tuple[CommandRule, CommandPattern]]:
    chosen = [rule for rule in rules if rule.kind == kind]
    return [(rule, pattern) for rule in chosen for pattern in parse_patterns(rule.pattern, wide=kind != "allow")]


def _best_match(pattern: CommandPattern, views: list[CommandView]) -> MatchResult:
    """Only a pattern for any command matches one without words."""
    if pattern.kind == "any":
        return "yes"
    matches = {view.match(pattern) for view in views}
    return "yes" if "yes" in matches else "maybe" if "maybe" in matches else "no"


_PROGRAM_NAME = re.compile(r"[\w.+-]+", re.ASCII)


def _is_one_program(words: Words, pattern: CommandPattern) -> bool:
    """Return whether the star at the start of an allow rule is a program by its name, and the rest the other words.

    A path may lead to a script, and a wrapper or a shell runs what follows.
    """
    name = words[0].value if words else None
    if name is None or not _PROGRAM_NAME.fullmatch(name):
        return False
    wrapper = WRAPPERS.get(name)
    runs_others = (wrapper is not None and not wrapper.subcommand) or name in SHELLS or is_interpreter(words)
    if pattern.kind == "prefix":
        return not runs_others or len(words) == len(pattern.tokens)
    if runs_others and not pattern.segments[-1]:
        return False
    rest = "".join([f" {_render_word(word)}" for word in words[1:]])
    parts = pattern.segments[1:]
    return matches_parts(parts, rest) if len(parts) > 1 else parts == (rest,)


def _requires_exact_rule(words: Words) -> bool:
    name = words[0].value if words else None
    if name in EXACT_ONLY_WRAPPERS:
        return True
    if name in {"fd", "fdfind"}:
        return any(word.value in FD_EXEC_OPTIONS for word in split_fd_options(words))
    actions = _FIND_ACTIONS if name == "find" else frozenset[str]()
    return any((word.value or "").partition("=")[0] in actions for word in words[1:])
