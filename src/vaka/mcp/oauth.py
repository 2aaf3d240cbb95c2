"""Access tokens for MCP servers (OAuth 2.1): with the credentials of a program, or with the stored login of a user."""

import asyncio
import logging
import time
import warnings
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx2
import msgspec
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)
from mcp.client.auth.oauth2 import OAuthContext
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from mcp.shared.exceptions import MCPDeprecationWarning
from pydantic import AnyUrl, ValidationError

from vaka.core.types.errors import McpError
from vaka.mcp.definition import McpServer
from vaka.mcp.logins import LoginStore, McpLogin, has_credentials, uses_login

LOCK_PAUSE_SECONDS = 0.05
EXPIRY_LEEWAY_SECONDS = 30.0
"""A token is refreshed this long before its expiry; a token with a short life, after nine tenths of its life."""

for _name in ("mcp", "httpx2", "httpcore2"):  # without a handler, warnings of a library go to the terminal
    logging.getLogger(_name).addHandler(logging.NullHandler())


class _Tokens:
    """The access token of one connection, in memory."""

    def __init__(self) -> None:
        self._token: OAuthToken | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self._token

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self._token = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Keep nothing: the client is given, not registered."""


def make_auth(server: McpServer, logins: LoginStore | None = None) -> httpx2.Auth | None:
    """Return what adds an access token: of the definition's credentials, or of the user's login."""
    if not has_credentials(server):
        return StoredLoginAuth(server, logins) if logins is not None and uses_login(server) else None
    given = server.oauth
    scope, issuer = given.get("scope") or given.get("scopes"), given.get("issuer")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MCPDeprecationWarning)  # about a missing issuer, which the guide explains
        if "privateKey" in given:
            key = SignedJWTParameters(
                issuer=given["clientId"],
                subject=given["clientId"],
                signing_key=given["privateKey"],
                signing_algorithm=given.get("algorithm", "ES256"),
            )
            return PrivateKeyJWTOAuthProvider(
                server.url, _Tokens(), given["clientId"], key.create_assertion_provider(), scope, issuer
            )
        method: Any = given.get("tokenEndpointAuthMethod", "client_secret_basic")
        return ClientCredentialsOAuthProvider(
            server.url, _Tokens(), given["clientId"], given["clientSecret"], method, scope, issuer
        )


class StoredLoginAuth(httpx2.Auth):
    """Adds the access token of a stored login to the requests to its server, and refreshes it. It never asks a person.

    A request to another origin, as after a redirect, gets no token.
    """

    def __init__(self, server: McpServer, logins: LoginStore) -> None:
        self._server, self._logins = server, logins
        self._login: McpLogin | None = None
        self._is_loaded = False
        self._is_refused: bool | None = None
        self._refreshing: asyncio.Task[None] | None = None

    async def load(self) -> None:
        """Read the login, and refresh it if it has expired. Raises ``VakaError`` and ``httpx2.HTTPError``."""
        if not self._is_loaded:
            self._take(await asyncio.to_thread(self._logins.read, self._server.url))
            self._is_loaded = True
        if self._login is not None and self._login.is_expired:
            await self._renew(self._login)

    def _take(self, login: McpLogin | None) -> None:
        self._login = login
        if login is not None:
            self._logins.register(login)

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        if origin_of(str(request.url)) != origin_of(self._server.url):
            yield request
            return
        await self.load()
        sent = self._login
        _set_token(request, sent)
        response = yield request
        if response.status_code == 401:
            await self._renew(sent)
            if self._login is not None and self._login != sent:
                _set_token(request, self._login)
                response = yield request
        if self._is_refused is not (response.status_code == 401):
            self._is_refused = response.status_code == 401
            self._logins.note_needed(self._server.url, needed=self._is_refused)

    async def _renew(self, refused: McpLogin | None) -> None:
        """Replace a login that is not valid by a newer one, if there is one or the refresh token gives one.

        The authorization server may void the old refresh token with its answer, so the cancellation of a request does
        not keep the answer from being stored.
        """
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.create_task(self._replace_login(refused), name=f"login {self._server.name}")
            self._refreshing.add_done_callback(lambda task: task.cancelled() or task.exception())
        await asyncio.shield(self._refreshing)

    async def _replace_login(self, refused: McpLogin | None) -> None:
        if refused is None:  # the user may have logged in since
            self._take(await asyncio.to_thread(self._logins.read, self._server.url))
            return
        async with locked_login(self._logins, self._server.url):
            stored = await asyncio.to_thread(self._logins.read, self._server.url)
            if stored is not None and (stored == refused or stored.is_expired) and stored.refresh_token:
                fresh = await _refresh(stored, self._server.connect_timeout)
                if fresh is not None:
                    await asyncio.to_thread(self._logins.write, fresh)
                stored = fresh or stored
            self._take(stored)


@asynccontextmanager
async def locked_login(logins: LoginStore, url: str) -> AsyncGenerator[None]:
    """Hold the lock on a login: of two processes that refresh it, the second one finds the tokens of the first."""
    while (release := logins.try_lock(url)) is None:  # noqa: ASYNC110  # another process may hold it
        await asyncio.sleep(LOCK_PAUSE_SECONDS)
    try:
        yield
    finally:
        release()


async def _refresh(login: McpLogin, timeout: float) -> McpLogin | None:
    """Return the login with new tokens, ``None`` if the authorization server rejects the refresh token."""
    data = {"grant_type": "refresh_token", "refresh_token": login.refresh_token, "client_id": login.client_id}
    if login.resource:
        data["resource"] = login.resource
    data, headers = _make_context(login).prepare_token_auth(data, {"Accept": "application/json"})
    async with httpx2.AsyncClient(timeout=timeout) as client:
        response = await client.post(login.token_endpoint, data=data, headers=headers)
    if response.status_code in (400, 401, 403):
        return None
    if response.status_code != 200:
        raise McpError(f"the login cannot be refreshed: {_host_of(login.token_endpoint)}: HTTP {response.status_code}")
    try:
        token = OAuthToken.model_validate_json(response.content)
    except ValidationError:
        raise McpError(f"the login cannot be refreshed: {_host_of(login.token_endpoint)} sent no token") from None
    return with_token(login, token)


def _make_context(login: McpLogin) -> OAuthContext:
    client = OAuthClientInformationFull(
        client_id=login.client_id,
        client_secret=login.client_secret or None,
        token_endpoint_auth_method=login.auth_method or None,
    )
    metadata = OAuthClientMetadata(redirect_uris=[AnyUrl("http://127.0.0.1/callback")])
    return OAuthContext(login.url, metadata, _Tokens(), None, None, client_info=client)


def with_token(login: McpLogin, token: OAuthToken) -> McpLogin:
    """Return a login with the tokens of an answer; what the answer omits stays."""
    life = token.expires_in
    return msgspec.structs.replace(
        login,
        access_token=token.access_token,
        refresh_token=token.refresh_token or login.refresh_token,
        expires_at=None if life is None else time.time() + life - min(EXPIRY_LEEWAY_SECONDS, life / 10),
        scope=token.scope or login.scope,
    )


def _set_token(request: httpx2.Request, login: McpLogin | None) -> None:
    if login is not None:
        request.headers["Authorization"] = f"Bearer {login.access_token}"


def origin_of(url: str) -> tuple[str, str, int]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)


def _host_of(url: str) -> str:
    return urlsplit(url).hostname or ""
