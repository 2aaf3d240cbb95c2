"""Permission decisions, and the permission modes that decide where no rule matches."""

from collections.abc import Callable, Iterable, Mapping
from typing import Literal, NamedTuple, TypeAlias, get_args

import msgspec

from vaka.core.types.errors import InvalidInput
from vaka.core.types.ids import digest_of
from vaka.core.types.keywords import find_near_names
from vaka.core.types.message import replace_surrogates
from vaka.core.types.tool import MODES_BY_STRICTNESS, PROTECTED_LAYER, Allow, Ask, Deny, Mode, Verdict

DecisionKind: TypeAlias = Literal["allow", "ask", "deny"]
"""The kind of a rule, a mode's answer or a decision."""

SINGLE_USE_LAYERS = frozenset({"guard", "syntax", PROTECTED_LAYER})
"""Layers whose questions are about one command or file: an approval is never extended to other calls."""

STRICTNESS: Mapping[DecisionKind, int] = {"allow": 0, "ask": 1, "deny": 2}


class Subcommand(msgspec.Struct, frozen=True, kw_only=True):
    """The decision on one simple command of a command line."""

    command: str
    decision: DecisionKind
    rule: str = ""
    layer: str = ""
    reason: str = ""


class Finding(msgspec.Struct, frozen=True):
    """A decision, the rule and layer, or the mode, that made it, and why."""

    decision: DecisionKind
    rule: str = ""
    layer: str = ""
    reason: str = ""

    @classmethod
    def from_verdict(cls, verdict: Verdict) -> "Finding":
        if isinstance(verdict, Allow):
            return cls("allow", verdict.rule, verdict.layer)
        return cls("deny" if isinstance(verdict, Deny) else "ask", verdict.rule, verdict.layer, verdict.reason)

    @property
    def rule_verdict(self) -> Verdict:
        """The decision with the rule that made it."""
        if self.decision == "allow":
            return Allow(self.rule, self.layer)
        return (Ask if self.decision == "ask" else Deny)(self.reason, self.rule, self.layer)


Scope: TypeAlias = Literal["folder", "path", "below", "tracked", "object", "objects", "untracked", "anywhere"]
"""Existing files in a folder; the path itself, or any path below it, which need not exist; the files in the index of
its git repository; one file of a commit or of the index; the files of the index and of any commits; existing files that
are not in the index; existing files in this or any other folder."""


NameMatcher: TypeAlias = Callable[[str], bool] | str | None
"""A part of a pattern: a predicate for a name, a name, or ``None`` for any number of folders."""


class CommitRange(NamedTuple):
    """The commits that a git command shows."""

    revisions: tuple[str, ...] = ()
    """Their names; ``A..B`` and ``A...B`` are ranges. Without any it is ``HEAD``."""
    steps: int | None = 0
    """How far it follows their parents, ``None``: to the first commit."""
    everything: bool = False
    """Whether it may show any commit of the repository."""
    paths: tuple[str, ...] = ()
    """The paths that it is restricted to, relative to its folder."""


class FolderUse(NamedTuple):
    """The files of a folder that a command uses."""

    selects: Callable[[str], bool]
    """Whether it uses the file at this path, relative to the folder."""
    writes: bool = False
    certain: bool = False
    """Whether it uses every selected file for certain: then a rule that denies one denies the command."""
    scope: Scope = "folder"
    only_changes: bool = False
    """Whether only rules about changing files count, not those about reading."""
    parts: "tuple[NameMatcher, ...]" = ()
    """The parts of a pattern that bash expands to names in the folder: then only these, and what is in them."""
    destination: str | None = None
    """The folder that the selected files are put into, under their own names, which rules then match."""
    named: str = ""
    """The path of the ``object``, from the top of the repository, or with ``./`` from the folder."""
    commits: CommitRange = CommitRange()
    """The commits whose files are ``objects``."""
    word: str = ""
    """The word that names the files in the command, as written."""


class FolderRules(NamedTuple):
    """The rules for folders in commands."""

    is_inside: Callable[[str], bool] | None = None
    """Whether a folder belongs to the workspace, for ``cd``; by default whether it is below the current one."""
    may_use: Callable[[str, FolderUse], Verdict] | None = None
    """The verdict on a folder of which some files are used."""
    restrict_files: bool = False
    """Whether a rule denies or asks about files."""
    find_git_programs: Callable[[str, bool], str] | None = None
    """What a git command in a folder may run because its repository says so, and that only reads if the second
    argument is true; ``None`` if the folder is trusted."""


