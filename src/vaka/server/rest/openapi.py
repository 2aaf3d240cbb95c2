"""The OpenAPI document of the native API, generated from its operations and the types of their JSON."""

import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, cast

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from vaka.server.health import PROBE_PATHS
from vaka.server.kit.bodies import json_response
from vaka.server.kit.door import Door
from vaka.server.kit.guard import guard_route
from vaka.server.kit.identifiers import ID_PATTERN, MAX_ID_CHARS
from vaka.server.kit.operation import EVENT_STREAM, PREFIX, Operation
from vaka.server.kit.service import AgentService

Schema = dict[str, Any]

_NAME_SCHEMA: Schema = {"type": "string", "minLength": 1, "pattern": r"^[^/]+$"}
_SESSION_SCHEMA: Schema = {"type": "string", "minLength": 1, "maxLength": MAX_ID_CHARS, "pattern": ID_PATTERN}
_KEY_SCHEMA: Schema = {"type": "string", "minLength": 1, "maxLength": MAX_ID_CHARS, "pattern": r"^[!-.0-~]+$"}
_REFS = "#/components/schemas/"
_ABOUT = (
    "Sessions, turns and events of agents. Lists are pages: `next_cursor` is the `cursor` of the next one. Errors are "
    "problem details (RFC 9457) with a stable `code`. `/threads` is another name of `/sessions`, `/runs` of `/turns`."
)


class FieldError(msgspec.Struct, frozen=True, kw_only=True):
    """The error of a field of a request."""

    field: str
    message: str = ""


class ProblemDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Why a request was not answered; ``code`` is stable and meant for programs."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    request_id: str
    errors: list[FieldError] = []


def make_openapi(operations: Sequence[Operation]) -> Schema:
    """Return the OpenAPI 3.1 document of operations."""
    named = [(each.query, each.body, each.result, *each.other_results) for each in operations]
    types = [type for group in named for type in group if type is not None]
    refs, components = msgspec.json.schema_components([*types, ProblemDetails], ref_template=_REFS + "{name}")
    schemas = dict(zip(map(repr, types), refs, strict=False))
    paths: dict[str, Schema] = {path: {"get": _describe_probe(path)} for path in PROBE_PATHS}
    for each in operations:
        paths.setdefault(PREFIX + each.path, {})[each.method.lower()] = _describe(each, schemas, components)
    queries = {schemas[repr(each.query)]["$ref"].removeprefix(_REFS) for each in operations if each.query is not None}
    public = {_public_name(name): schema for name, schema in components.items() if name not in queries}
    document: Schema = {
        "openapi": "3.1.0",
        "info": {"title": "vaka", "version": "1", "description": _ABOUT},
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {name: {**public[name], "title": name} for name in sorted(public)},
        },
    }
    renamed: Schema = _rename_refs(document)
    return renamed


def _describe_probe(path: str) -> Schema:
    answer: Schema = {"description": "OK", "content": {"application/json": {"schema": {"type": "object"}}}}
    return {
        "operationId": f"get{path.replace('/', '_')}",
        "summary": f"Probe {path[1:]}",
        "security": [],
        "responses": {"200": answer},
    }


def _describe(operation: Operation, schemas: Mapping[str, Schema], components: Mapping[str, Schema]) -> Schema:
    name = re.sub(r"\W+", "_", f"{operation.method.lower()}{operation.path}").strip("_")
    described: Schema = {"operationId": name, "summary": operation.summary, "tags": [operation.path.split("/")[1]]}
    if operation.scope:
        described["description"] = f"Needs the scope `{operation.scope}`."
    parameters = [
        {"name": each, "in": "path", "required": True, "schema": _SESSION_SCHEMA if each == "session" else _NAME_SCHEMA}
        for each in re.findall(r"{(\w+)}", operation.path)
    ]
    if operation.query is not None:
        query = components[schemas[repr(operation.query)]["$ref"].removeprefix(_REFS)]
        parameters += [
            {"name": each, "in": "query", "required": each in query.get("required", ()), "schema": schema}
            for each, schema in query["properties"].items()
        ]
    if operation.idempotent:
        parameters.append({"name": "Idempotency-Key", "in": "header", "required": False, "schema": _KEY_SCHEMA})
    if parameters:
        described["parameters"] = parameters
    if operation.body is not None:
        required = bool(components.get(_name_of(schemas[repr(operation.body)]), {}).get("required"))
        content = {"application/json": {"schema": schemas[repr(operation.body)]}}
        described["requestBody"] = {"required": required, "content": content}
    problem = {"application/problem+json": {"schema": {"$ref": _REFS + ProblemDetails.__name__}}}
    described["responses"] = {
        **{
            str(status): _describe_response(operation, status, schemas)
            for status in (operation.status, *operation.other_statuses)
        },
        "default": {"description": "The request was not answered.", "content": problem},
    }
    return described


def _name_of(schema: Schema) -> str:
    return str(schema.get("$ref", "")).removeprefix(_REFS)


def _describe_response(operation: Operation, status: int, schemas: Mapping[str, Schema]) -> Schema:
    response: Schema = {"description": HTTPStatus(status).phrase}
    content: Schema = {}
    if operation.result is not None:
        results = [schemas[repr(each)] for each in (operation.result, *operation.other_results)]
        content[operation.media_type] = {"schema": results[0] if len(results) == 1 else {"anyOf": results}}
    elif operation.media_type != "application/json":
        content[operation.media_type] = {"schema": {"type": "string"}}
    if operation.streams and status == operation.status:
        content[EVENT_STREAM] = {"schema": {"type": "string"}}
    return {**response, "content": content} if content else response


def _rename_refs(value: object) -> Any:
    """Return a document in which references have the names that ``_public_name`` returns."""
    if isinstance(value, dict):
        return {key: _rename_refs(each) for key, each in cast("dict[str, object]", value).items()}
    if isinstance(value, list):
        return [_rename_refs(each) for each in cast("list[object]", value)]
    if isinstance(value, str) and value.startswith(_REFS):
        return _REFS + _public_name(value.removeprefix(_REFS))
    return value


def _public_name(name: str) -> str:
    """Return the name of a type in the document, such as ``Session`` or ``PageOfSession``."""
    page = re.fullmatch(r"Page_(\w+?)_", name)
    return f"PageOf{_public_name(page[1])}" if page else name.removesuffix("Document") or name


def openapi_door(operations: Sequence[Operation], service: AgentService) -> Door:
    """Return the routes of the document; it is made when it is first asked for."""
    made: list[Response] = []

    async def get_document(request: Request) -> Response:
        if not made:
            made.append(json_response(make_openapi(operations)))
        return made[0]

    paths = ("/openapi.json", f"{PREFIX}/openapi.json")
    return Door([guard_route(service.guard, path, {"GET": ("", get_document)}) for path in paths])
