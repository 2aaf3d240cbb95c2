"""The decision on a command: each simple command is judged on its own, and the strictest finding wins."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import TypeVar

import msgspec

from vaka.core.types.tool import PROTECTED_LAYER, Allow, Ask, Verdict
from vaka.matching.sensitive_paths import control_part_of
from vaka.policy.bash import guard
from vaka.policy.bash.guard import FolderTracker, PathCheck
from vaka.policy.bash.machine import describe_machine_program, find_machine_programs, find_machine_programs_in_code
from vaka.policy.bash.options import NotReadOnly
from vaka.policy.bash.parse.reader import read_script
from vaka.policy.bash.parse.syntax import (
    Redirection,
    ShellScript,
    SimpleCommand,
    UnreadableScript,
    Word,
    Words,
    literal_word,
)
from vaka.policy.bash.parse.variables import DECLARATION_BUILTINS, is_safe_variable, is_unsafe_variable
from vaka.policy.bash.parse.wrappers import base_name
from vaka.policy.bash.possible_files import PossibleFiles, use_in_unknown_folder
from vaka.policy.bash.profile import check_cd, find_read_files, is_below
from vaka.policy.bash.programs import read_set
from vaka.policy.bash.rules import SYNTAX_LAYER, CommandRule, CommandRules, strictest_finding
from vaka.policy.decision import (
    NO_FOLDER_RULES,
    Finding,
    FolderRules,
    FolderUse,
    PermissionDecision,
    Subcommand,
    question_name_of,
)
from vaka.policy.rules import Rule

PROFILE_LAYER = "read-only"

_LISTERS = read_set("file_listers")
"""Programs that print names and sizes: the mode does not restrict where they look."""

TRUST_LAYER = "trust"
"""The layer of questions about what a folder that is not trusted would run."""

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
    folders: FolderRules = NO_FOLDER_RULES,
) -> PermissionDecision:
    """Return the decision on a script. It has no side effects.

    ``use_profile``: whether the read-only profile allows commands. ``default``: the verdict where no rule matches.
    ``may_read`` and ``may_write``: the verdict of the rules for files on a path; without ``may_write`` no redirection
    to a file is allowed.
    """
    compiled = rules if isinstance(rules, CommandRules) else CommandRules(rules)
    if isinstance(script, UnreadableScript):
        return _judge_unreadable(script, compiled)
    doubts, values = list(script.doubts), script.assigned_values
    paths = guard.list_possible_paths(values, probe=folders.may_use is None)
    if len(paths) * len(script.commands) > _MAX_PATH_CHECKS:
        values, paths = (), []
        doubts.append("it sets more variables than can be followed")
    judge = _ScriptJudge(
        rules=compiled,
        default=Finding.from_verdict(default),
        path_checks={"read": may_read, "write": may_write},
        use_profile=use_profile,
        folder_rules=folders,
        script=script,
        assigned_words=values,
        assigned_paths=paths,
        possible_files=PossibleFiles(script),
    )
    findings = [judge.judge_command(index) for index in range(len(script.commands))]
    whole = [*(_syntax_question(doubt) for doubt in doubts), *compiled.find_line_restrictions(script)]
    if script.fork_bomb:
        whole.append(Finding("deny", "", guard.GUARD_LAYER, "it starts itself again and again without end"))
    parts = tuple(map(_subcommand_of, script.commands, findings))
    return _build_decision(strictest_finding([*findings, *whole] or [_RUNS_NOTHING]), parts)


def _subcommand_of(simple: SimpleCommand, finding: Finding) -> Subcommand:
    return Subcommand(command=simple.source, **msgspec.structs.asdict(finding))


def _build_decision(finding: Finding, parts: tuple[Subcommand, ...] = ()) -> PermissionDecision:
    return PermissionDecision(**msgspec.structs.asdict(finding), subcommands=parts)


def _syntax_question(reason: str) -> Finding:
    return Finding("ask", "", SYNTAX_LAYER, reason)


def _judge_unreadable(script: UnreadableScript, rules: CommandRules) -> PermissionDecision:
    """Ask about a script that cannot be parsed, or deny it when a rule may match it."""
    for finding in rules.find_line_restrictions(script):
        if finding.decision == "deny":
            return _build_decision(finding)
    for simple in script.commands:
        denied = rules.find_restriction(simple)
        if denied is not None and denied.decision == "deny":
            return _build_decision(denied, (_subcommand_of(simple, denied),))
    return _build_decision(_syntax_question(f"it cannot be judged: {script.reason}"))


class _ScriptJudge(msgspec.Struct, kw_only=True):
    """Judges the simple commands of one script, in order."""

    rules: CommandRules
    default: Finding
    path_checks: dict[str, PathCheck | None]
    use_profile: bool
    folder_rules: FolderRules
    script: ShellScript
    assigned_words: Words
    assigned_paths: Sequence[str]
    """The values that variables are set to, and the paths that these may be."""
    possible_files: PossibleFiles
    path_findings: dict[tuple[str, str], Finding] = {}
    folders: FolderTracker = msgspec.field(default_factory=FolderTracker)

    def judge_command(self, index: int) -> Finding:
        simple = self.script.commands[index]
        finding = self.rules.find_restriction(simple)
        if finding is None or finding.decision != "deny":
            finding = self._judge_undenied(index, finding)
        if words := guard.find_folder_change(simple.words):
            self._follow_folder(words)
        return finding

    def _follow_folder(self, words: Words) -> None:
        """Note the folder that ``cd``, ``pushd`` or ``popd`` changes to."""
        operands = [word for word in words[1:] if not guard.CD_OPTION.fullmatch(word.placeholder_text)]
        targets = self.possible_files.find_entered_folders(operands[0], self.folders.possible) if operands else ["~"]
        known = words[0].value == "cd" or (words[0].value == "pushd" and bool(operands))
        certain = self.script.stops_at_failure and len(operands) == len(words) - 1
        self.folders.change_folder(targets if known else None, certain=certain)

    def _judge_undenied(self, index: int, asked: Finding | None) -> Finding:
        simple = self.script.commands[index]
        permission, files = self._find_permission(simple)
        permission = permission or self.default
        hidden = self.rules.find_hidden_program(simple, restrict_files=self.folder_rules.restrict_files)
        git = self._git_finding(simple, reads=files is not None) if permission.decision == "allow" else None
        findings = filter(None, (asked, self._guard_finding(simple), _find_doubt(simple), hidden, git, permission))
        used = [*self._judge_folders(index, files), *self._judge_matches(index)]
        return strictest_finding([*findings, *self._judge_files(simple, permission, files), *used])

    def _guard_finding(self, simple: SimpleCommand) -> Finding | None:
        folders = self.folders.possible
        start = self.script.start_folder
        if folders is not None and start:
            folders = (*folders, *(guard.join_path(start, folder) for folder in folders))
        return guard.find_danger(simple, folders) or self._machine_finding(simple)

    def _machine_finding(self, simple: SimpleCommand) -> Finding | None:
        """Return a question about a program that may harm the machine; a rule for any command does not cover it."""
        programs = list(dict.fromkeys((*find_machine_programs(simple), *find_machine_programs_in_code(simple))))
        if not programs or self.rules.names_programs(simple, programs):
            return None
        return Finding("ask", "", guard.GUARD_LAYER, describe_machine_program(programs[0]))

    def _git_finding(self, simple: SimpleCommand, *, reads: bool) -> Finding | None:
        """Return a question about git in a folder that is not trusted, if the repository names programs for it."""
        find = self.folder_rules.find_git_programs
        if find is None or self.rules.allow_all is not None:
            return None
        for words in simple.forms:
            if not words or base_name(words[0].guess or "") != "git":
                continue
            folders = _git_folders_of(words, self.folders.possible)
            found = [find(folder, reads) for folder in folders] if folders is not None else ["another repository"]
            if reason := next(filter(None, found), ""):
                text = f"git would use {reason}, and this folder is not trusted; vaka trust trusts it"
                return Finding("ask", "", TRUST_LAYER, text)
        return None

    # ---------------------------------------------------------------------------------------- permissions

    def _find_permission(self, simple: SimpleCommand) -> tuple[Finding | None, list[Word] | None]:
        """Return the finding that allows a command, if any, and the words that name files it reads, if known."""
        if not simple.words:
            return self.rules.allow_all or _RUNS_NOTHING, []
        files: list[Word] | None = None
        refusal = ""
        try:
            files = self._find_read_files(simple)
        except NotReadOnly as error:
            refusal = str(error)
        if self.rules.allow_all is not None:
            return self.rules.allow_all, files
        allowed = self.rules.find_permission_with_assignments(simple)
        if unsafe := _first_unsafe_assignment(simple):
            return allowed or self._default_because(f"{unsafe} is given to it"), files
        if (allowed := self.rules.find_permission(simple) or allowed) is not None:
            return allowed, files
        if self.use_profile and files is not None:
            return self._judge_read_only([*files, *guard.input_files_of(simple)]), files
        if simple.calls_function:
            return _RUNS_NOTHING, []
        return (self._default_because(refusal) if refusal and self.use_profile else None), files

    def _default_because(self, reason: str) -> Finding:
        changes = {"reason": reason} if self.default.decision != "allow" else {}
        return msgspec.structs.replace(self.default, **changes)

    def _find_read_files(self, simple: SimpleCommand) -> list[Word] | None:
        if simple.name == "cd":
            check_cd(simple.unwrapped_words[1:], self._is_in_workspace)
            return []
        words = self.rules.words_for_allow(simple)
        files = find_read_files(simple, words)
        for option, folder in pairwise(words if words and words[0].value == "git" else ()):
            if option.value == "-C" and not self._is_in_workspace(folder.value or ""):
                raise NotReadOnly(f"git -C {folder.source} may lead to a repository whose settings run programs")
        return files

    def _is_in_workspace(self, path: str) -> bool:
        if self.folders.possible is None:
            return False
        path = guard.join_path(self.folders.possible[-1], path)
        return (self.folder_rules.is_inside or is_below)(path)

    def _judge_read_only(self, files: list[Word]) -> Finding:
        filled = [literal_word(text) for word in files for text in guard.fill_with_values(word, self.assigned_paths)]
        if secret := guard.find_secret_path([*files, *filled, *(self.assigned_words if filled else ())]):
            return self._default_because(f"{secret} may hold secrets")
        return Finding("allow", PROFILE_LAYER, PROFILE_LAYER, "it only reads")

    # ---------------------------------------------------------------------------------------- files

    def _judge_files(self, simple: SimpleCommand, permission: Finding, files: list[Word] | None) -> Iterable[Finding]:
        """Yield the findings of the rules for files on a command's operands and redirections."""
        if files is None:
            yield from self._judge_operands(simple)
        strict = permission.layer == PROFILE_LAYER and simple.name not in _LISTERS
        for word in files or ():
            yield from self._check_path("read", word.path, strict=strict)
            for path in guard.children_pattern_of(word.path or ""):
                yield from self._check_path("read", path)
            for path in self._possible_paths(word):
                yield from self._check_path("read", path, strict=strict)
        for redirection in simple.redirections:
            yield from self._judge_redirection(redirection, allow_all=permission is self.rules.allow_all)

    def _judge_folders(self, index: int, files: list[Word] | None) -> Iterable[Finding]:
        """Yield the findings of the rules for files on folders, and on files that are not known beforehand."""
        may_use = self.folder_rules.may_use
        if may_use is None or not self.folder_rules.restrict_files:
            return
        for operand in self.possible_files.find(index, files, self.folders.possible):
            use = operand.use._replace(word=operand.use.word or operand.folder.source)
            if self.folders.possible is None:
                use = use_in_unknown_folder(operand.folder.path or ".", use)
            for text in self._folders_of(operand.folder, use):
                verdicts = (may_use(text, one) for one in self._resolve_destinations(operand.destination, use))
                yield from (Finding.from_verdict(verdict) for verdict in verdicts if not isinstance(verdict, Allow))

    def _judge_matches(self, index: int) -> Iterable[Finding]:
        """Yield the findings on the files on disk that patterns match, where a command changes them."""
        for path in self.possible_files.find_written_matches(index, self.folders.possible):
            yield from self._check_path("write", path)

    def _folders_of(self, word: Word, use: FolderUse) -> Iterator[str]:
        """Yield the folders that a word may name."""
        for text in filter(None, [word.path] if word.path is not None else self._possible_paths(word)):
            yield from (text,) if use.scope == "anywhere" else self.folders.resolve(text) or (text,)

    def _resolve_destinations(self, word: Word | None, use: FolderUse) -> Iterator[FolderUse]:
        if word is None:
            yield use
        elif word.path is not None:
            yield from (use._replace(destination=path) for path in self.folders.resolve(word.path) or (word.path,))

    def _possible_paths(self, word: Word) -> Iterable[str]:
        likely = guard.iter_likely_paths(word, probe=self._probes_names)
        return (*likely, *guard.fill_with_values(word, self.assigned_paths))

    @property
    def _probes_names(self) -> bool:
        """Whether frequent names stand for the files that a pattern matches: those on disk are not known."""
        return self.folder_rules.may_use is None

    def _judge_operands(self, simple: SimpleCommand) -> Iterable[Finding]:
        for path, writes in guard.iter_operand_paths(simple, self.assigned_paths, probe=self._probes_names):
            yield from self._check_path("read", path)
            for finding in self._check_path("write", path) if writes is not None else ():
                if not writes and finding.layer == PROTECTED_LAYER and not control_part_of(path.split("/")):
                    continue  # an unknown program mostly reads them
                if writes or finding.decision == "ask":
                    yield finding
                else:
                    yield Finding("ask", finding.rule, finding.layer, f"it may write to {path}: {finding.reason}")

    def _judge_redirection(self, redirection: Redirection, *, allow_all: bool) -> Iterable[Finding]:
        target = redirection.target
        if guard.is_network(redirection):
            if not allow_all:
                yield _syntax_question(f"it opens a connection to {target.source}")
        elif not guard.touches_no_file(redirection):
            kind = "write" if redirection.writes else "read"
            yield from self._check_path(kind, target.path, strict=not allow_all)
            for path in self._possible_paths(target):
                yield from self._check_path(kind, path)
            if kind == "write" and not allow_all and (target.path is None or self.path_checks["write"] is None):
                yield _syntax_question(f"it writes to {target.source}")

    def _check_path(self, kind: str, path: str | None, *, strict: bool = False) -> Iterable[Finding]:
        """Yield the findings of the rules for files against a path, and if ``strict`` the findings of the mode."""
        check = self.path_checks[kind]
        if check is None or path is None:
            return
        possible = self.folders.resolve(path)
        if possible is None and strict:
            yield _syntax_question(f"the folder of {path} is not known after the last cd")
        for resolved in possible if possible is not None else (path,):
            finding = self.path_findings.get((kind, resolved))
            if finding is None:
                finding = self.path_findings[kind, resolved] = Finding.from_verdict(check(resolved))
            if finding.decision != "allow" and (strict or finding.layer not in {"mode", ""}):
                yield finding


