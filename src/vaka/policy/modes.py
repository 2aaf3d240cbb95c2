"""What happens to a call that no rule speaks of."""

from difflib import get_close_matches
from typing import Literal, TypeAlias, get_args

from vaka.core.types.errors import InvalidInput
from vaka.core.types.tool import Allow, Ask, Deny, ToolSpec, Verdict

Mode: TypeAlias = Literal["default", "acceptEdits", "plan", "dontAsk", "bypassPermissions"]
"""How careful to be where the rules are silent."""

MODES: tuple[str, ...] = get_args(Mode)


def mode_named(name: str) -> Mode:
    """Return the mode of that name, or raise ``InvalidInput`` and suggest the near one."""
    for mode in get_args(Mode):
        if mode == name:
            known: Mode = mode
            return known
    near = get_close_matches(name, MODES, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"the modes are {', '.join(MODES)}"
    raise InvalidInput(f"there is no permission mode {name!r}; {hint}")


def unmatched(mode: Mode, spec: ToolSpec) -> Verdict:
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
