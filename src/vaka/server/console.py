"""The web console: static files, built from ``ts/console`` and part of the package. They need no credentials.

Everything that the console shows comes from the native API, which authenticates it like any other client.
"""

import gzip
from collections.abc import Mapping
from importlib.resources import files
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from vaka.server.auth.console_login import login_routes
from vaka.server.kit.door import Door
from vaka.server.kit.problems import not_found
from vaka.server.kit.service import AgentService

ASSETS: Final = "assets/"
INDEX: Final = "index.html"
LICENSES: Final = "licenses.txt"
_TYPES: Final[Mapping[str, str]] = {
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "txt": "text/plain; charset=utf-8",
}

SECURITY_HEADERS: Final[Mapping[str, str]] = {
    "content-security-policy": (
        "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
        "object-src 'none'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}


class ConsoleFile(msgspec.Struct, frozen=True):
    """A built file, ready to be sent."""

    body: bytes
    compressed: bytes
    headers: Mapping[str, str]


def read_files() -> Mapping[str, ConsoleFile]:
    """Return the built files by name. A hashed name never changes its content; the index is asked for each time."""
    folder = files("vaka.server").joinpath("console_assets")
    manifest = msgspec.json.decode(folder.joinpath("manifest.json").read_bytes(), type=dict[str, str])
    found: dict[str, ConsoleFile] = {}
    for name, digest in manifest.items():
        body = folder.joinpath(name).read_bytes()
        headers = {
            **SECURITY_HEADERS,
            "content-type": _TYPES[name.rpartition(".")[2]],
            "etag": f'"{digest[:32]}"',
            "vary": "accept-encoding",
            "cache-control": "public, max-age=31536000, immutable" if name.startswith(ASSETS) else "no-cache",
        }
        found[name] = ConsoleFile(body, gzip.compress(body, mtime=0), headers)
    return found


def door(service: AgentService) -> Door:
    """Return the routes of the console: its assets, and the index for every other path below ``/console``."""
    console_files = read_files()

    async def asset(request: Request) -> Response:
        found = console_files.get(ASSETS + request.path_params["name"])
        if found is None:
            raise not_found(f"console asset {request.path_params['name']!r}")
        return respond(request, found)

    async def index(request: Request) -> Response:
        return respond(request, console_files[INDEX])

    async def licenses(request: Request) -> Response:
        return respond(request, console_files[LICENSES])

    async def to_console(request: Request) -> Response:
        return RedirectResponse("/console/", headers=dict(SECURITY_HEADERS))

    return Door(
        [
            Route("/", to_console, methods=["GET"]),
            Route("/console", to_console, methods=["GET"]),
            Route("/console/assets/{name:path}", asset, methods=["GET"]),
            Route(f"/console/{LICENSES}", licenses, methods=["GET"]),
            *login_routes(service.guard),
            Route("/console/{page:path}", index, methods=["GET"]),
        ]
    )


def respond(request: Request, file: ConsoleFile) -> Response:
    """Return a file, compressed if the client accepts that, or 304 if the client has it."""
    if file.headers["etag"] in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=dict(file.headers))
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(file.compressed, headers={**file.headers, "content-encoding": "gzip"})
    return Response(file.body, headers=dict(file.headers))