def _git_folders_of(words: Words, folders: tuple[str, ...] | None) -> list[str] | None:
    """Return the folders in which git may run, relative to the script's start; ``None`` if they are not known."""
    if any(word.prefix.startswith(("--git-dir", "--work-tree")) for word in words):
        return None
    for option, folder in pairwise(words):
        if option.value == "-C":
            if folder.path is None or folders is None:
                return None
            folders = tuple(guard.join_path(one, folder.path) for one in folders)
    return [folder or "." for folder in folders] if folders is not None else None


def _find_doubt(simple: SimpleCommand) -> Finding | None:
    """Return a question if no rule may allow the command."""
    reason = simple.doubt
    if _is_unknown_command(simple.words):
        reason = f"which command {simple.words[0].source} is cannot be known beforehand"
    elif any(_is_unknown_command(words) for words in simple.wrapped_commands):
        reason = "which command it runs in turn cannot be known beforehand"
    else:
        for name in _assigned_names(simple):
            if is_unsafe_variable(name):
                reason = f"it sets {name}, which decides what runs"
    return _syntax_question(reason) if reason else None


def _assigned_names(simple: SimpleCommand) -> list[str]:
    return [item.name for item in simple.assignments if not (item.name == "IFS" and simple.name == "read")]


def _is_unknown_command(words: Words) -> bool:
    if not words:
        return False
    value = words[0].value
    return value is None or words[0].from_braces or value.startswith(("/proc/", "/dev/fd/"))


