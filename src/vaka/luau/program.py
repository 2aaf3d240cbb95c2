"""A script before it runs: its source, library, prelude and limits, the digest that identifies a run, and bytecode."""

import hashlib
import importlib
import math
import re
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, TypeAlias

import msgspec

from vaka.core.types.errors import ConfigError, InvalidInput, NotFound, ScriptError
from vaka.core.types.ids import Digest
from vaka.luau import require
from vaka.luau.require import Library, read_library

INSTALL_PYLUAU = "pip install ./pyluau in a clone of vaka, or pip install 'vaka[luau]' from an index"

MAX_CACHE_BYTES = 32 << 20


@cache
def load_pyluau() -> ModuleType:
    """Return the module pyluau; raise ``ConfigError`` if it is not installed."""
    try:
        importlib.import_module("pyluau._native")  # a folder named pyluau could be imported instead
    except ImportError as error:
        raise ConfigError(f"Luau needs pyluau: {INSTALL_PYLUAU}") from error
    return importlib.import_module("pyluau")


@cache
def vm_version() -> str:
    return str(load_pyluau().version)


class BytecodeCache:
    """Compiles sources, and caches their bytecode in memory; the least recently used goes first."""

    def __init__(self, max_bytes: int = MAX_CACHE_BYTES) -> None:
        self._max_bytes = max_bytes
        self.cached_bytes = 0
        self._code_by_key: OrderedDict[str, bytes] = OrderedDict()

    def compile(self, source: str, name: str, opt: int = 2) -> bytes:
        """Return the bytecode of a source; raise ``ScriptError`` with ``name:line: what is wrong``."""
        luau, text = load_pyluau(), source.encode("utf-8", "surrogatepass")
        key = hashlib.sha256(f"{vm_version()}\0{opt}\0".encode() + text).hexdigest()
        code = self._code_by_key.get(key)
        if code is None:
            try:
                code = self._code_by_key[key] = luau.compile(text, opt, chunkname=f"={name}")
            except luau.LuauSyntaxError as error:
                raise ScriptError(str(error)) from None
            self.cached_bytes += len(code)
            while self.cached_bytes > self._max_bytes and len(self._code_by_key) > 1:
                self.cached_bytes -= len(self._code_by_key.popitem(last=False)[1])
        self._code_by_key.move_to_end(key)
        return code


MIB = 1 << 20
MIN_MEMORY = MIB
MAX_DEPTH = 500
_COUNT_UNITS: dict[str, float] = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9}
_LIMIT_UNITS: dict[str, dict[str, float]] = {
    "memory": {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30},
    "seconds": {"": 1.0, "S": 1.0, "MS": 1e-3, "M": 60.0},
    "instructions": _COUNT_UNITS,
    "coroutines": _COUNT_UNITS,
    "depth": {"": 1},
}


@dataclass(frozen=True, slots=True)
class ScriptLimits:
    """The limits of one script; ``None`` is no limit. Time counts only while the script runs, not while it waits."""

    memory: int | None = 64 * MIB
    """Bytes of its VM; scripts in the same VM share them."""
    seconds: float | None = 5.0
    """Total running time."""
    instructions: int | None = None
    """Safe points (calls and loop iterations) it may pass: deterministic on every machine, but slower to check."""
    coroutines: int | None = 10_000
    """Coroutines that may be alive at once."""
    depth: int = 100
    """Nesting depth of tables that are passed to the host."""

    def __post_init__(self) -> None:
        if self.memory is not None and not _is_int_at_least(self.memory, MIN_MEMORY):
            raise InvalidInput(f"memory must be {MIN_MEMORY // MIB}M or more, not {self.memory!r}")
        if self.seconds is not None and not (math.isfinite(self.seconds) and self.seconds > 0):
            raise InvalidInput(f"seconds must be a number above 0, not {self.seconds!r}")
        for name in ("instructions", "coroutines"):
            value = getattr(self, name)
            if value is not None and not _is_int_at_least(value, 1):
                raise InvalidInput(f"{name} must be a whole number above 0, not {value!r}")
        if not _is_int_at_least(self.depth, 1) or self.depth > MAX_DEPTH:
            raise InvalidInput(f"depth must be a whole number from 1 to {MAX_DEPTH}, not {self.depth!r}")

    @classmethod
    def parse(cls, text: str) -> "ScriptLimits":
        """Parse ``memory=64M,seconds=5,instructions=10M,coroutines=1000,depth=50``; the others have their defaults."""
        limits: dict[str, Any] = {}
        for part in filter(None, (part.strip() for part in text.split(","))):
            name, equals, value = (word.strip() for word in part.partition("="))
            if name not in _LIMIT_UNITS or not equals:
                raise InvalidInput(f"limit {part!r} is unknown; expected {_LIMIT_SYNTAX}")
            if name in limits:
                raise InvalidInput(f"limit {name!r} is given twice")
            limits[name] = None if value == "none" and name != "depth" else _parse_limit(name, part, value)
        return cls(**limits)


