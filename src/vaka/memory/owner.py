"""The owner of the memory that a turn uses: the owner of its session."""

import hashlib
import string
from typing import Protocol, TypeVar

from vaka.core.loop.context import Turn
from vaka.core.types.control import SessionOpened
from vaka.core.types.errors import ConfigError

_OWNER_KEY = "memory.owner"
_PLAIN = frozenset(string.ascii_lowercase + string.digits + "-_.@+")
_MAX_NAME = 200
_Memory_co = TypeVar("_Memory_co", covariant=True)


class OpensMemory(Protocol[_Memory_co]):
    """A middleware that opens a memory for each turn."""

    async def open(self, turn: Turn) -> _Memory_co:
        """Return the memory of a turn. Raises ``ConfigError`` when the session does not name whose it is."""
        ...


async def find_owner(turn: Turn) -> str:
    """Return the owner of the session of a turn, ``""`` for none. It is looked up once in a turn."""
    owner: str | None = turn.values.get(_OWNER_KEY)
    if owner is None:
        owner = turn.values[_OWNER_KEY] = await _look_up_owner(turn)
    return owner


async def _look_up_owner(turn: Turn) -> str:
    if turn.state.seq == 0:  # the first event has the owner, and waits for the first write
        return next((body.owner for _, body in turn.log.deferred if isinstance(body, SessionOpened)), "")
    row = await turn.log.store.sessions.find(turn.session)
    return row.owner if row is not None else ""


async def require_owner(turn: Turn, memory: str, otherwise: str) -> str:
    """Return the owner of the session of a turn. Raises ``ConfigError``: memory is never shared by accident."""
    owner = await find_owner(turn)
    if not owner:
        raise ConfigError(
            f"{memory} belongs to the owner of a session, and session {turn.session!r} has none; open it "
            f"with owner=…, set one with session.update(owner=…), or {otherwise}"
        )
    return owner


def encode_name(name: str) -> str:
    """Return a name as the name of one folder: different names stay different, also where case does not matter."""
    encoded = "".join(letter if letter in _PLAIN else _escape(letter) for letter in name)
    if encoded.startswith("."):
        encoded = f"%2E{encoded[1:]}"
    if not encoded or len(encoded) > _MAX_NAME:
        return f"%%{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()}"
    return encoded


def _escape(letter: str) -> str:
    return "".join(f"%{byte:02X}" for byte in letter.encode("utf-8", "surrogatepass"))
