"""The judgement on a script: each simple command on its own, and the strictest finding wins."""

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

from vaka.core.types.tool import Ask, Verdict
from vaka.policy.bash.judge import guard
from vaka.policy.bash.judge.guard import FolderTracker, PathCheck
from vaka.policy.bash.judge.rules import CommandRule, CommandRules, Finding, Judgement, strictest_finding
from vaka.policy.bash.parse.syntax import (
    Redirection,
    ShellScript,
    SimpleCommand,
    UnreadableScript,
    Word,
    Words,
    literal_word,
)
from vaka.policy.bash.parse.variables import is_safe_variable, is_unsafe_variable
from vaka.policy.bash.profile import find_read_files, system
from vaka.policy.bash.profile.options import NotReadOnly

PROFILE_LAYER = "read-only"
"""The layer of what the read-only profile allows."""
SYNTAX_LAYER = "syntax"
"""The layer of what no rule can judge: it is asked about, or there is nothing to judge."""

_MAX_PATH_CHECKS = 20_000
_DEFAULT_VERDICT = Ask("no rule allows it", "default", "mode")
_RUNS_NOTHING = Finding("allow", "", SYNTAX_LAYER, "it runs no command")


def judge_script(
    script: ShellScript | UnreadableScript,
    rules: Sequence[CommandRule] | CommandRules = (),
    *,
    use_profile: bool = True,
    default: Verdict = _DEFAULT_VERDICT,
    may_read: PathCheck | None = None,
    may_write: PathCheck | None = None,
    is_inside: Callable[[str], bool] | None = None,
) -> Judgement:
    """Return what may become of a command that was read. Pure: it runs nothing and asks nobody.

    ``profile``: whether the read-only profile is on. ``unmatched``: what the mode says where nothing else speaks.
    ``may_read`` and ``may_write``: what the rules for files say of a path; without ``may_write`` no redirection to a
    file is allowed. ``inside``: whether a folder belongs to the workspace, for ``cd``.
    """
    held = rules if isinstance(rules, CommandRules) else CommandRules(rules)
    if isinstance(script, UnreadableScript):
        return _judge_unreadable(script, held)
    court = _ScriptJudge(held, Finding.from_verdict(default), may_read, may_write)
    court.use_profile, court.is_inside, court.start_folder = use_profile, is_inside, script.start_folder
    court.assigned_words, court.assigned_paths = (
        script.assigned_values,
        guard.list_possible_paths(script.assigned_values),
    )
    doubts = list(script.doubts)
    if len(court.assigned_paths) * len(script.commands) > _MAX_PATH_CHECKS:
        court.assigned_words, court.assigned_paths = (), ()
        doubts.append("it sets more variables than can be followed")
    opinions = [court.judge_command(simple) for simple in script.commands]
    whole = [Finding("ask", "", SYNTAX_LAYER, doubt) for doubt in doubts] + [*held.find_line_restrictions(script.text)]
    if script.fork_bomb:
        whole.append(Finding("deny", "", guard.GUARD_LAYER, "it starts itself again and again without end"))
    found = strictest_finding([*opinions, *whole] or [_RUNS_NOTHING])
    named = [opinion.for_command(simple) for simple, opinion in zip(script.commands, opinions, strict=True)]
    return Judgement(found.decision, found.rule, found.layer, found.reason, tuple(named))


def _judge_unreadable(script: UnreadableScript, rules: CommandRules) -> Judgement:
    """A text without a sure reading is asked about, or denied when a rule may mean it."""
    asked = Finding("ask", "", SYNTAX_LAYER, f"it cannot be judged: {script.reason}")
    for said in rules.find_line_restrictions(script.text):
        if said.decision == "deny":
            return Judgement(said.decision, said.rule, said.layer, said.reason)
    for simple in script.commands:
        denied = rules.find_restriction(simple)
        if denied is not None and denied.decision == "deny":
            named = denied.for_command(simple)
            return Judgement(denied.decision, denied.rule, denied.layer, denied.reason, (named,))
    return Judgement(asked.decision, asked.rule, asked.layer, asked.reason)


