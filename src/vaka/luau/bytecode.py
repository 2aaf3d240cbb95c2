"""Compiled scripts, kept by what they are made of."""

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

MOST_BYTES = 32 << 20
_KEY_BYTES = 32


@cache
def native() -> ModuleType:
    """Return pyluau, or raise ``ConfigError`` saying how to get it."""
    try:
        importlib.import_module("pyluau._native")  # an extra, and a compiled one; a folder of that name is not it
    except ImportError as error:
        raise ConfigError("Luau needs pyluau: pip install 'vaka[luau]'") from error
    return importlib.import_module("pyluau")


@cache
def vm_version() -> str:
    """Return which VM runs the scripts."""
    return str(native().version)


class Bytecode:
    """Compiles, and remembers what it compiled: in memory, and in a folder of the user's if it is given one.

    Bytecode is trusted code: what is read from the folder is signed with a key that only this user can read, and a file
    that is not exactly what was written is compiled anew.
    """

    def __init__(self, folder: Path | None = None, *, most: int = MOST_BYTES) -> None:
        self._most = most
        self.held = 0
        """Bytes of bytecode in memory."""
        self._known: OrderedDict[str, bytes] = OrderedDict()
        self._folder = folder
        self.key: bytes | None = None
        """What a VM must be given to load this bytecode; ``None`` is the key of this process."""
        if folder is not None:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.key = _key(folder / "key")

    def compile(self, source: str, name: str, opt: int = 2) -> bytes:
        """Return the bytecode of a source; raise ``ScriptError`` with ``name:line: what is wrong``."""
        place = self._place(source, opt)
        code = self._known.get(place)
        if code is not None:
            self._known.move_to_end(place)
            return code
        code = self._read(place)
        if code is None:
            code = self._make(source, name, opt)
            self._write(place, code)
        self._remember(place, code)
        return code

    def precompile(self, sources: Iterable[tuple[str, str]], opt: int = 2) -> list[ScriptError]:
        """Compile (name, source) pairs, and return what is wrong with those that cannot be."""
        errors: list[ScriptError] = []
        for name, source in sources:
            try:
                self.compile(source, name, opt)
            except ScriptError as error:
                errors.append(error)
        return errors

    def _place(self, source: str, opt: int) -> str:
        mark = hashlib.sha256(f"{vm_version()}\0{opt}\0".encode())
        mark.update(_encoded(source))
        return mark.hexdigest()

    def _make(self, source: str, name: str, opt: int) -> bytes:
        luau = native()
        try:
            code: bytes = luau.compile(_encoded(source), opt, chunkname=f"={name}", key=self.key)
        except luau.LuauSyntaxError as error:
            raise ScriptError(str(error)) from None
        return code

    def _remember(self, place: str, code: bytes) -> None:
        self._known[place] = code
        self.held += len(code)
        while self.held > self._most and len(self._known) > 1:
            self.held -= len(self._known.popitem(last=False)[1])

    def _read(self, place: str) -> bytes | None:
        if self._folder is None:
            return None
        try:
            code = (self._folder / place).read_bytes()
        except OSError:
            return None
        luau = native()
        try:
            with luau.State(key=self.key) as state:
                state.load(code)
        except luau.PyluauError:
            return None
        return code

    def _write(self, place: str, code: bytes) -> None:
        if self._folder is None:
            return
        with suppress(OSError):  # a folder that is full or read-only costs time, nothing else
            _put(self._folder / place, code)


def _encoded(source: str) -> bytes:
    return source.encode("utf-8", "surrogatepass")


def _put(path: Path, content: bytes) -> None:
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        os.replace(name, path)  # noqa: PTH105  # a name, as mkstemp gives it
    except OSError:
        os.unlink(name)  # noqa: PTH108
        raise


def _key(path: Path) -> bytes:
    """Return the key of a folder, made on first use; whoever is first wins."""
    with suppress(FileExistsError):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(_KEY_BYTES))
    key = path.read_bytes()
    if len(key) != _KEY_BYTES:
        raise ConfigError(f"{str(path)!r} should hold {_KEY_BYTES} bytes and holds {len(key)}: delete the folder")
    return key
