"""The login of a user at an MCP server in a browser (OAuth 2.1, authorization code with PKCE)."""

import asyncio
import html
import ipaddress
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final
from urllib.parse import parse_qs, urljoin, urlsplit

import httpx2
import mcp_types as types
from mcp.client.auth import OAuthClientProvider, OAuthFlowError, OAuthRegistrationError
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import AnyUrl, ValidationError

from vaka.core.types.errors import McpError
from vaka.mcp.definition import McpServer
from vaka.mcp.logins import LoginStore, McpLogin
from vaka.mcp.oauth import locked_login, origin_of, with_token
from vaka.system.event_loops import write_to_stream

LOGIN_SECONDS = 300.0
"""How long the user has to log in."""
CALLBACK_PATH = "/callback"
MAX_REQUEST_BYTES = 16_384
REQUEST_SECONDS = 10.0
"""How long a browser may take to send its request."""
PUBLIC_CLIENT: Final = "none"
"""How a client without a secret authenticates itself: PKCE protects its login."""
MAX_REASON = 300
MAX_REDIRECTS = 5
"""How often the server may redirect to another address of its origin."""


async def log_in(
    server: McpServer, logins: LoginStore, show: Callable[[str], None], seconds: float = LOGIN_SECONDS
) -> str:
    """Let the user log in: ``show`` gets the address to open. Return where the login is stored. Raises ``McpError``.

    The client is registered at the authorization server unless the definition names a client.
    """
    check_secure("the server", server.url)
    async with _listen_for_browser(int(server.oauth.get("callbackPort", 0))) as answers:
        host = "localhost" if "clientId" in server.oauth else "127.0.0.1"
        provider = _make_provider(server, answers, f"http://{host}:{answers.port}{CALLBACK_PATH}", show)
        try:
            async with asyncio.timeout(seconds):
                await _ask_server(server, provider)
        except TimeoutError:
            refused = "; an answer with a wrong state was refused" if answers.refused else ""
            raise McpError(f"the login was not completed within {seconds:g} s{refused}") from None
        except OAuthRegistrationError as error:
            hint = "register a client, and write it into oauth.clientId"
            raise McpError(f"vaka cannot be registered as a client: {_shorten(error)}; {hint}") from None
        except (OAuthFlowError, ValidationError, httpx2.HTTPError) as error:
            raise McpError(f"the login failed: {_shorten(error)}") from None
        token = provider.context.current_tokens
        if token is None:
            raise McpError(f"the server {server.name!r} does not ask for a login")
        async with locked_login(logins, server.url):
            return await asyncio.to_thread(logins.write, _make_login(server, provider, token))


def check_secure(what: str, url: str) -> None:
    """Raise ``McpError`` for an address to which secrets would go without encryption."""
    parts = urlsplit(url)
    if parts.scheme != "https" and not (parts.scheme == "http" and _is_loopback(parts.hostname or "")):
        raise McpError(f"a login needs https, and {what} is at {parts.scheme}://{parts.hostname}")


def _is_loopback(host: str) -> bool:
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


class _PinnedMetadata(OAuthClientMetadata):
    """The description of this client. The server's scopes do not replace the scopes of the definition."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "scope":
            super().__setattr__(name, value)


class _NewLogin:
    """The storage of the library during a login: it begins without tokens, with the client of the definition if any."""

    def __init__(self, client: OAuthClientInformationFull | None) -> None:
        self._client = client

    async def get_tokens(self) -> OAuthToken | None:
        return None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Keep nothing: the tokens are stored with the client when both are known."""

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self._client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self._client = client_info


def _make_provider(
    server: McpServer, answers: "_BrowserAnswers", redirect: str, show: Callable[[str], None]
) -> OAuthClientProvider:
    uris, scope = [AnyUrl(redirect)], server.oauth.get("scopes") or server.oauth.get("scope")
    metadata = (_PinnedMetadata if scope else OAuthClientMetadata)(
        redirect_uris=uris, client_name="vaka", token_endpoint_auth_method=PUBLIC_CLIENT, scope=scope
    )
    client = None
    if "clientId" in server.oauth:
        client = OAuthClientInformationFull(
            client_id=server.oauth["clientId"],
            redirect_uris=uris,
            token_endpoint_auth_method=PUBLIC_CLIENT,
            scope=scope,
        )

    async def open_address(address: str) -> None:
        check_secure("its authorization server", address)
        check_secure("its authorization server", _token_endpoint(provider))
        answers.state = parse_qs(urlsplit(address).query)["state"][-1]
        show(address)

    provider = OAuthClientProvider(server.url, metadata, _NewLogin(client), open_address, answers.receive)
    return provider


