"""What happens to a call that no rule speaks of."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Literal, TypeAlias, get_args

from vaka.core.types.errors import InvalidInput
from vaka.core.types.tool import Allow, Ask, Deny, ToolSpec, Verdict

Mode: TypeAlias = Literal["default", "acceptEdits", "plan", "dontAsk", "bypassPermissions"]
"""How careful to be where the rules are silent."""

MODES: tuple[str, ...] = get_args(Mode)

AccessKind: TypeAlias = Literal["note", "read", "reach", "edit", "change"]
"""What a call does: keep the session's own notes, read in the working directories, read elsewhere or on the network,
edit a file in the working directories, or anything else."""

DecisionKind: TypeAlias = Literal["allow", "ask", "deny"]

MODE_DECISIONS: Mapping[Mode, Mapping[AccessKind, DecisionKind]] = {
    "default": {"note": "allow", "read": "allow", "reach": "ask", "edit": "ask", "change": "ask"},
    "acceptEdits": {"note": "allow", "read": "allow", "reach": "ask", "edit": "allow", "change": "ask"},
    "plan": {"note": "allow", "read": "allow", "reach": "ask", "edit": "deny", "change": "deny"},
    "dontAsk": {"note": "deny", "read": "deny", "reach": "deny", "edit": "deny", "change": "deny"},
    "bypassPermissions": {"note": "allow", "read": "allow", "reach": "allow", "edit": "allow", "change": "allow"},
}
"""What each mode says where no rule does."""

_BY_STRICTNESS: tuple[Mode, ...] = ("bypassPermissions", "acceptEdits", "default", "plan", "dontAsk")

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
    return _BY_STRICTNESS.index(mode) > _BY_STRICTNESS.index(than)


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
