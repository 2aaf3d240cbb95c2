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
    """Return the source that adds these surfaces to a script's environment; ``ctx`` is always among them.

    It is a chunk to be called with an environment and the primitives. Called with nil instead of an environment it
    returns a function that can be called with many environments, for a VM that runs many scripts.
    """
    # Each file is a function that runs on first use: most scripts use little of the prelude.
    parts = [f"{name} = function(...)\n{_read_luau(name)}\nend," for name in _LUAU_FILES]
    wanted = ", ".join(f"{name} = true" for name in surfaces)
    return "\n".join([_CHUNK_HEADER, *parts, _CHUNK_FOOTER.format(surfaces=wanted)])


def main_source() -> str:
    """Return the source that runs a script: a chunk to be called with the script, its start-up info and its arguments.

    The start-up info is a table: ``mode`` is ``plain``, ``tool`` or ``agent``; ``state`` is the agent's state, or true
    if it must be requested; ``begin`` is true when an agent starts; ``name``, ``model``, ``state_id``, ``request_id``,
    ``user_id`` and ``trace_id`` are fields of ``ctx.agent`` and ``ctx.runtime``.

    A tool returns a value, an error (or nil) and ``return``, ``output`` or ``nothing``; an agent returns ``run``,
    ``main``, ``input`` (to be run again with its next input) or ``closed``; a plain script returns its own results.
    """
    return "return __enter(...)"


def surfaces_of(sources: Iterable[str]) -> tuple[Surface, ...]:
    """Return the surfaces these sources may use: those whose name occurs in them."""
    text = "\n".join(sources)
    return ("ctx", *(name for name, pattern in _SURFACE_PATTERNS.items() if pattern.search(text)))


def uses_state(sources: Iterable[str]) -> bool:
    """Whether these sources may read the agent's state, so that it must be loaded before they run."""
    return any(_STATE_PATTERN.search(text) for text in sources)
