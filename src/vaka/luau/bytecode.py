"""A cache of bytecode, keyed by source, VM version and optimisation level."""

import hashlib
import importlib
import os
import secrets
import tempfile
from collections import OrderedDict
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import ModuleType

from vaka.core.types.errors import ConfigError, ScriptError

MAX_CACHE_BYTES = 32 << 20
_KEY_BYTES = 32


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
    """Compiles sources, and caches bytecode in memory and optionally in a folder.

    Bytecode is trusted code: files in the folder are signed with a key that only this user can read, and a file with an
    invalid signature is compiled again.
    """

    def __init__(self, folder: Path | None = None, *, max_bytes: int = MAX_CACHE_BYTES) -> None:
        self._max_bytes = max_bytes
        self.cached_bytes = 0
        """Bytes of bytecode in memory."""
        self._code_by_key: OrderedDict[str, bytes] = OrderedDict()
        self._folder = folder
        self.key: bytes | None = None
        """The key with which a VM loads this bytecode; ``None`` is the key of this process."""
        if folder is not None:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.key = _load_or_create_key(folder / "key")

    def compile(self, source: str, name: str, opt: int = 2) -> bytes:
        """Return the bytecode of a source; raise ``ScriptError`` with ``name:line: what is wrong``."""
        key = self._cache_key(source, opt)
        code = self._code_by_key.get(key)
        if code is not None:
            self._code_by_key.move_to_end(key)
            return code
        code = self._read_file(key)
        if code is None:
            code = self._compile(source, name, opt)
            self._write_file(key, code)
        self._add_to_memory(key, code)
        return code

    def precompile(self, sources: Iterable[tuple[str, str]], opt: int = 2) -> list[ScriptError]:
        """Compile (name, source) pairs, and return the errors of those that do not compile."""
        errors: list[ScriptError] = []
        for name, source in sources:
            try:
                self.compile(source, name, opt)
            except ScriptError as error:
                errors.append(error)
        return errors

    def _cache_key(self, source: str, opt: int) -> str:
        return hashlib.sha256(f"{vm_version()}\0{opt}\0".encode() + _encode_source(source)).hexdigest()

    def _compile(self, source: str, name: str, opt: int) -> bytes:
        luau = load_pyluau()
        try:
            code: bytes = luau.compile(_encode_source(source), opt, chunkname=f"={name}", key=self.key)
        except luau.LuauSyntaxError as error:
            raise ScriptError(str(error)) from None
        return code

    def _add_to_memory(self, cache_key: str, code: bytes) -> None:
        self._code_by_key[cache_key] = code
        self.cached_bytes += len(code)
        while self.cached_bytes > self._max_bytes and len(self._code_by_key) > 1:
            self.cached_bytes -= len(self._code_by_key.popitem(last=False)[1])

    def _read_file(self, cache_key: str) -> bytes | None:
        if self._folder is None:
            return None
        try:
            code = (self._folder / cache_key).read_bytes()
        except OSError:
            return None
        luau = load_pyluau()
        try:
            with luau.State(key=self.key) as state:
                state.load(code)
        except luau.PyluauError:
            return None
        return code

    def _write_file(self, cache_key: str, code: bytes) -> None:
        if self._folder is None:
            return
        with suppress(OSError):  # a full or read-only folder only costs time
            _write_atomically(self._folder / cache_key, code)


def _encode_source(source: str) -> bytes:
    return source.encode("utf-8", "surrogatepass")


def _write_atomically(path: Path, content: bytes) -> None:
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        os.replace(name, path)  # noqa: PTH105  # mkstemp returns a string
    except OSError:
        os.unlink(name)  # noqa: PTH108
        raise


def _load_or_create_key(path: Path) -> bytes:
    """Return the key of a folder; the first process creates it."""
    with suppress(FileExistsError):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(_KEY_BYTES))
    key = path.read_bytes()
    if len(key) != _KEY_BYTES:
        raise ConfigError(f"{str(path)!r} has {len(key)} bytes; expected {_KEY_BYTES}; delete the folder")
    return key
