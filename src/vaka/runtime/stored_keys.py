"""API keys that ``vaka login`` stored: in the system keyring, or in files that only their owner can read."""

import os
import shutil
import stat
import subprocess
from collections import ChainMap
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

import msgspec

from vaka.config.documents import replace_file
from vaka.config.settings import keys_folder
from vaka.core.types.errors import AuthenticationFailed, ConfigError

KeyPlace: TypeAlias = Literal["keyring", "file"]

SERVICE = "vaka"
"""The name under which the system keyring has the keys."""
KEYRING_PLACE = "the system keyring"
KEYRING_PROGRAM = "secret-tool"
KEYRING_SECONDS = 60
"""Seconds that the keyring gets to answer; it may ask the user for its password."""


class KeyringFailed(Exception):
    """The system keyring did not do what it was asked for."""


class SystemKeyring(Protocol):
    def read(self, name: str) -> str: ...
    def write(self, name: str, key: str) -> None: ...
    def delete(self, name: str) -> None: ...


class SecretToolKeyring:
    """The Secret Service of a desktop, through the program ``secret-tool``; keys pass through pipes, not arguments."""

    def read(self, name: str) -> str:
        return self._call("lookup", name)

    def write(self, name: str, key: str) -> None:
        self._call("store", name, key, f"--label=vaka: {name}")

    def delete(self, name: str) -> None:
        self._call("clear", name)

    def _call(self, action: str, name: str, key: str = "", *more: str) -> str:
        command = [KEYRING_PROGRAM, action, *more, "service", SERVICE, "variable", name]
        try:
            done = subprocess.run(
                command, input=key, capture_output=True, text=True, timeout=KEYRING_SECONDS, check=False
            )
        except (OSError, ValueError, subprocess.TimeoutExpired) as error:
            raise KeyringFailed(f"{KEYRING_PROGRAM} {action}: {type(error).__name__}") from None
        if done.returncode != 0 and (
            done.stderr.strip() or action != "lookup"
        ):  # a lookup that finds nothing is silent
            reason = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
            raise KeyringFailed(f"{KEYRING_PROGRAM} {action}: {reason}")
        return done.stdout.strip()


class PackageKeyring:
    """The keyring that the package ``keyring`` found: of macOS, Windows, or a desktop."""

    def __init__(self, package: Any) -> None:
        self._package = package

    def read(self, name: str) -> str:
        return self._call("get_password", name) or ""

    def write(self, name: str, key: str) -> None:
        self._call("set_password", name, key)

    def delete(self, name: str) -> None:
        self._call("delete_password", name)

    def _call(self, function: str, *arguments: str) -> Any:
        try:
            return getattr(self._package, function)(SERVICE, *arguments)
        except (self._package.errors.KeyringError, RuntimeError, OSError) as error:
            raise KeyringFailed(f"keyring: {type(error).__name__}") from None


def find_system_keyring() -> SystemKeyring | None:
    """Return the keyring of this machine, if there is one."""
    try:
        import keyring  # pyright: ignore[reportMissingImports]  # an optional package, and not one of development
    except ImportError:
        pass
    else:
        package: Any = keyring
        if package.get_keyring().priority >= 1:  # below 1: none, or a file without encryption
            return PackageKeyring(package)
    return SecretToolKeyring() if shutil.which(KEYRING_PROGRAM) else None


class KeyRecord(msgspec.Struct, frozen=True):
    """The content of one file: where the key is, and the key itself unless the keyring has it."""

    place: KeyPlace
    key: str = ""

    def __repr__(self) -> str:
        return f"KeyRecord(place={self.place!r})"