NO_FOLDER_RULES = FolderRules()


class PermissionDecision(Finding, frozen=True, kw_only=True):
    """The decision on a call."""

    subcommands: tuple[Subcommand, ...] = ()
    subject: str = ""
    """What is asked about, written as rules; questions with the same subject are one question."""
    asks: tuple[str, ...] = ()
    """The names of all rules and modes that ask."""

    @property
    def verdict(self) -> Verdict:
        """The decision for the loop; an ask carries the name of its question."""
        if self.decision != "ask":
            return self.rule_verdict
        rule = question_name_of(self.rule, self.layer, self.subject)
        return Ask(self.reason, rule, self.layer, asks=self.asks if self.asks != (rule,) else ())

    @property
    def verdict_on_path(self) -> Verdict:
        """The decision on a path of a command; an ask names all rules that ask, if there are several."""
        if self.decision != "ask" or len(self.asks) < 2:
            return self.rule_verdict
        return Ask(self.reason, self.rule, self.layer, asks=self.asks)

    @property
    def single_use(self) -> bool:
        """Whether an approval holds for this call alone."""
        return self.layer in SINGLE_USE_LAYERS


def strictest_decision(decisions: Iterable[PermissionDecision]) -> PermissionDecision:
    """Return the strictest of several decisions; several questions become one."""
    decisions = list(decisions)
    strictest = max(decisions, key=lambda decision: STRICTNESS[decision.decision])
    asks = {ask.subject: ask for ask in decisions if ask.decision == "ask"}
    if strictest.decision != "ask" or len(asks) < 2:
        return strictest
    reason = "; ".join(dict.fromkeys(ask.reason for ask in asks.values()))
    names = tuple(sorted({name for ask in asks.values() for name in ask.asks}))
    return msgspec.structs.replace(strictest, reason=reason, subject=" & ".join(sorted(asks)), asks=names)


def question_name_of(rule: str, layer: str, subject: str) -> str:
    """Return the name of a question. In single-use layers it is unique, so that an approval answers no other question.

    The subject is digested: redaction of secrets would change the text of a command.
    """
    if layer not in SINGLE_USE_LAYERS:
        return rule
    return f"{rule or layer} {digest_of(replace_surrogates(subject))[:16]}"


MODES: tuple[str, ...] = get_args(Mode)

AccessKind: TypeAlias = Literal["note", "read", "reach", "edit", "change"]
"""What a call does: ``note`` changes the session's own notes, ``read`` reads in the working directories, ``reach``
reads elsewhere or on the network, ``edit`` changes a file in the working directories, ``change`` is anything else."""


MODE_DECISIONS: Mapping[Mode, Mapping[AccessKind, DecisionKind]] = {
    "default": {"note": "allow", "read": "allow", "reach": "ask", "edit": "ask", "change": "ask"},
    "acceptEdits": {"note": "allow", "read": "allow", "reach": "ask", "edit": "allow", "change": "ask"},
    "plan": {"note": "allow", "read": "allow", "reach": "ask", "edit": "deny", "change": "deny"},
    "dontAsk": {"note": "deny", "read": "deny", "reach": "deny", "edit": "deny", "change": "deny"},
    "bypassPermissions": {"note": "allow", "read": "allow", "reach": "allow", "edit": "allow", "change": "allow"},
}

_MODE_ALIASES: Mapping[str, Mode] = {
    "askBeforeRunningTools": "default",
    "acceptReadOnly": "default",
    "auto": "default",
    "delegate": "plan",
}
"""Mode names of other programs; none permits more here than there."""


def parse_mode(name: str) -> Mode:
    """Return the mode with this name or alias. Raises ``InvalidInput`` with the nearest name, or all of them."""
    for mode in MODE_DECISIONS:
        if mode == name or mode == _MODE_ALIASES.get(name):
            return mode
    near = find_near_names(name, MODES, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"the modes are {', '.join(MODES)}"
    raise InvalidInput(f"there is no permission mode {name!r}; {hint}")


def is_stricter(mode: Mode, than: Mode) -> bool:
    """Return whether ``mode`` differs from ``than`` and permits nothing more."""
    return MODES_BY_STRICTNESS.index(mode) > MODES_BY_STRICTNESS.index(than)
