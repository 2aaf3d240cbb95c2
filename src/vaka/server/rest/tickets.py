"""``POST /ws-tickets``: a ticket for a WebSocket of a page, which cannot send a header with its token."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from vaka.server.auth.authenticator import require_authenticator
from vaka.server.auth.tickets import TICKET_SECONDS
from vaka.server.kit.bodies import json_response
from vaka.server.kit.guard import principal_of
from vaka.server.kit.operation import Operation
from vaka.server.kit.service import AgentService


class TicketDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A ticket. It works once, from the origin of the page that asked for it."""

    ticket: str
    expires_in: int
    """Seconds."""


async def create_ticket(service: AgentService, request: Request) -> Response:
    tickets = require_authenticator(service.guard).tickets
    ticket = await tickets.issue_ticket(principal_of(request), request.headers.get("origin", ""))
    return json_response(
        TicketDocument(ticket=ticket, expires_in=TICKET_SECONDS), 201, headers={"cache-control": "no-store"}
    )


OPERATIONS = (
    Operation(
        method="POST",
        path="/ws-tickets",
        scope="",
        handler=create_ticket,
        summary="Create a ticket for a WebSocket",
        result=TicketDocument,
        status=201,
    ),
)
