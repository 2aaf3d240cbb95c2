"""``AllowedOrigins``: lets pages of other origins read the answers, if the settings allow their origin (CORS)."""

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vaka.server.kit.guard import CONSOLE_HEADER
from vaka.server.settings import ServerSettings

EXPOSED_HEADERS = (
    "etag, idempotent-replayed, location, mcp-session-id, retry-after, x-request-id, x-vercel-ai-ui-message-stream"
)
METHODS = "DELETE, GET, HEAD, PATCH, POST, PUT"
PREFLIGHT_SECONDS = 600


class AllowedOrigins:
    """Adds the headers of CORS to answers and answers preflight requests.

    Cookies are not allowed: a page of another origin needs a token. It cannot send the header of the console either.
    """

    def __init__(self, app: ASGIApp, settings: ServerSettings) -> None:
        self._app, self._origins = app, frozenset(settings.origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope) if scope["type"] == "http" and self._origins else Headers()
        origin = headers.get("origin", "")
        if not origin or not (origin in self._origins or "*" in self._origins):
            await self._app(scope, receive, send)
            return
        added = {"access-control-allow-origin": origin, "vary": "origin"}
        if scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
            preflight = Response(status_code=204, headers=added | _permissions_for(headers))
            await preflight(scope, receive, send)
            return
        added["access-control-expose-headers"] = EXPOSED_HEADERS
        raw = [(name.encode(), value.encode("latin-1")) for name, value in added.items()]

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *raw]}
            await send(message)

        await self._app(scope, receive, send_with_headers)


def _permissions_for(preflight: Headers) -> dict[str, str]:
    asked = [name.strip() for name in preflight.get("access-control-request-headers", "").split(",")]
    allowed = ", ".join(name for name in asked if name and name.lower() != CONSOLE_HEADER)
    return {
        "access-control-allow-methods": METHODS,
        "access-control-allow-headers": allowed,
        "access-control-max-age": str(PREFLIGHT_SECONDS),
    }
