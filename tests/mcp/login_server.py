"""An MCP server behind a login: the library's resource server and authorization server, in a thread."""

import asyncio
import secrets
import socket
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial

from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    OAuthAuthorizationServerProvider,
    RefreshToken,
    TokenError,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.server.mcpserver import MCPServer
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl

from tests.mcp.http_servers import serving


class LoginServer(OAuthAuthorizationServerProvider[AuthorizationCode, RefreshToken, AccessToken]):
    """Grants every request at once, as a user who consents would, unless ``answers`` say otherwise."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.answers: list[dict[str, str]] = []
        """What the next redirects to the client have instead of what they should have."""
        self.lifetime = 3600
        """Seconds that the first access token of a login is valid."""
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.valid: dict[str, AccessToken] = {}
        self.refresh_tokens: dict[str, RefreshToken] = {}
        self.refreshes = 0

    def make_app(self) -> object:
        address = AnyHttpUrl(self.url)
        settings = AuthSettings(
            issuer_url=address,
            resource_server_url=AnyHttpUrl(f"{self.url}/mcp"),
            validate_token_resource=True,
            client_registration_options=ClientRegistrationOptions(enabled=True),
            required_scopes=["read"],
        )
        server = MCPServer("guarded", log_level="CRITICAL", auth=settings, auth_server_provider=self)

        @server.tool()
        def whoami() -> str:
            """Return the user and, as a careless server might, the token of the request."""
            token = get_access_token()
            return f"you are ada {token.token if token else ''}"

        return server.streamable_http_app()

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        code = AuthorizationCode(
            code=secrets.token_hex(),
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            client_id=client.client_id,
            **params.model_dump(exclude={"state", "scopes"}),
        )
        self.codes[code.code] = code
        right = {"code": code.code, "state": params.state, "iss": f"{self.url}/"}
        return construct_redirect_uri(str(params.redirect_uri), **right | (self.answers.pop(0) if self.answers else {}))

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        del self.codes[authorization_code.code]
        return self._grant(client, authorization_code.scopes, authorization_code.resource, self.lifetime)

    async def load_refresh_token(self, client: OAuthClientInformationFull, refresh_token: str) -> RefreshToken | None:
        return self.refresh_tokens.get(refresh_token)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        if self.refresh_tokens.pop(refresh_token.token, None) is None:
            raise TokenError("invalid_grant")
        self.refreshes += 1
        return self._grant(client, scopes, refresh_token.resource)

    def _grant(
        self, client: OAuthClientInformationFull, scopes: list[str], resource: str | None, lifetime: int = 3600
    ) -> OAuthToken:
        access, refresh = f"access-{secrets.token_hex()}", f"refresh-{secrets.token_hex()}"
        about = {"client_id": client.client_id, "scopes": scopes, "resource": resource}
        self.valid[access] = AccessToken.model_validate({"token": access, **about})
        self.refresh_tokens[refresh] = RefreshToken.model_validate({"token": refresh, **about})
        return OAuthToken(access_token=access, refresh_token=refresh, expires_in=lifetime, scope=" ".join(scopes))

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self.valid.get(token)

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        self.valid.pop(token.token, None)


@contextmanager
def login_server() -> Generator[LoginServer]:
    """Run the server in a thread of its own, so that commands may run in the main one."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = LoginServer(f"http://127.0.0.1:{listener.getsockname()[1]}")
    stop: Future[Callable[[], object]] = Future()

    async def serve() -> None:
        done = asyncio.Event()
        async with serving(server.make_app(), listener):
            stop.set_result(partial(asyncio.get_running_loop().call_soon_threadsafe, done.set))
            await done.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        stop.result()
        yield server
    finally:
        stop.result()()
        thread.join()
