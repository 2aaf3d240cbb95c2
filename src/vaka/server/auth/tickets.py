"""Credentials that the server issues: tickets of WebSockets, one-time links to the console, and its login.

Each is ``<kind>_<id>_<secret>`` and stored by its id with a digest of the secret, so that all processes of a server and
a later one accept it. The id begins with the time of expiry: expired ones come first in the store and are removed.
"""

import asyncio
import re
import secrets
from collections import deque
from typing import Literal, TypeAlias

import msgspec

from vaka.core.ports.env import Clock
from vaka.core.ports.values import KeyValueStore
from vaka.core.types.errors import Corrupt
from vaka.server.auth.errors import CredentialRefused
from vaka.server.auth.pepper import Pepper
from vaka.server.auth.read_cache import ReadCache
from vaka.server.kit.principal import Principal

TicketKind: TypeAlias = Literal["vkt", "vkl", "vks"]
"""A ticket of a WebSocket, a link to the console, a login (session) of the console."""

TICKET_SECONDS = 30
LINK_SECONDS = 3600
LOGIN_SECONDS = 7 * 24 * 3600
MAX_PURGED = 8
"""Expired entries that are removed when a new one is stored."""

_PREFIX = "server/tickets/"
_USED = "/used"
"""The end of the name of the value that says that an entry was redeemed."""
_FORMAT = re.compile(r"(vk[tls])_([0-9a-f]{16})_([A-Za-z0-9_-]{43})", re.ASCII)
_WHAT = {"vkt": "ticket", "vkl": "link to the console", "vks": "console login"}
_REMEDY = {
    "vkt": "ask for a new one: POST /api/v1/ws-tickets",
    "vkl": "`vaka keys link` prints a new one",
    "vks": "open the link that `vaka keys link` prints",
}


class _Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A stored ticket, link or login."""

    digest: str
    principal: Principal
    expires: float
    """Seconds since 1970."""
    origin: str = ""


class Tickets:
    """Issues and redeems tickets, links and logins."""

    def __init__(self, values: KeyValueStore, pepper: Pepper, clock: Clock) -> None:
        """``values`` is the key-value store of the default namespace."""
        self._values = values
        self._pepper = pepper
        self._clock = clock
        self._logins = ReadCache(self._read, clock)
        self._names: dict[str, deque[str]] = {}
        """The names of the stored entries of each kind that this process knows, the first to expire first."""

    async def issue_ticket(self, principal: Principal, origin: str) -> str:
        """Return a ticket for one WebSocket of a page of this origin, valid for ``TICKET_SECONDS``."""
        return await self._issue("vkt", principal, TICKET_SECONDS, origin)

    async def redeem_ticket(self, text: str, origin: str) -> Principal:
        """Return the principal of a ticket; it is used up, also by a wrong origin. Raises ``CredentialRefused``."""
        entry = await self._redeem("vkt", text)
        if entry.origin != origin:
            raise CredentialRefused("the ticket was issued to a page of another origin")
        return entry.principal

    async def issue_link(self, principal: Principal) -> str:
        """Return the token of a link that logs one browser in, valid for ``LINK_SECONDS``."""
        return await self._issue("vkl", principal, LINK_SECONDS)

    async def redeem_link(self, text: str) -> str:
        """Return the login that the token of a link is exchanged for, once. Raises ``CredentialRefused``."""
        entry = await self._redeem("vkl", text)
        return await self._issue("vks", entry.principal, LOGIN_SECONDS)

    async def find_login(self, text: str) -> Principal:
        """Return the principal of a console login. Raises ``CredentialRefused``."""
        id, secret = _parse("vks", text)
        return self._check("vks", await self._logins.get(f"vks/{id}"), secret).principal

    async def end_login(self, text: str) -> None:
        """End a console login, if it is valid."""
        try:
            await self.find_login(text)
        except CredentialRefused:
            return
        name = f"vks/{_parse('vks', text)[0]}"
        await self._values.put(_PREFIX + name, None)
        self._logins.forget(name)

    async def _issue(self, kind: TicketKind, principal: Principal, seconds: float, origin: str = "") -> str:
        expires, secret = self._clock.time() + seconds, secrets.token_urlsafe(32)
        id = _format_expiry(expires) + secrets.token_hex(4)
        entry = _Entry(digest=self._pepper.digest(secret), principal=principal, expires=expires, origin=origin)
        name, expired = f"{_PREFIX}{kind}/{id}", await self._take_expired(kind)
        writes = [self._values.put(name, msgspec.to_builtins(entry)), *(self._values.put(old, None) for old in expired)]
        await asyncio.gather(*writes)  # a store may commit them together
        self._names[kind].extend((name, name + _USED))
        return f"{kind}_{id}_{secret}"

    async def _redeem(self, kind: TicketKind, text: str) -> _Entry:
        """Return an entry to the first caller that asks for it, of all processes."""
        id, secret = _parse(kind, text)
        name = f"{kind}/{id}"
        entry = self._check(kind, await self._read(name), secret)
        claim = secrets.token_hex(16)
        if await self._values.put_if_absent(f"{_PREFIX}{name}{_USED}", claim) != claim:
            raise CredentialRefused(f"the {_WHAT[kind]} has been used; {_REMEDY[kind]}")
        return entry

    def _check(self, kind: TicketKind, entry: _Entry | None, secret: str) -> _Entry:
        if entry is None or not self._pepper.matches(secret, entry.digest):
            raise CredentialRefused(f"the {_WHAT[kind]} is not valid; {_REMEDY[kind]}")
        if entry.expires <= self._clock.time():
            raise CredentialRefused(f"the {_WHAT[kind]} has expired; {_REMEDY[kind]}")
        return entry

    async def _read(self, name: str) -> _Entry | None:
        value = await self._values.get(_PREFIX + name)
        if value is None:
            return None
        try:
            return msgspec.convert(value, _Entry)
        except msgspec.ValidationError as error:
            raise Corrupt(f"the stored value of {_PREFIX + name!r} is damaged: {error}") from error

    async def _take_expired(self, kind: TicketKind) -> list[str]:
        """Return a few names of expired entries, each once; the first call also finds entries of other processes."""
        start = f"{_PREFIX}{kind}/"
        if kind not in self._names:
            self._names[kind] = deque(await self._values.keys(start))
        names = self._names[kind]
        end = start + _format_expiry(self._clock.time())
        expired = list[str]()
        while names and names[0] < end and len(expired) < MAX_PURGED:
            expired.append(names.popleft())
        return expired


def login_cookie(name: str, login: str, *, secure: bool) -> str:
    """Return the value of ``Set-Cookie`` for a login; an empty login removes the cookie."""
    age = LOGIN_SECONDS if login else 0
    parts = [f"{name}={login}", "Path=/", f"Max-Age={age}", "HttpOnly", "SameSite=Strict"]
    return "; ".join([*parts, "Secure"] if secure else parts)


def _format_expiry(seconds: float) -> str:
    """Return a time as hexadecimal digits that sort by it."""
    return f"{int(seconds):08x}"


def _parse(kind: TicketKind, text: str) -> tuple[str, str]:
    """Return the id and the secret. Raises ``CredentialRefused``."""
    match = _FORMAT.fullmatch(text)
    if match is None or match[1] != kind:
        raise CredentialRefused(f"the {_WHAT[kind]} is cut off or is not one; {_REMEDY[kind]}")
    return match[2], match[3]
