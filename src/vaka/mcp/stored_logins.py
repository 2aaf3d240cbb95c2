"""The logins of the user at MCP servers, stored like the keys of ``vaka login``."""

import hashlib
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from vaka.core.ports.feature_middleware import KeyStore
from vaka.core.session.redaction import MIN_SECRET_LENGTH
from vaka.core.types.errors import ConfigError
from vaka.mcp.definition import McpServer
from vaka.mcp.logins import LoginState, McpLogin, uses_login

if sys.platform != "win32":
    import fcntl


LOCK_PAUSE_SECONDS = 0.05


class StoredLogins:
    """Logins by the URL of the server: in the system keyring, or in files that only their owner can read."""

    def __init__(self, keys: KeyStore, on_secret: Callable[[str], None] | None = None) -> None:
        self._folder, self._keys = keys.folder, keys
        self._on_secret = on_secret
        self.secrets: set[str] = set()

    def read(self, url: str) -> McpLogin | None:
        """Return the login for exactly this URL. Raises ``ConfigError`` and ``AuthenticationFailed``."""
        text = self._keys.get(_name_of(url))
        if text is None:
            return None
        try:
            login = msgspec.json.decode(text, type=McpLogin)
        except msgspec.MsgspecError:
            raise ConfigError("the stored login is damaged; run `vaka mcp login` again") from None
        return login if login.url == url else None

    def write(self, login: McpLogin) -> str:
        """Store a login, and return where it is."""
        name = _name_of(login.url)
        self._keys.add(name, msgspec.json.encode(login).decode())
        self.note_needed(login.url, needed=False)
        return self._keys.place_of(name)

    def remove(self, url: str) -> bool:
        """Remove a login; return whether there was one. A refresh that is under way is awaited, so that it stays so."""
        name = _name_of(url)
        self.note_needed(url, needed=False)
        if name not in self._keys:
            return False
        while (release := self.try_lock(url)) is None:
            time.sleep(LOCK_PAUSE_SECONDS)
        try:
            return self._keys.remove(name)
        finally:
            release()

    def try_lock(self, url: str) -> Callable[[], None] | None:
        """Return what releases the lock on a login, ``None`` while it is held elsewhere."""
        if sys.platform == "win32":
            return lambda: None
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self._folder / f"{_name_of(url)}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigError(f"{self._folder}: cannot be written: {error.strerror or error}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        return lambda: os.close(descriptor)

    def note_needed(self, url: str, *, needed: bool) -> None:
        """Remember whether a server refused what there is; a folder that cannot be written is not a reason to fail."""
        marker = self._marker(_name_of(url))
        with suppress(OSError):
            if needed:
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                marker.touch(mode=0o600)
            else:
                marker.unlink(missing_ok=True)

    def state_of(self, server: McpServer) -> LoginState:
        """Return whether there is a login for a server, or it needs a login as far as is known without a connection."""
        if not uses_login(server):
            return ""
        name = _name_of(server.url)
        if self._marker(name).exists() or (server.oauth and name not in self._keys):
            return "needed"
        return "stored" if name in self._keys else ""

    def _marker(self, name: str) -> Path:
        return self._folder / f"{name}.needed"

    def register(self, login: McpLogin) -> None:
        """Take the tokens of a login for redaction."""
        new = {value for value in login.secrets if len(value) >= MIN_SECRET_LENGTH} - self.secrets
        self.secrets |= new
        if self._on_secret is not None:
            for value in new:
                self._on_secret(value)


def _name_of(url: str) -> str:
    return f"mcp_{hashlib.sha256(url.encode(errors='surrogatepass')).hexdigest()}"


def open_stored_logins(
    open_keys: Callable[[str, str], KeyStore], on_secret: Callable[[str], None] | None = None
) -> StoredLogins:
    """Return the logins of the user, whose secrets ``open_keys`` opens."""
    return StoredLogins(open_keys("mcp", "vaka mcp login"), on_secret)
