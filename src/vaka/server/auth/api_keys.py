"""API keys: ``ak_<id>_<secret>``, of which the store has the id and a digest of the secret."""

import re
import secrets
import string
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Literal, TypeAlias

import msgspec

from vaka.core.ports.env import Clock, format_timestamp
from vaka.core.ports.values import KeyValueStore
from vaka.core.types.errors import Corrupt, InvalidInput, NotFound, StoreError
from vaka.core.types.ids import JSON
from vaka.server.auth.errors import CredentialRefused
from vaka.server.auth.pepper import Pepper, load_pepper
from vaka.server.auth.read_cache import ReadCache
from vaka.server.kit.principal import JWT_OWNER_PREFIX, SCOPES, Principal, check_tenant

KEYS_PREFIX = "server/keys/"
USAGE_PREFIX = "server/key-usage/"
DEFAULT_SCOPES = ("runs:read", "runs:write")
USAGE_SECONDS = 60.0
"""Seconds between two writes of the time at which a key was used last."""
MAX_NAME_LENGTH = 128

_ID_LENGTH = 8
_ID_CHARS = string.ascii_lowercase + string.digits
_FORMAT = re.compile(r"ak_([a-z0-9]{8})_([A-Za-z0-9_-]{43})", re.ASCII)
_ID_FORMAT = re.compile(r"(?:ak_)?([a-z0-9]{8})(?:_[A-Za-z0-9_-]{43})?", re.ASCII)
_UNKNOWN = "the API key is not one of this server; `vaka keys create` with the server's --store makes one"
_NO_DIGEST = "0" * 64

KeyStatus: TypeAlias = Literal["active", "expired", "revoked", "other pepper"]


