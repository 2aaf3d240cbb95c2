"""A cache of bytecode, keyed by source, VM version and optimisation level."""

import hashlib
import importlib
from collections import OrderedDict
from functools import cache
from types import ModuleType

from vaka.core.types.errors import ConfigError, ScriptError

MAX_CACHE_BYTES = 32 << 20


@cache
def load_pyluau() -> ModuleType:
    """Return the module pyluau; raise ``ConfigError`` if it is not installed."""
    try:
        importlib.import_module("pyluau._native")  # a folder named pyluau could be imported instead
    except ImportError as error:
        raise ConfigError("Luau needs pyluau: pip install 'vaka[luau]'") from error
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
