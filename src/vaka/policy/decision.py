"""The decision on a call, and how a permission mode makes one where no rule matches."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Literal, TypeAlias, get_args

import msgspec

from vaka.core.types.errors import InvalidInput
from vaka.core.types.ids import digest_of
from vaka.core.types.message import replace_surrogates
from vaka.core.types.tool import PROTECTED_LAYER, Allow, Ask, Deny, ToolSpec, Verdict

DecisionKind: TypeAlias = Literal["allow", "ask", "deny"]

SINGLE_USE_LAYERS = frozenset({"guard", "syntax", PROTECTED_LAYER})
"""Layers whose questions are about one command or file, never about all that a rule means."""

_BY_STRICTNESS: tuple[DecisionKind, ...] = ("allow", "ask", "deny")


class Subcommand(msgspec.Struct, frozen=True, kw_only=True):
    """What is said of one command of several."""

    command: str
    decision: DecisionKind
    rule: str = ""
    layer: str = ""
    reason: str = ""


class PermissionDecision(msgspec.Struct, frozen=True, kw_only=True):
    """What may happen, and who says so: a rule and its layer, or the mode."""

    decision: DecisionKind
    rule: str = ""
    layer: str = ""
    reason: str = ""
    subcommands: tuple[Subcommand, ...] = ()
    subject: str = ""
    """What is asked about, in the words of rules: two questions about the same are one."""
    asks: tuple[str, ...] = ()
    """The names of everything that asks."""

    @property
    def verdict(self) -> Verdict:
        """The decision as the loop takes it."""
        if self.decision != "ask":
            return self.rule_verdict
        rule = question_name_of(self.rule, self.layer, self.subject)
        return Ask(self.reason, rule, self.layer, asks=self.asks if self.asks != (rule,) else ())

    @property
    def single_use(self) -> bool:
        """Whether this is about one command or file, never about all that a rule means."""
        return self.layer in SINGLE_USE_LAYERS

    @property
    def rule_verdict(self) -> Verdict:
        """The decision with the rule that made it."""
        if self.decision == "allow":
            return Allow(self.rule, self.layer)
        return (Ask if self.decision == "ask" else Deny)(self.reason, self.rule, self.layer)

    @property
    def strictness(self) -> int:
        """0 for allow, 1 for ask, 2 for deny."""
        return _BY_STRICTNESS.index(self.decision)


def strictest_decision(decisions: Iterable[PermissionDecision]) -> PermissionDecision:
    """Return the decision that all of them together come to; several questions become one."""
    found = list(decisions)
    worst = max(found, key=lambda decision: decision.strictness)
    asks = {ask.subject: ask for ask in found if ask.decision == "ask"}
    if worst.decision != "ask" or len(asks) < 2:
        return worst
    reason = "; ".join(dict.fromkeys(ask.reason for ask in asks.values()))
    names = tuple(sorted({name for ask in asks.values() for name in ask.asks}))
    return msgspec.structs.replace(worst, reason=reason, subject=" & ".join(sorted(asks)), asks=names)


def question_name_of(rule: str, layer: str, subject: str) -> str:
    """Return the name of a question: of what is dangerous each is one of its own, so that a yes answers no other.

    It is a digest, since a text of the command would be another one once secrets are taken out of it.
    """
    if layer not in SINGLE_USE_LAYERS:
        return rule
    return f"{rule or layer} {digest_of(replace_surrogates(subject))[:16]}"


Mode: TypeAlias = Literal["default", "acceptEdits", "plan", "dontAsk", "bypassPermissions"]
"""How careful to be where the rules are silent."""

MODES: tuple[str, ...] = get_args(Mode)

AccessKind: TypeAlias = Literal["note", "read", "reach", "edit", "change"]
"""What a call does: keep the session's own notes, read in the working directories, read elsewhere or on the network,
edit a file in the working directories, or anything else."""


MODE_DECISIONS: Mapping[Mode, Mapping[AccessKind, DecisionKind]] = {
    "default": {"note": "allow", "read": "allow", "reach": "ask", "edit": "ask", "change": "ask"},
    "acceptEdits": {"note": "allow", "read": "allow", "reach": "ask", "edit": "allow", "change": "ask"},
    "plan": {"note": "allow", "read": "allow", "reach": "ask", "edit": "deny", "change": "deny"},
    "dontAsk": {"note": "deny", "read": "deny", "reach": "deny", "edit": "deny", "change": "deny"},
    "bypassPermissions": {"note": "allow", "read": "allow", "reach": "allow", "edit": "allow", "change": "allow"},
}
"""What each mode says where no rule does."""

_MODES_BY_STRICTNESS: tuple[Mode, ...] = ("bypassPermissions", "acceptEdits", "default", "plan", "dontAsk")

_MODE_ALIASES: Mapping[str, Mode] = {
    "askBeforeRunningTools": "default", "acceptReadOnly": "default", "auto": "default", "delegate": "plan",
}  # fmt: skip
"""What settings written for others call a mode; none of them lets more happen here than there."""


def parse_mode(name: str) -> Mode:
    """Return the mode of that name, or raise ``InvalidInput`` and suggest the near one."""
    for mode in get_args(Mode):
        if mode == name:
            known: Mode = mode
            return known
    near = get_close_matches(name, MODES, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"the modes are {', '.join(MODES)}"
    raise InvalidInput(f"there is no permission mode {name!r}; {hint}")


def parse_settings_mode(name: str) -> Mode:
    """Return the mode a settings file means, also by a name of other programs. Raises ``InvalidInput``."""
    return _MODE_ALIASES.get(name) or parse_mode(name)


def is_stricter(mode: Mode, than: Mode) -> bool:
    """Return whether ``mode`` never permits what ``than`` does not, and is another one."""
    return _MODES_BY_STRICTNESS.index(mode) > _MODES_BY_STRICTNESS.index(than)


def default_verdict(mode: Mode, spec: ToolSpec) -> Verdict:
    """Return what ``mode`` says of a tool no rule matched.

    A tool handed over in code is allowed by that act; only ``plan`` looks closer, since a plan changes nothing.
    """
    reads = spec.effect == "read"
    if mode == "plan" and not reads:
        return Deny(f"{spec.name} may change something, and in plan mode nothing is changed", mode, "mode")
    if spec.layer == "code":
        return Allow(spec.name, "code")
    if mode == "dontAsk":
        return Deny(f"{spec.name} is not among the tools that were allowed beforehand", mode, "mode")
    if reads or mode == "bypassPermissions":
        return Allow(mode, "mode")
    return Ask(f"{spec.name} may change something", mode, "mode")
