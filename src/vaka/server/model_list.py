"""The agents of a server as models: the list and its entries, in the forms of OpenAI and Anthropic."""

from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from vaka.server.kit.bodies import json_response
from vaka.server.kit.guard import ErrorShape, guard_route
from vaka.server.kit.problems import Problem
from vaka.server.kit.service import AgentService


def model_routes(service: AgentService, errors: ErrorShape) -> Sequence[BaseRoute]:
    """Return the routes of models; a request with ``anthropic-version`` gets the form of Anthropic."""

    async def list_models(request: Request) -> Response:
        is_anthropic = "anthropic-version" in request.headers
        data = [_describe(name, is_anthropic=is_anthropic) for name in service.agents]
        if not is_anthropic:
            return json_response({"object": "list", "data": data})
        ends = {"first_id": data[0]["id"] if data else None, "last_id": data[-1]["id"] if data else None}
        return json_response({"data": data, "has_more": False, **ends})

    async def find_model(request: Request) -> Response:
        name: str = request.path_params["model"]
        if name not in service.agents:
            raise Problem(404, "model_not_found", f"there is no model {name[:100]!r}; GET /v1/models lists the agents")
        return json_response(_describe(name, is_anthropic="anthropic-version" in request.headers))

    return [
        guard_route(service.guard, "/v1/models", {"GET": ("runs:read", list_models)}, errors),
        guard_route(service.guard, "/v1/models/{model:path}", {"GET": ("runs:read", find_model)}, errors),
    ]


def _describe(name: str, *, is_anthropic: bool) -> dict[str, Any]:
    if is_anthropic:
        return {"type": "model", "id": name, "display_name": name, "created_at": "1970-01-01T00:00:00Z"}
    return {"id": name, "object": "model", "created": 0, "owned_by": "vaka"}