class StoredKeys(Mapping[str, str]):
    """Stored keys by the names of the variables whose place they take."""

    def __init__(self, folder: Path, command: str = "vaka login") -> None:
        self.folder, self._command = folder, command

    def __getitem__(self, name: str) -> str:
        """Return a key. Raises ``KeyError``, and ``AuthenticationFailed`` when it cannot be read."""
        record = self._read_record(name)
        if record is None:
            raise KeyError(name)
        if record.place == "file":
            return record.key
        keyring, reason = find_system_keyring(), "there is none on this machine now"
        if keyring is not None:
            try:
                if key := keyring.read(name):
                    return key
                reason = "it has no such key"
            except KeyringFailed as error:
                reason = str(error)
        raise AuthenticationFailed(
            f"{name} was stored in the system keyring, but cannot be read ({reason}); unlock the keyring, or run "
            f"`{self._command}` again"
        )

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.isidentifier() and self._file_of(name).is_file()

    def __iter__(self) -> Iterator[str]:
        names: list[str] = []
        with suppress(OSError):
            names = sorted(file.stem for file in self.folder.glob("*.json"))
        return iter(names)

    def __len__(self) -> int:
        return len(list(iter(self)))

    def place_of(self, name: str) -> str:
        """Return where a key is, as a text for people."""
        record = self._read_record(name)
        return str(self._file_of(name)) if record is not None and record.place == "file" else KEYRING_PLACE

    def keys_in_files(self) -> list[str]:
        """Return the keys that are in files, for redaction."""
        records: list[KeyRecord | None] = []
        for name in self:
            with suppress(ConfigError):
                records.append(self._read_record(name))
        return [record.key for record in records if record is not None and record.key]

    def add(self, name: str, key: str) -> str:
        """Store a key: in the keyring, else in a file; return why the keyring does not have it, ``""`` when it has.

        Raises ``ConfigError``.
        """
        keyring = find_system_keyring()
        problem = "" if keyring is not None else "there is no system keyring"
        if keyring is not None:
            try:
                keyring.write(name, key)
                if keyring.read(name) != key:
                    problem = "the system keyring did not keep it"
            except KeyringFailed as error:
                problem = str(error)
        self._write_record(name, KeyRecord("file", key) if problem else KeyRecord("keyring"))
        return problem

    def remove(self, name: str) -> bool:
        """Remove a key; return whether there was one. Raises ``ConfigError``."""
        file = self._file_of(name)
        if name not in self:
            return False
        record = self._read_record(name)
        keyring = find_system_keyring() if record is not None and record.place == "keyring" else None
        try:
            if keyring is not None and keyring.read(name):
                keyring.delete(name)
            file.unlink(missing_ok=True)
        except KeyringFailed as error:
            raise ConfigError(f"{name} cannot be removed from the system keyring: {error}") from None
        except OSError as error:
            raise ConfigError(f"{file}: cannot be removed: {error.strerror or error}") from error
        return True

    def _file_of(self, name: str) -> Path:
        return self.folder / f"{name}.json"

    def _read_record(self, name: str) -> KeyRecord | None:
        if not name.isidentifier():
            return None
        file = self._file_of(name)
        try:
            if os.name == "posix" and stat.S_IMODE(file.stat().st_mode) & 0o077:
                raise ConfigError(f"{file}: has a key and other users can read it; run chmod 600 on it")
            return msgspec.json.decode(file.read_bytes(), type=KeyRecord)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise ConfigError(f"{file}: cannot be read: {error.strerror or error}") from error
        except msgspec.MsgspecError:
            raise ConfigError(f"{file}: is damaged; run `{self._command}` again") from None

    def _write_record(self, name: str, record: KeyRecord) -> None:
        file = self._file_of(name)
        try:
            replace_file(file, msgspec.json.encode(record), keep_mode=False)  # a new file is its owner's alone
        except OSError as error:
            raise ConfigError(f"{file}: cannot be written: {error.strerror or error}") from error


class KeySource(NamedTuple):
    """The variable whose value is the key, and the mapping that has it."""

    variable: str
    values: Mapping[str, str]

    @property
    def place(self) -> str:
        """Where the key is if it was stored, ``""`` if the variable of the process is set."""
        return self.values.place_of(self.variable) if isinstance(self.values, StoredKeys) else ""

    def read_key(self) -> str:
        return self.values[self.variable].strip()


def find_key(environ: Mapping[str, str], variables: tuple[str, ...]) -> KeySource | None:
    """Return where the key of one of the variables is; every variable that is set wins over stored keys."""
    layers = environ.maps if isinstance(environ, ChainMap) else [environ]
    for values in layers:
        for name in variables:
            if name in values and (isinstance(values, StoredKeys) or values[name].strip()):
                return KeySource(name, values)
    return None


def stored_keys_of(environ: Mapping[str, str]) -> StoredKeys:
    """Return the stored keys of the user whose environment this is; none without a home directory."""
    try:
        home = Path.home()
    except RuntimeError:
        home = Path(os.devnull)
    return StoredKeys(keys_folder(environ, home))


def key_environment() -> Mapping[str, str]:
    """Return the variables of this process, and behind them the stored keys."""
    return ChainMap(os.environ, stored_keys_of(os.environ))  # type: ignore[arg-type]  # neither is written to