class _ScriptJudge:
    """Judges the simple commands of one script, in order."""

    use_profile = True
    is_inside: Callable[[str], bool] | None = None
    start_folder = ""
    assigned_words: Words = ()
    """What variables are set to, and the paths that this may be."""
    assigned_paths: Sequence[str] = ()

    def __init__(
        self, rules: CommandRules, default: Finding, may_read: PathCheck | None, may_write: PathCheck | None
    ) -> None:
        self.rules = rules
        self.default = default
        self.path_checks = {"read": may_read, "write": may_write}
        self.path_findings: dict[tuple[str, str], Finding] = {}
        self.folders = FolderTracker()

    def judge_command(self, simple: SimpleCommand) -> Finding:
        """Return what is to be done with one command."""
        forbidden = self.rules.find_restriction(simple)
        if forbidden is not None and forbidden.decision == "deny":
            found = forbidden
        else:
            found = self._judge_unforbidden(simple, forbidden)
        if guard.changes_folder(simple.words):
            operands = [word for word in simple.words[1:] if word.value not in {"-P", "-L", "--"}]
            goes = operands[0] if operands else literal_word("~")
            self.folders.change_folder(goes if simple.name == "cd" else None)
        return found

    def _judge_unforbidden(self, simple: SimpleCommand, asked: Finding | None) -> Finding:
        permitted, named = self._find_permission(simple)
        opinions = [
            one for one in (asked, self._guard_finding(simple), _find_doubt(simple), permitted) if one is not None
        ]
        if permitted is None:
            permitted = self.default
            opinions.append(self.default)
        opinions += self._judge_files(simple, permitted, named)
        return strictest_finding(opinions)

    def _guard_finding(self, simple: SimpleCommand) -> Finding | None:
        known = self.folders.possible
        if known is not None and self.start_folder:
            known = (*known, *(guard.join_path(self.start_folder, folder) for folder in known))
        found = guard.find_danger(simple, known)
        return Finding(found.decision, "", guard.GUARD_LAYER, found.reason) if found is not None else None

    # ---------------------------------------------------------------------------------------- what allows

    def _find_permission(self, simple: SimpleCommand) -> tuple[Finding | None, list[Word] | None]:
        """Return what allows a command, if anything, and the words it reads as files, if those are known."""
        if not simple.words:
            return self.rules.allow_all or _RUNS_NOTHING, []
        named: list[Word] | None = None
        refusal = ""
        try:
            named = self._find_read_files(simple)
        except NotReadOnly as error:
            refusal = str(error)
        if self.rules.allow_all is not None:
            return self.rules.allow_all, named
        if bad := _first_unsafe_assignment(simple):
            return self.rules.find_permission_with_assignments(simple) or self._default_because(
                f"{bad} is given to it"
            ), named
        if (
            allowed := self.rules.find_permission(simple) or self.rules.find_permission_with_assignments(simple)
        ) is not None:
            return allowed, named
        if self.use_profile and named is not None:
            return self._judge_read_only([*named, *guard.input_files_of(simple)]), named
        if simple.calls_function:
            return _RUNS_NOTHING, []
        return (self._default_because(refusal) if refusal and self.use_profile else None), named

    def _default_because(self, reason: str) -> Finding:
        found = self.default
        return Finding(found.decision, found.rule, found.layer, reason if found.decision != "allow" else found.reason)

    def _find_read_files(self, simple: SimpleCommand) -> list[Word] | None:
        if simple.name == "cd":
            system.resolve_cd(simple.unwrapped_words[1:], self._is_in_workspace)
            return []
        words = self.rules.words_for_allow(simple)
        found = find_read_files(simple, words)
        for option, folder in pairwise(words if words and words[0].value == "git" else ()):
            if option.value == "-C" and not self._is_in_workspace(folder.value or ""):
                raise NotReadOnly(f"git -C {folder.source} may lead to a repository whose settings run programs")
        return found

    def _is_in_workspace(self, path: str) -> bool:
        last = self.folders.possible[-1] if self.folders.possible is not None else None
        if last is None:
            return False
        path = guard.join_path(last, path)
        return self.is_inside(path) if self.is_inside is not None else system.is_below(path)

    def _judge_read_only(self, named: list[Word]) -> Finding:
        held = [literal_word(text) for word in named for text in guard.fill_with_values(word, self.assigned_paths)]
        if shown := guard.find_secret_path([*named, *held, *(self.assigned_words if held else ())]):
            return self._default_because(f"{shown} is a place where keys lie")
        return Finding("allow", PROFILE_LAYER, PROFILE_LAYER, "it only reads")

    # ---------------------------------------------------------------------------------------- files

    def _judge_files(self, simple: SimpleCommand, permitted: Finding, named: list[Word] | None) -> Iterable[Finding]:
        """Yield what the rules for files say of a command's operands and redirections."""
        everything = permitted is self.rules.allow_all
        by_profile = permitted.layer == PROFILE_LAYER
        if named is not None:
            for word in named:
                yield from self._check_path("read", word.path, strict=by_profile)
                for path in (
                    *guard.children_pattern_of(word.path or ""),
                    *guard.iter_likely_paths(word),
                    *guard.fill_with_values(word, self.assigned_paths),
                ):
                    yield from self._check_path("read", path)
        else:
            yield from self._judge_operands(simple)
        for redirection in simple.redirections:
            yield from self._judge_redirection(redirection, everything=everything)

    def _judge_operands(self, simple: SimpleCommand) -> Iterable[Finding]:
        for path, writes in guard.iter_operand_paths(simple, self.assigned_paths):
            yield from self._check_path("read", path)
            for found in self._check_path("write", path) if writes is not None else ():
                if writes or found.decision == "ask":
                    yield found
                else:
                    yield Finding("ask", found.rule, found.layer, f"it may write to {path}: {found.reason}")

    def _judge_redirection(self, redirection: Redirection, *, everything: bool) -> Iterable[Finding]:
        target = redirection.target
        if guard.is_network(redirection):
            if not everything:
                yield Finding("ask", "", SYNTAX_LAYER, f"it opens a connection to {target.source}")
        elif not guard.touches_no_file(redirection):
            kind = "write" if guard.is_write(redirection) else "read"
            yield from self._check_path(kind, target.path, strict=not everything)
            for path in (
                *guard.iter_likely_paths(target),
                *guard.fill_with_values(target, self.assigned_paths),
            ):
                yield from self._check_path(kind, path)
            if kind == "write" and not everything and (target.path is None or self.path_checks["write"] is None):
                yield Finding("ask", "", SYNTAX_LAYER, f"it writes to {target.source}")

    def _check_path(self, kind: str, path: str | None, *, strict: bool = False) -> Iterable[Finding]:
        """Yield what the rules for files have against a path; what only the mode says counts when ``strict``."""
        if self.path_checks[kind] is None or path is None:
            return
        possible = self.folders.resolve(path)
        if possible is None:
            if strict:
                yield Finding("ask", "", SYNTAX_LAYER, f"where {path} lies is not known after the last cd")
            return
        for one in possible:
            found = self._finding_for_path(kind, one)
            if found.decision != "allow" and (strict or found.layer not in {"mode", ""}):
                yield found

    def _finding_for_path(self, kind: str, path: str) -> Finding:
        known = self.path_findings.get((kind, path))
        if known is None:
            look = self.path_checks[kind]
            known = Finding.from_verdict(look(path)) if look is not None else _RUNS_NOTHING
            self.path_findings[kind, path] = known
        return known


def _find_doubt(simple: SimpleCommand) -> Finding | None:
    """Return why no rule may allow a command, if there is such a reason."""
    reason = simple.doubt
    if _is_unknown_command(simple.words):
        reason = f"which command {simple.words[0].source} is cannot be known beforehand"
    elif any(_is_unknown_command(words) for words in simple.wrapped_commands):
        reason = "which command it runs in turn cannot be known beforehand"
    else:
        for one in simple.assignments:
            if is_unsafe_variable(one.name) and not (one.name == "IFS" and simple.name == "read"):
                reason = f"it sets {one.name}, which decides what runs"
    return Finding("ask", "", SYNTAX_LAYER, reason) if reason else None


def _is_unknown_command(words: Words) -> bool:
    return bool(words) and (words[0].value is None or words[0].from_braces)


def _first_unsafe_assignment(simple: SimpleCommand) -> str:
    """Return the first variable before a command that is not known to be harmless."""
    if simple.name in system.DECLARATION_BUILTINS:
        return ""
    return next(
        (
            one.name
            for one in simple.assignments
            if not is_safe_variable(one.name) and not (one.name == "IFS" and simple.name == "read")
        ),
        "",
    )