def _is_int_at_least(value: object, minimum: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= minimum


def _parse_limit(name: str, part: str, text: str) -> float:
    units = _LIMIT_UNITS[name]
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([A-Za-z]*)", text)
    unit = units.get(match[2].upper()) if match else None
    if match is None or unit is None:
        known = ", ".join(sorted(filter(None, units)))
        raise InvalidInput(f"limit {part!r} is not a number with a unit such as {known}; expected {_LIMIT_SYNTAX}")
    number = float(match[1]) * unit
    if name == "seconds":
        return number
    if not number.is_integer():
        raise InvalidInput(f"limit {part!r} is not a whole number")
    return int(number)


_LIMIT_SYNTAX = (
    "memory=64M, seconds=5, instructions=10M, coroutines=10K or depth=100 (or none), with commas between them"
)

MAX_SOURCE_BYTES = 8 << 20
BUILTIN_LIBRARY = Path(__file__).parent / "lib"


@dataclass(frozen=True)
class Program:
    """A script and all that determines its behaviour: programs with equal ``digest`` make the same host calls."""

    source: str
    name: str = "script"
    """Its name in error messages: ``name:line: message``."""
    library: Library = field(default_factory=Library)
    preludes: tuple[str, ...] = ()
    """Luau sources that run before the script, each called with its environment and the primitives."""
    main: str = ""
    """A Luau source that runs the script: it is called in the same environment with the script as a function and then
    the arguments. Empty: the script itself is called with the arguments."""
    opt: int = 2
    limits: ScriptLimits = field(default_factory=ScriptLimits)
    trusted: bool = False
    """Whether it may run inside this process: only the project's own scripts."""

    @cached_property
    def digest(self) -> Digest:
        """The digest of sources, libraries, preludes, VM and options, without limits; a replay compares it."""
        modules = sorted((name, module.source) for name, module in self.library.modules.items())
        content = [
            vm_version(),
            self.opt,
            self.name,
            self.source,
            self.main,
            require.REQUIRE_PRELUDE,
            self.preludes,
            modules,
        ]
        return Digest(hashlib.sha256(msgspec.json.encode(content)).hexdigest())

    @cached_property
    def uses_state(self) -> bool:
        """Whether the script or a module names ``state``; others start without it. Built-in modules do not read it."""
        builtin = tuple(folder.name for folder in BUILTIN_LIBRARY.iterdir())
        modules = self.library.modules.values()
        sources = [module.source for module in modules if not module.name.startswith(builtin)]
        return any(re.search(r"\bstate\b", source) for source in [self.source, *sources])

    @cached_property
    def cache_key(self) -> str:
        """The digest and the limits as one string, whose hash Python computes once."""
        return f"{self.digest} {self.limits}"


def read_source(path: Path) -> str:
    """Return the text of a script; raise ``NotFound``, or ``ScriptError`` if it is too large or not UTF-8."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise NotFound(f"script {str(path)!r} cannot be read: {error.strerror}") from error
    if len(content) > MAX_SOURCE_BYTES:
        raise ScriptError(f"{path.name}: the script has {len(content)} bytes; expected at most {MAX_SOURCE_BYTES}")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ScriptError(f"{path.name}:{line}: the script is not UTF-8") from None


Surface: TypeAlias = Literal["ctx", "builtin", "rt"]

ALL_SURFACES: tuple[Surface, ...] = ("ctx", "builtin", "rt")
_LUAU_FILES = (
    "json",
    "tasks",
    "desk",
    "chunks",
    "http",
    "models",
    "transformers",
    "agent",
    "ctx",
    "builtin",
    "rt",
    "start",
    "furnish",
)
_SURFACE_PATTERNS: dict[Surface, re.Pattern[str]] = {
    "builtin": re.compile(r"\b__builtin\b"),
    "rt": re.compile(r"\brt\b"),
}

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
    return (Path(__file__).parent / "prelude" / f"{name}.luau").read_text("utf-8")


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

    A tool returns a value and an error (or nil); an agent returns ``run``, ``main``, ``input`` (to be run again with
    its next input) or ``closed``; a plain script returns its own results.
    """
    return "return __enter(...)"


def surfaces_of(sources: Iterable[str]) -> tuple[Surface, ...]:
    """Return the surfaces these sources may use: surfaces whose name occurs in them."""
    text = "\n".join(sources)
    return ("ctx", *(name for name, pattern in _SURFACE_PATTERNS.items() if pattern.search(text)))


async def build_program(
    source: str,
    name: str,
    libs: Sequence[Path | str],
    *,
    limits: ScriptLimits | None,
    trusted: bool,
    surfaces: tuple[Surface, ...] = (),
) -> Program:
    """Return a script with its library and surfaces, by default those that it and its library may use."""
    library = await read_library(libs, builtin=(BUILTIN_LIBRARY,))
    chosen = surfaces or surfaces_of([source, *(module.source for module in library.modules.values())])
    prelude, limits = prelude_source(chosen), limits or ScriptLimits()
    return Program(source, name, library, (prelude,), main_source(), limits=limits, trusted=trusted)