class ApiKey(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A stored key, without its secret. Times are RFC 3339 in UTC, empty for never."""

    id: str
    digest: str
    """HMAC-SHA256 of the secret with the server's pepper."""
    pepper: str = ""
    """The fingerprint of that pepper."""
    name: str = ""
    namespace: str = ""
    """The tenant of the caller."""
    owner: str = ""
    """The person or program that the key stands for; empty: the key itself."""
    scopes: tuple[str, ...] = DEFAULT_SCOPES
    own_sessions_only: bool = False
    requests_per_minute: int = 0
    created: str = ""
    expires: str = ""
    revoked: str = ""
    rotated_lifetime: float | None = None
    """Seconds that it was to live before a rotation let it expire earlier, 0 for ever; ``None``: it was not rotated."""

    @property
    def principal(self) -> Principal:
        return Principal(
            id=self.owner or f"ak_{self.id}",
            namespace=self.namespace,
            scopes=frozenset(self.scopes),
            key=f"ak_{self.id}",
            own_sessions_only=self.own_sessions_only,
            requests_per_minute=self.requests_per_minute,
        )


class KeyOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The name, rights and limits of a new key."""

    name: str = ""
    namespace: str = ""
    owner: str = ""
    scopes: tuple[str, ...] = DEFAULT_SCOPES
    own_sessions_only: bool = False
    requests_per_minute: int = 0
    lifetime: float | None = None
    """Seconds until it expires; ``None``: never."""


class ApiKeys:
    """Creates, checks and revokes the keys of one server.

    A check costs one read of the store; a key that was read in the last ``CACHE_SECONDS`` costs none.
    """

    def __init__(self, values: KeyValueStore, pepper: Pepper, clock: Clock) -> None:
        """``values`` is the key-value store of the default namespace."""
        self._values = values
        self._pepper = pepper
        self._clock = clock
        self._cache = ReadCache(self._read, clock)
        self._used: dict[str, float] = {}
        """The monotonic time at which the use of a key was written."""

    async def create(self, options: KeyOptions) -> tuple[ApiKey, str]:
        """Store a new key; return it, and its text, which is not stored. Raises ``InvalidInput``."""
        _check_options(options)
        secret, now = secrets.token_urlsafe(32), self._clock.time()
        expires = "" if options.lifetime is None else format_timestamp(now + options.lifetime)
        while True:
            id = "".join(secrets.choice(_ID_CHARS) for _ in range(_ID_LENGTH))
            key = ApiKey(
                id=id,
                digest=self._pepper.digest(secret),
                pepper=self._pepper.fingerprint,
                name=options.name,
                namespace=options.namespace,
                owner=options.owner,
                scopes=tuple(dict.fromkeys(options.scopes)),
                own_sessions_only=options.own_sessions_only,
                requests_per_minute=options.requests_per_minute,
                created=format_timestamp(now),
                expires=expires,
            )
            stored = await self._values.put_if_absent(KEYS_PREFIX + id, msgspec.to_builtins(key))
            if _convert_key(id, stored).digest == key.digest:
                return key, f"ak_{id}_{secret}"

    async def verify(self, text: str) -> ApiKey:
        """Return the key that a text is, and record its use. Raises ``CredentialRefused``."""
        match = _FORMAT.fullmatch(text)
        if match is None:
            raise CredentialRefused("the API key is cut off or is not one: expected ak_, 8 characters, _ and 43 more")
        id, secret = match.groups()
        key = await self._cache.get(id)
        if not self._pepper.matches(secret, key.digest if key is not None else _NO_DIGEST) or key is None:
            raise CredentialRefused(_UNKNOWN)
        self._check_usable(key)
        await self._record_use(id)
        return key

    async def is_active(self, id: str) -> bool:
        """Return whether a key is neither unknown nor revoked nor expired."""
        key = await self._cache.get(id)
        return key is not None and self.status_of(key) == "active"

    async def list(self) -> Sequence[ApiKey]:
        """Return all keys, the oldest first."""
        names = await self._values.keys(KEYS_PREFIX)
        keys = [await self._read(name.removeprefix(KEYS_PREFIX)) for name in names]
        return sorted((key for key in keys if key is not None), key=lambda key: (key.created, key.id))

    async def last_used(self, id: str) -> str:
        """Return when a key was used last, to within ``USAGE_SECONDS``; empty if never."""
        return str(await self._values.get(USAGE_PREFIX + id) or "")

    def status_of(self, key: ApiKey) -> KeyStatus:
        if key.revoked:
            return "revoked"
        if key.expires and key.expires <= format_timestamp(self._clock.time()):
            return "expired"
        return "active" if key.pepper == self._pepper.fingerprint else "other pepper"

    async def revoke(self, id: str) -> ApiKey:
        """Revoke a key. The time of an earlier revocation stays. Raises ``NotFound``."""
        key = await self.find(id)
        if key.revoked:
            return key
        return await self._write(msgspec.structs.replace(key, revoked=format_timestamp(self._clock.time())))

    async def rotate(self, id: str, overlap: float) -> tuple[ApiKey, str, ApiKey]:
        """Create a key like another one, which expires after ``overlap`` seconds; return both, and the new text.

        The new key has the lifetime that the old one had. Raises ``NotFound``, and ``InvalidInput`` for a key that is
        not active.
        """
        old = await self.find(id)
        status, lifetime = self.status_of(old), _lifetime_of(old)
        if status != "active":
            raise InvalidInput(f"the key {old.id} is {status}; create a new one")
        new, text = await self.create(
            KeyOptions(
                name=old.name,
                namespace=old.namespace,
                owner=old.owner or f"ak_{old.id}",
                scopes=tuple(scope for scope in old.scopes if scope in SCOPES),
                own_sessions_only=old.own_sessions_only,
                requests_per_minute=old.requests_per_minute,
                lifetime=lifetime,
            )
        )
        end = format_timestamp(self._clock.time() + overlap)
        expires = min(old.expires, end) if old.expires else end
        changed = msgspec.structs.replace(old, expires=expires, rotated_lifetime=lifetime or 0.0)
        return new, text, await self._write(changed)

    async def find(self, id: str) -> ApiKey:
        """Return the key with an id, which may be written with ``ak_`` or as the whole key. Raises ``NotFound``."""
        match = _ID_FORMAT.fullmatch(id)
        key = await self._read(match[1]) if match is not None else None
        if key is None:
            shown = match[1] if match is not None else id[:20]
            raise NotFound(f"there is no key {shown!r}; `vaka keys list` shows them")
        return key

    async def _read(self, id: str) -> ApiKey | None:
        value = await self._values.get(KEYS_PREFIX + id)
        return None if value is None else _convert_key(id, value)

    async def _write(self, key: ApiKey) -> ApiKey:
        await self._values.put(KEYS_PREFIX + key.id, msgspec.to_builtins(key))
        self._cache.forget(key.id)
        return key

    def _check_usable(self, key: ApiKey) -> None:
        """Refuse a key whose secret is right; the caller may know why."""
        status = self.status_of(key)
        if status == "revoked":
            raise CredentialRefused(f"the API key was revoked at {key.revoked}")
        if status == "expired":
            raise CredentialRefused(f"the API key expired at {key.expires}; `vaka keys create` makes a new one")

    async def _record_use(self, id: str) -> None:
        """Write the time of use apart from the key, so that this write cannot undo a revocation."""
        now = self._clock.monotonic()
        if id in self._used and now - self._used[id] < USAGE_SECONDS:
            return
        self._used[id] = now
        with suppress(StoreError):  # the time of the last use is information; the request does not depend on it
            await self._values.put(USAGE_PREFIX + id, format_timestamp(self._clock.time()))


async def open_api_keys(
    values: KeyValueStore, environ: Mapping[str, str], clock: Clock, *, to_list: bool = False
) -> ApiKeys:
    """Return the keys of a store, with the pepper of the environment or the stored one.

    ``to_list``: nothing is stored, so that keys can be listed where the store can only be read.
    """
    return ApiKeys(values, await load_pepper(values, environ, create=not to_list), clock)


def is_api_key(token: str) -> bool:
    """Return whether a token is meant as an API key, valid or not."""
    return token.startswith("ak_")


def _check_options(options: KeyOptions) -> None:
    unknown = [scope for scope in options.scopes if scope not in SCOPES]
    if unknown or not options.scopes:
        named = f"{unknown[0]!r} is not a scope" if unknown else "a key needs a scope"
        raise InvalidInput(f"{named}; expected of: {', '.join(SCOPES)}")
    check_tenant(options.namespace)
    if options.owner.startswith(JWT_OWNER_PREFIX):
        raise InvalidInput(
            f"the owner of a key cannot begin with {JWT_OWNER_PREFIX!r}: callers with a JWT are named so"
        )
    for what, text in (("name", options.name), ("owner", options.owner)):
        if len(text) > MAX_NAME_LENGTH or not text.isprintable():
            raise InvalidInput(f"the {what} of a key has at most {MAX_NAME_LENGTH} printable characters, not {text!r}")
    if options.requests_per_minute < 0 or (options.lifetime is not None and options.lifetime <= 0):
        raise InvalidInput("the rate limit and the lifetime of a key are positive numbers")


def _convert_key(id: str, value: JSON) -> ApiKey:
    try:
        return msgspec.convert(value, ApiKey)
    except msgspec.ValidationError as error:
        raise Corrupt(f"the stored key {id!r} is damaged: {error}") from error


def _lifetime_of(key: ApiKey) -> float | None:
    if key.rotated_lifetime is not None:
        return key.rotated_lifetime or None
    if not key.expires:
        return None
    return (_parse_time(key.expires) - _parse_time(key.created)).total_seconds()


def _parse_time(text: str) -> datetime:
    return datetime.fromisoformat(text)
