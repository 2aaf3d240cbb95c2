"""``CredentialAuthenticator``: from the credentials of a request to its principal."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager

from vaka.core.ports.env import Clock
from vaka.core.ports.net import Network
from vaka.core.ports.values import KeyValueStore
from vaka.server.auth.api_keys import ApiKeys, is_api_key
from vaka.server.auth.errors import CredentialRefused
from vaka.server.auth.jwt import JwtSettings, JwtVerifier
from vaka.server.auth.pepper import load_pepper
from vaka.server.auth.tickets import Tickets
from vaka.server.kit.guard import CONSOLE_HEADER, Credentials, Guard
from vaka.server.kit.principal import Principal
from vaka.server.kit.problems import Problem, not_found
from vaka.server.limits import FailedAttempts

MAX_TOKEN_LENGTH = 16 * 1024


class CredentialAuthenticator:
    """Accepts API keys and JWTs as bearer tokens or in ``x-api-key``, tickets, and the cookie of the console."""

    def __init__(
        self,
        keys: ApiKeys,
        tickets: Tickets,
        clock: Clock,
        *,
        jwt: JwtVerifier | None = None,
        anonymous: Principal | None = None,
    ) -> None:
        """``anonymous``: the principal of requests without credentials; ``None`` refuses them."""
        self.keys = keys
        self.tickets = tickets
        self._clock = clock
        self._failures = FailedAttempts(clock)
        self._jwt, self._anonymous = jwt, anonymous

    async def authenticate(self, credentials: Credentials) -> Principal:
        """Return the caller. Raises ``Problem``: 401, 403 for a request without the console's header, or 429."""
        if credentials.kind == "none" or not credentials.token:
            if self._anonymous is not None:
                return self._anonymous
            raise _unauthorized_problem(
                "this server needs a token: Authorization: Bearer ak_…; `vaka keys create` makes one"
            )
        with self._count_failures(credentials.address):
            return await self._identify(credentials)

    async def redeem_link(self, token: str, address: str) -> str:
        """Return the login that the token of a console link is exchanged for. Raises ``Problem``: 401 or 429."""
        with self._count_failures(address):
            return await self.tickets.redeem_link(token)

    @contextmanager
    def _count_failures(self, address: str) -> Generator[None]:
        """Limit wrong credentials only: clients with right credentials may share an address, for example of a proxy."""
        try:
            yield
        except CredentialRefused as refusal:
            self._failures.check(address)
            self._failures.record(address)
            raise _unauthorized_problem(str(refusal)) from None

    async def is_valid(self, principal: Principal) -> bool:
        """Return whether a JWT has not expired, and an API key has neither expired nor been revoked."""
        if principal.expires and principal.expires <= self._clock.time():
            return False
        return not is_api_key(principal.key) or await self.keys.is_active(principal.key.removeprefix("ak_"))

    async def _identify(self, credentials: Credentials) -> Principal:
        token = credentials.token
        if len(token) > MAX_TOKEN_LENGTH:
            raise CredentialRefused(f"the token has {len(token)} characters; at most {MAX_TOKEN_LENGTH} are accepted")
        if credentials.kind == "cookie":
            return await self._find_login(credentials)
        if credentials.kind == "ticket":
            return await self._redeem_ticket(credentials)
        if is_api_key(token) or self._jwt is None:
            return (await self.keys.verify(token)).principal
        return await self._jwt.verify(token)

    async def _find_login(self, credentials: Credentials) -> Principal:
        principal = await self.tickets.find_login(credentials.token)
        if credentials.changes and not credentials.console_header:
            raise Problem(
                403,
                "console_header_missing",
                f"a request with the cookie of the console that changes something needs the header {CONSOLE_HEADER}: 1",
            )
        return principal

    async def _redeem_ticket(self, credentials: Credentials) -> Principal:
        principal = await self.tickets.redeem_ticket(credentials.token, credentials.origin)
        if not await self.is_valid(principal):
            raise CredentialRefused("the API key that the ticket was issued for is not valid any more")
        return principal


async def open_authenticator(
    values: KeyValueStore,
    environ: Mapping[str, str],
    clock: Clock,
    *,
    jwt: JwtSettings | None = None,
    network: Network | None = None,
    anonymous: Principal | None = None,
) -> CredentialAuthenticator:
    """Return the authenticator of a server. ``values`` is the key-value store of the default namespace.

    ``network`` fetches the key set of ``jwt``, if that is an address.
    """
    pepper = await load_pepper(values, environ)
    verifier = JwtVerifier(jwt, clock, network) if jwt is not None else None
    keys, tickets = ApiKeys(values, pepper, clock), Tickets(values, pepper, clock)
    return CredentialAuthenticator(keys, tickets, clock, jwt=verifier, anonymous=anonymous)


def require_authenticator(guard: Guard) -> CredentialAuthenticator:
    """Return the authenticator of a guard. Raises ``Problem`` (404) if it issues no tickets and logins."""
    if not isinstance(guard.authenticator, CredentialAuthenticator):
        raise not_found("ticket or login at this server: its authenticator issues none")
    return guard.authenticator


def _unauthorized_problem(detail: str) -> Problem:
    return Problem(401, "unauthorized", detail, headers={"WWW-Authenticate": 'Bearer realm="vaka"'})