async def _ask_server(server: McpServer, provider: OAuthClientProvider) -> None:
    """Send the first request of a session; the provider logs in when the server refuses it."""
    hello = types.InitializeRequest(
        params=types.InitializeRequestParams(
            protocol_version=types.LATEST_PROTOCOL_VERSION,
            capabilities=types.ClientCapabilities(),
            client_info=types.Implementation(name="vaka", version="0.1.0"),
        )
    )
    message = {"jsonrpc": "2.0", "id": 0, **hello.model_dump(by_alias=True, mode="json", exclude_none=True)}
    accept = {"Accept": "application/json, text/event-stream"}
    timeout = httpx2.Timeout(server.connect_timeout)
    async with httpx2.AsyncClient(headers={**server.headers, **accept}, timeout=timeout, auth=provider) as client:
        is_sse = server.transport == "sse"
        request = client.build_request("GET" if is_sse else "POST", server.url, json=None if is_sse else message)
        for _ in range(MAX_REDIRECTS):
            response = await client.send(request, stream=True)
            await response.aclose()
            following = response.next_request
            if following is None or origin_of(str(following.url)) != origin_of(server.url):
                return  # the login is complete, or was not asked for
            request = following


def _make_login(server: McpServer, provider: OAuthClientProvider, token: OAuthToken) -> McpLogin:
    context = provider.context
    client = context.client_info
    login = McpLogin(
        url=server.url,
        access_token=token.access_token,
        token_endpoint=_token_endpoint(provider),
        resource=context.get_resource_url() if context.should_include_resource_param(context.protocol_version) else "",
        client_id=client.client_id if client else "",
        client_secret=(client.client_secret if client else "") or "",
        auth_method=(client.token_endpoint_auth_method if client else "") or "",
    )
    return with_token(login, token)


def _token_endpoint(provider: OAuthClientProvider) -> str:
    found = provider.context.oauth_metadata
    return str(found.token_endpoint) if found is not None else urljoin(provider.context.server_url, "/token")


def _shorten(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= MAX_REASON else f"{text[:MAX_REASON]}…"


# ------------------------------------------------------------------------------------------------------- the listener


class _BrowserAnswers:
    """Takes the redirect of the authorization server, which the browser of the user requests from this machine."""

    def __init__(self) -> None:
        self.port = 0
        self.state = ""
        """The value of ``state`` in the answer to this login; without it no answer is accepted."""
        self.refused = False
        self._answer: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()

    async def receive(self) -> AuthorizationCodeResult:
        """Wait for the answer. Raises ``McpError`` if access was denied."""
        answer = await self._answer
        if "error" in answer:
            about = ": ".join(answer[key] for key in ("error", "error_description") if key in answer)
            raise McpError(f"the login was refused: {about[:MAX_REASON]}")
        return AuthorizationCodeResult(code=answer.get("code", ""), state=answer.get("state"), iss=answer.get("iss"))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request of a browser."""
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                status, text = self._take(head.split(b"\r\n", 1)[0].decode("ascii", "replace"))
                write_to_stream(writer, _make_page(status, text))
                await writer.drain()
        except (TimeoutError, OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # what is not a request of a browser gets no answer
        finally:
            writer.close()

    def _take(self, line: str) -> tuple[str, str]:
        """Take the answer of a request line; return the status and the text of the page."""
        method, _, rest = line.partition(" ")
        parts = urlsplit(rest.partition(" ")[0])
        if method != "GET" or parts.path != CALLBACK_PATH:
            return "404 Not Found", "There is nothing here."
        answer = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        if not self.state or answer.get("state") != self.state:
            self.refused = True
            return "400 Bad Request", "This is not the answer to the login that is under way; it is refused."
        if not self._answer.done():
            self._answer.set_result(answer)
        if "error" in answer:
            return "200 OK", "The login was refused. You may close this window."
        return "200 OK", "vaka has received the login. You may close this window."


@asynccontextmanager
async def _listen_for_browser(port: int) -> AsyncGenerator[_BrowserAnswers]:
    answers = _BrowserAnswers()
    try:
        listener = await asyncio.start_server(answers.serve, "127.0.0.1", port, limit=MAX_REQUEST_BYTES)
    except OSError as error:
        raise McpError(f"127.0.0.1:{port} cannot be listened on: {error.strerror or error}") from None
    answers.port = listener.sockets[0].getsockname()[1]
    try:
        yield answers
    finally:
        listener.close()


def _make_page(status: str, text: str) -> bytes:
    body = f"<!doctype html><meta charset=utf-8><title>vaka</title><p>{html.escape(text)}</p>\n".encode()
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
        "Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
