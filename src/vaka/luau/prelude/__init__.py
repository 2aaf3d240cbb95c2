"""The Luau side of what scripts can call: ``ctx``, ``__builtin`` and ``rt``."""

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Literal, TypeAlias

Surface: TypeAlias = Literal["ctx", "builtin", "rt"]

ALL_SURFACES: tuple[Surface, ...] = ("ctx", "builtin", "rt")
_LUAU_FILES = ("json", "tasks", "desk", "chunks", "http", "models", "agent", "ctx", "builtin", "rt", "start", "furnish")
_SURFACE_PATTERNS: dict[Surface, re.Pattern[str]] = {
    "builtin": re.compile(r"\b__builtin\b"),
    "rt": re.compile(r"\brt\b"),
}
_STATE_PATTERN = re.compile(r"\bstate\b")

_CHUNK_HEADER = """local env, primitives = ...
local parts = {"""
_CHUNK_FOOTER = """}}
local shared = {{surfaces = {{{surfaces}}}}}
setmetatable(shared, {{__index = function(_, name)
	parts[name](shared, primitives)
	return rawget(shared, name)
end}})
if env == nil then return shared.furnish end
shared.furnish(env)"""


def _read_luau(name: str) -> str:
    return (Path(__file__).parent / f"{name}.luau").read_text("utf-8")


@cache
def prelude_source(surfaces: tuple[Surface, ...] = ALL_SURFACES) -> str:
    """Return the source that furnishes the place of a script with these surfaces; ``ctx`` is always among them.

    It is a chunk to be called with a place and the primitives. Called with nil for a place it returns a function that
    furnishes the place it is given, any number of times: what a VM that runs many scripts should keep.
    """
    # Each file is a function that runs when something of it is first wanted: most scripts need little.
    parts = [f"{name} = function(...)\n{_read_luau(name)}\nend," for name in _LUAU_FILES]
    wanted = ", ".join(f"{name} = true" for name in surfaces)
    return "\n".join([_CHUNK_HEADER, *parts, _CHUNK_FOOTER.format(surfaces=wanted)])


def main_source() -> str:
    """Return the source that runs a script: a chunk to be called with the script, what it is given, its arguments.

    ``given`` is a table: ``mode`` is ``plain``, ``tool`` or ``agent``; ``state`` is the agent's state, or true to have
    it asked for; ``begin`` says that an agent starts; ``name``, ``model``, ``state_id``, ``request_id``, ``user_id``
    and ``trace_id`` are what ``ctx.agent`` and ``ctx.runtime`` tell.

    A tool returns a value, an error (or nil) and ``return``, ``output`` or ``nothing``; an agent returns ``run``,
    ``main``, ``input`` (to be run again with its next input) or ``closed``; a plain script what it returned.
    """
    return "return __enter(...)"


def surfaces_of(sources: Iterable[str]) -> tuple[Surface, ...]:
    """Return the surfaces these sources may use: those whose name occurs in them."""
    texts = list(sources)
    return (
        "ctx",
        *(name for name, pattern in _SURFACE_PATTERNS.items() if any(pattern.search(text) for text in texts)),
    )


def uses_state(sources: Iterable[str]) -> bool:
    """Whether these sources may look at the agent's state, so that it must be there before they run."""
    return any(_STATE_PATTERN.search(text) for text in sources)
