"""The login of the console: a link that works once becomes a cookie."""

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from vaka.server.auth.authenticator import require_authenticator
from vaka.server.auth.tickets import login_cookie
from vaka.server.kit.guard import Guard, cookie_name, guard_route, read_credentials
from vaka.server.kit.problems import Problem

CONSOLE_PATH = "/console/"
REFUSED_PATH = f"{CONSOLE_PATH}?link=refused"
"""The page that says that a link does not work, for a browser without another login."""
_HEADERS = {"cache-control": "no-store", "referrer-policy": "no-referrer"}


def login_routes(guard: Guard) -> Sequence[BaseRoute]:
    """Return the routes that log a browser in and out."""

    async def log_in(request: Request) -> Response:
        """Go to the console, with a login if the link is good; the console explains what else is possible."""
        response = RedirectResponse(CONSOLE_PATH, 303, headers=_HEADERS)
        address = read_credentials(request, changes=True).address
        if request.method == "GET":  # HEAD, which programs send to preview a link, does not use it up
            try:
                token = request.query_params.get("ticket", "")
                login = await require_authenticator(guard).redeem_link(token, address)
            except Problem as problem:
                if problem.status != 401:
                    raise
                response.headers["location"] = REFUSED_PATH
            else:
                cookie = login_cookie(cookie_name(request), login, secure=guard.is_https(request))
                response.headers["set-cookie"] = cookie
        return response

    async def log_out(request: Request) -> Response:
        await require_authenticator(guard).tickets.end_login(request.cookies.get(cookie_name(request), ""))
        cookie = login_cookie(cookie_name(request), "", secure=guard.is_https(request))
        return Response(status_code=204, headers={**_HEADERS, "set-cookie": cookie})

    return [
        Route(f"{CONSOLE_PATH}login", log_in, methods=["GET"]),
        guard_route(guard, f"{CONSOLE_PATH}logout", {"POST": ("", log_out)}),
    ]
