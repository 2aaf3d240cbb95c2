"""Which of the built-in tools an agent gets, by the names that people and settings use for them."""

from collections.abc import Iterable

from vaka.core.types.errors import InvalidInput
from vaka.tools.builtin import OPT_IN, TOOLS
from vaka.tools.validate import near

_KEYS = {"file_read": "Read", "file_write": "Write", "file_edit": "Edit"}
"""Names of settings that are not the tool's own, written apart."""


def choose(enabled: Iterable[str] | None = None, disallowed: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the names of the built-in tools that are wanted, in their order: all but those one must ask for.

    ``bash_output``, ``BashOutput`` and ``bash-output`` are one tool; ``all`` is each that comes by itself. Raises
    ``InvalidInput`` for a name no tool has. What is disallowed may also be the name of another tool.
    """
    names = [enabled] if isinstance(enabled, str) else ["all"] if enabled is None else list(enabled)
    wanted: set[str] = set()
    for name in names:
        wanted |= set(TOOLS) - OPT_IN if plain(name) == "all" else {_tool(name)}
    refused = {plain(name) for name in ([disallowed] if isinstance(disallowed, str) else disallowed)}
    return tuple(name for name in TOOLS if name in wanted and plain(name) not in refused)


def plain(name: str) -> str:
    """Return a tool's name as it is compared: without regard to case, ``-``, ``_`` and spaces."""
    joined = name.strip().lower().replace("-", "_").replace(" ", "_")
    return _KEYS.get(joined, joined).lower().replace("_", "")


def _tool(name: str) -> str:
    for known in TOOLS:
        if plain(known) == plain(name):
            return known
    raise InvalidInput(f"there is no built-in tool {name!r}{near(name, TOOLS)}; there are {', '.join(sorted(TOOLS))}")
