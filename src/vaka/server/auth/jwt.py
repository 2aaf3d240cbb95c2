"""JSON web tokens of an identity provider: which are accepted, and the principal of each."""

import asyncio
import hashlib
import logging
import math
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args
from urllib.parse import urlsplit

import jwt
import msgspec

from vaka.core.ports.env import Clock
from vaka.core.ports.net import NetRequest, Network
from vaka.core.types.errors import ConfigError, InvalidInput, NetworkError, Unavailable
from vaka.server.auth.errors import CredentialRefused
from vaka.server.kit.principal import JWT_OWNER_PREFIX, SCOPES, SERVER_SCOPES, Principal, check_tenant

JwtAlgorithm: TypeAlias = Literal[
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "HS256", "HS384", "HS512"
]
ASYMMETRIC_ALGORITHMS: tuple[JwtAlgorithm, ...] = tuple(
    name for name in get_args(JwtAlgorithm) if not name.startswith("HS")
)
"""The algorithms with a public key, which cannot sign."""

LEEWAY_SECONDS = 30
KEYS_SECONDS = 600.0
"""The age at which a key set is read again."""
REFRESH_SECONDS = 30.0
"""The shortest time between two reads of a key set, however many tokens name a key that is not in it."""
RETRY_SECONDS = 2.0
"""The shortest time between two reads of a key set that was never read: until then no token is accepted."""
FETCH_SECONDS = 5.0
MAX_KEY_SET_BYTES = 256 * 1024
MAX_CLAIM_LENGTH = 255

_log = logging.getLogger(__name__)
_ES_CURVES = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}
_KEY_TYPES = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}


class JwtSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Conditions on accepted tokens. Raises ``ConfigError`` if they are not valid."""

    issuer: str
    """``iss`` of the tokens."""
    audience: str
    """``aud`` of the tokens, or one of several."""
    jwks: str = ""
    """The key set: the path of a file, or an address that begins with ``https://`` (``http://`` on this machine)."""
    algorithms: tuple[JwtAlgorithm, ...] = ()
    """Empty: HS256 with a secret and without a key set, else all that have public keys."""
    secret: str = ""
    """The secret shared with the issuer, for HS256 (32 bytes), HS384 (48) or HS512 (64), which need it."""
    tenant_claim: str = ""
    """The claim with the tenant, which every token must then have; empty: all belong to the default namespace."""
    scope_claim: str = "scope"
    """The claim with the scopes: a text with spaces between them, or a list."""
    own_sessions_only: bool = True
    """Whether a caller sees only sessions of its own ``sub``."""
    allow_operator: bool = False
    """Whether the claim with the scopes can give the scopes ``operator`` and ``debug``, which concern all tenants."""

    def __post_init__(self) -> None:
        symmetric = [name for name in self.accepted_algorithms if name.startswith("HS")]
        if not self.issuer or not self.audience:
            raise ConfigError("the settings of JWTs need an issuer and an audience")
        if bool(symmetric) != bool(self.secret):
            text = f"{symmetric[0]} needs a secret" if symmetric else "a secret needs HS256, HS384 or HS512"
            raise ConfigError(f"the settings of JWTs are not complete: among the algorithms, {text}")
        least = max((int(name[2:]) // 8 for name in symmetric), default=0)
        if len(self.secret.encode()) < least:
            raise ConfigError(f"the secret of JWTs is too short: its algorithm needs {least} bytes")
        if len(symmetric) < len(self.accepted_algorithms) and not self.jwks:
            raise ConfigError("the settings of JWTs need a key set (jwks: a file or an https:// address), or a secret")
        _check_address(self.jwks)

    @property
    def accepted_algorithms(self) -> tuple[JwtAlgorithm, ...]:
        if self.algorithms:
            return self.algorithms
        return ("HS256",) if self.secret and not self.jwks else ASYMMETRIC_ALGORITHMS


class JwtVerifier:
    """Checks tokens with the keys of their issuer, which are read when they are needed."""

    def __init__(self, settings: JwtSettings, clock: Clock, network: Network | None = None) -> None:
        """``network`` fetches a key set that is an address; without it such settings are a ``ConfigError``."""
        self._settings, self._clock = settings, clock
        self._keys = KeySetSource(settings.jwks, clock, network)

    async def verify(self, token: str) -> Principal:
        """Return the caller. Raises ``CredentialRefused``, and ``Unavailable`` while there are no keys."""
        try:
            header = jwt.get_unverified_header(token)
            algorithm = header.get("alg")
            if algorithm not in self._settings.accepted_algorithms:
                raise CredentialRefused("the token is signed with an algorithm that this server does not accept")
            claims = jwt.decode(
                token,
                await self._find_key(algorithm, header.get("kid")),
                algorithms=[algorithm],
                audience=self._settings.audience,
                issuer=self._settings.issuer,
                leeway=LEEWAY_SECONDS,
                options={"require": ["exp", "iss", "aud", "sub"], "enforce_minimum_key_length": True},
            )
            return self._principal_of(claims)
        except (jwt.PyJWTError, ValueError, OverflowError, RecursionError) as error:
            raise CredentialRefused(f"the token is not valid: {error}") from None

    async def _find_key(self, algorithm: str, kid: str | None) -> Any:
        """Return the shared secret or a public key, by the algorithm: one never serves in place of the other."""
        if algorithm.startswith("HS"):
            return self._settings.secret
        return await self._keys.find(algorithm, kid)

    def _principal_of(self, claims: Mapping[str, Any]) -> Principal:
        subject, owner_prefix = _read_text(claims, "sub"), owner_prefix_of(self._settings.issuer)
        tenant = _read_tenant(claims, self._settings.tenant_claim) if self._settings.tenant_claim else ""
        scopes = claims.get(self._settings.scope_claim) or ""
        try:
            words = scopes.split() if isinstance(scopes, str) else msgspec.convert(scopes, list[str])
        except msgspec.ValidationError:
            name = self._settings.scope_claim
            raise CredentialRefused(f"the claim {name!r} is neither a text nor a list of texts") from None
        accepted = {scope for scope in SCOPES if scope not in SERVER_SCOPES or self._settings.allow_operator}
        id = f"{owner_prefix}{subject}"
        return Principal(
            id=id,
            namespace=tenant,
            scopes=frozenset(words).intersection(accepted),
            key=id,
            own_sessions_only=self._settings.own_sessions_only,
            expires=float(claims["exp"]) + LEEWAY_SECONDS,
        )


class _KeySetDocument(msgspec.Struct, frozen=True):
    keys: list[dict[str, Any]]


class KeySetSource:
    """The public keys of an issuer, read from a file or an address and kept for ``KEYS_SECONDS``."""

    def __init__(self, place: str, clock: Clock, network: Network | None = None) -> None:
        if _is_address(place) and network is None:
            raise ConfigError(f"the key set {place} cannot be fetched: this server has no network")
        self._place = place
        self._clock = clock
        self._network = network
        self._keys: Sequence[Mapping[str, Any]] | None = None
        self._read_at = -math.inf
        self._lock = asyncio.Lock()

    async def find(self, algorithm: str, kid: str | None) -> jwt.PyJWK:
        """Return the one key for an algorithm and an id. Raises ``CredentialRefused`` and ``Unavailable``."""
        if self._keys is None or self._age() >= KEYS_SECONDS:
            await self._refresh()
        found = self._select(algorithm, kid)
        if not found:
            await self._refresh()
            found = self._select(algorithm, kid)
        if len(found) != 1:
            count = "several keys" if found else "no key"
            raise CredentialRefused(f"the issuer of the token has {count} for its algorithm and key id")
        return jwt.PyJWK(dict(found[0]), algorithm)

    def _age(self) -> float:
        return self._clock.monotonic() - self._read_at

    def _select(self, algorithm: str, kid: str | None) -> list[Mapping[str, Any]]:
        return [key for key in self._keys or () if _fits(key, algorithm) and (kid is None or key.get("kid") == kid)]

    async def _refresh(self) -> None:
        """Read the keys unless that was tried a short time ago; earlier keys stay if it fails."""
        async with self._lock:
            if self._age() >= (RETRY_SECONDS if self._keys is None else REFRESH_SECONDS):
                self._read_at = self._clock.monotonic()
                try:
                    self._keys = _parse_key_set(await self._read())
                except (OSError, NetworkError, InvalidInput) as error:
                    _log.warning("the key set %s cannot be read: %s", self._place, error)
        if self._keys is None:
            raise Unavailable("the keys of the token's issuer cannot be read now")

    async def _read(self) -> bytes:
        if self._network is None or not _is_address(self._place):
            return await asyncio.to_thread(Path(self._place).read_bytes)
        request = NetRequest(url=self._place, timeout=FETCH_SECONDS, max_bytes=MAX_KEY_SET_BYTES, redirects=0)
        answer = await self._network.send(request)
        if answer.status != HTTPStatus.OK:
            raise InvalidInput(f"the answer has the status {answer.status}")
        return answer.body


def _parse_key_set(data: bytes) -> Sequence[Mapping[str, Any]]:
    """Return the keys of a set. Raises ``InvalidInput``."""
    try:
        return msgspec.json.decode(data, type=_KeySetDocument).keys
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InvalidInput(f"it is not a key set: {error}") from None


def _fits(key: Mapping[str, Any], algorithm: str) -> bool:
    """Return whether a key is a public one for an algorithm; a secret key (``oct``) never is."""
    curve = _ES_CURVES.get(algorithm) or ("Ed25519" if algorithm == "EdDSA" else None)
    return (
        key.get("kty") == _KEY_TYPES[algorithm[:2]]
        and key.get("alg", algorithm) == algorithm
        and key.get("use", "sig") == "sig"
        and (curve is None or key.get("crv") == curve)
    )


def _read_text(claims: Mapping[str, Any], name: str) -> str:
    value = claims.get(name)
    if value is None:
        raise CredentialRefused(f"the token has no claim {name!r}")
    if not isinstance(value, str) or not 0 < len(value) <= MAX_CLAIM_LENGTH or not value.isprintable():
        raise CredentialRefused(f"the claim {name!r} is not a text of 1 to {MAX_CLAIM_LENGTH} printable characters")
    return value


def _read_tenant(claims: Mapping[str, Any], name: str) -> str:
    try:
        return check_tenant(_read_text(claims, name))
    except InvalidInput as error:
        raise CredentialRefused(f"the claim {name!r} cannot be used: {error}") from None


def owner_prefix_of(issuer: str) -> str:
    """Return the beginning of the ids of an issuer's callers: subjects of two issuers, and keys, never have one id."""
    return f"{JWT_OWNER_PREFIX}{hashlib.sha256(issuer.encode()).hexdigest()[:16]}:"


def _is_address(place: str) -> bool:
    return place.startswith(("https://", "http://"))


def _check_address(place: str) -> None:
    """Refuse to read keys over a connection that others can change. Raises ``ConfigError``."""
    if place.startswith("http://") and urlsplit(place).hostname not in ("localhost", "127.0.0.1", "::1"):
        raise ConfigError(f"the key set {place} is not safe over http; expected https")