def _first_unsafe_assignment(simple: SimpleCommand) -> str:
    """Return the first variable before a command that is not known to be harmless."""
    names = _assigned_names(simple) if simple.name not in DECLARATION_BUILTINS else []
    return next((name for name in names if not is_safe_variable(name)), "")


# ------------------------------------------------------------------------------------------- commands under all rules


_Decided = TypeVar("_Decided", PermissionDecision, Subcommand)

_PIPE_SIGN = r"(?<!\|)\|(?!\|)"


class CommandPolicy:
    """Judges the commands of one tool; its rules are compiled once."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._rules = [
            CommandRule(rule.pattern if rule.match_kind == "command" else None, rule.kind, rule.layer, rule.answers)
            for rule in rules
            if rule.match_kind in ("command", "tool")
        ]
        self._rules_by_default_layer: dict[str, CommandRules] = {}
        answers = [rule for rule in self._rules if rule.answers]
        self._ask_rules = [(rule.text, CommandRules([rule, *answers])) for rule in self._rules if rule.kind == "ask"]
        self._grant_rules = CommandRules(answers) if answers else None

    def decide(
        self,
        command: str,
        default: PermissionDecision,
        *,
        use_profile: bool,
        may_read: Callable[[str], Verdict],
        may_write: Callable[[str], Verdict],
        folders: FolderRules,
        start: str = "",
    ) -> PermissionDecision:
        """Return the decision on a command; ``default`` is the decision where no rule matches."""
        path_rules: set[str] = set()

        def note_rules(check: Callable[[str], Verdict], path: str) -> Verdict:
            verdict = check(path)
            path_rules.update(verdict.asks if isinstance(verdict, Ask) else ())
            return verdict

        script = read_script(command)
        if isinstance(script, ShellScript):
            script = msgspec.structs.replace(script, start_folder=start)
        judgement = judge_script(
            script,
            self._rules_with_default(default),
            use_profile=use_profile,
            default=default.rule_verdict,
            may_read=partial(note_rules, may_read),
            may_write=partial(note_rules, may_write),
            folders=folders,
        )
        parts = tuple(_name_default(part, default) for part in judgement.subcommands)
        decision = msgspec.structs.replace(_name_default(judgement, default), subcommands=parts)
        if decision.decision != "ask":
            return decision
        matching = self._matching_ask_rules(script)
        subject = _question_subject(command, script, parts, {text for text, _ in self._ask_rules}, matching)
        asking = [part for part in parts if part.decision == "ask"]
        origins = [(decision.rule, decision.layer), *((part.rule, part.layer) for part in asking)]
        names = {question_name_of(rule, layer, subject) for rule, layer in origins}
        return msgspec.structs.replace(decision, subject=subject, asks=tuple(sorted(names | matching | path_rules)))

    def is_answered(self, command: str, asks: Iterable[str]) -> bool:
        """Return whether grants for all these ask rules allow every part of a command."""
        script = read_script(command) if self._grant_rules is not None else None
        if self._grant_rules is None or script is None or is_doubtful(script):
            return False
        return all(self._grant_rules.is_answered(text, simple) for text in asks for simple in script.commands)

    def _rules_with_default(self, default: PermissionDecision) -> CommandRules:
        """A default that allows is added as a rule, so that it covers redirections too."""
        layer = default.layer if default.decision == "allow" else ""
        if layer not in self._rules_by_default_layer:
            allow_all = [CommandRule(None, "allow", layer)] if layer else []
            self._rules_by_default_layer[layer] = CommandRules([*self._rules, *allow_all])
        return self._rules_by_default_layer[layer]

    def _matching_ask_rules(self, script: ShellScript | UnreadableScript) -> set[str]:
        """Return the texts of the rules that ask about a part of a command."""
        return {
            text for text, rules in self._ask_rules if any(rules.find_restriction(simple) for simple in script.commands)
        }


def _question_subject(
    command: str,
    script: ShellScript | UnreadableScript,
    parts: tuple[Subcommand, ...],
    ask_rules: set[str],
    matching: set[str],
) -> str:
    """Return what is asked about: the ask rules that match, or else exactly this command."""
    asking = [part for part in parts if part.decision == "ask"]
    if not asking or any(part.rule not in ask_rules for part in asking) or is_doubtful(script):
        return f"Bash({exact_command_pattern(command)})"
    return " & ".join(sorted({part.rule for part in asking} | matching))


def select_commands(command: str, asking: Sequence[bool]) -> list[SimpleCommand]:
    """Return the parts of a command that are asked about, by default all.

    The list is empty when a rule about their words would match more than the command: rules do not cover their input.
    """
    script = read_script(command)
    if is_doubtful(script):
        return []
    chosen = [index for index in range(len(script.commands)) if len(asking) != len(script.commands) or asking[index]]
    parts = [script.commands[index] for index in chosen]
    words = [word.source for simple in script.commands for word in simple.words]
    if any(simple.origin or any("<" in item.operator for item in simple.redirections) for simple in parts):
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


def redirection_targets_of(simple: SimpleCommand) -> list[str]:
    """Return the files that a part of a command writes to by redirection, as written."""
    targets = [item.target for item in simple.redirections if item.writes and not guard.touches_no_file(item)]
    return [target.path for target in targets if target.path is not None]


def _name_default(judged: _Decided, default: PermissionDecision) -> _Decided:
    """Return a decision with the rule and reason of the default, where the rule added for the default made it."""
    if default.decision != "allow" or (judged.rule, judged.layer) != ("Bash", default.layer):
        return judged
    return msgspec.structs.replace(judged, rule=default.rule, reason=default.reason)


def is_doubtful(script: ShellScript | UnreadableScript) -> bool:
    """Return whether the whole command must be asked about, whatever rules say about its parts."""
    return isinstance(script, UnreadableScript) or bool(script.doubts) or script.fork_bomb


def exact_command_pattern(command: str) -> str:
    """Return the pattern that matches exactly this command."""
    return re.sub(r"([*\\])", r"\\\1", command)
