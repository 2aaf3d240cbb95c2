"""The OpenAPI document: it is served, it is complete, and responses are as it says."""

import json
from collections.abc import Callable
from typing import Any

import jsonschema
import jsonschema_rs

from scripts.schema import FOLDER
from tests.server.conftest import Serve
from tests.server.rest.test_turns import API, deploy, start
from vaka.agents.react import Agent
from vaka.config.options import Permissions
from vaka.server.rest.door import list_operations
from vaka.server.settings import ServerSettings
from vaka.testing import call, say

Scripted = Callable[..., Agent]


def check_response(document: dict[str, Any], path: str, value: Any, status: str = "200", method: str = "get") -> None:
    """Raise unless a value is as the document says of the response of a path."""
    content = document["paths"][f"{API}{path}"][method]["responses"][status]["content"]
    schema = {**content["application/json"]["schema"], "components": document["components"]}
    jsonschema_rs.Draft202012Validator(schema).validate(value)


async def test_responses_are_as_the_document_says(serve: Serve, scripted: Scripted) -> None:
    agent = scripted(call("deploy"), say("Done."), tools=[deploy])
    async with serve([agent], permissions=Permissions(confirm=["deploy"])) as served, served.client() as client:
        document = (await client.get("/openapi.json")).json()
        assert document == json.loads((FOLDER / "openapi.json").read_text())
        assert (await client.get(f"{API}/openapi.json")).json() == document
        for schema in document["components"]["schemas"].values():
            jsonschema.Draft202012Validator.check_schema({**schema, "components": document["components"]})
        turn = await start(client)
        check_response(document, "/sessions/{session}/turns", turn.json(), method="post")
        for path in (
            "/sessions",
            "/sessions/{session}",
            "/sessions/{session}/turns",
            "/sessions/{session}/events",
            "/sessions/{session}/messages",
            "/sessions/{session}/checkpoints",
            "/sessions/{session}/stats",
            "/approvals",
            "/approvals/count",
            "/agents",
            "/tools",
            "/stats",
            "/usage",
            "/me",
            "/debug/config",
            "/debug/connections",
            "/traces",
            "/traces/{session}",
        ):
            answer = await client.get(f"{API}{path.replace('{session}', 's')}")
            assert answer.status_code == 200, path
            check_response(document, path, answer.json())
        names = [each["operationId"] for methods in document["paths"].values() for each in methods.values()]
        assert len(names) == len(set(names))
        async with served.client("") as stranger:
            assert (await stranger.get("/openapi.json")).status_code == 401


async def test_the_document_leaves_out_features_that_are_off(serve: Serve, scripted: Scripted) -> None:
    async with serve([scripted()], settings=ServerSettings(features=frozenset())) as served, served.client() as client:
        paths = (await client.get("/openapi.json")).json()["paths"]
        assert {path for path in paths if path.startswith(API)} == {f"{API}{each.path}" for each in list_operations()}
        assert not any(path.startswith((f"{API}/traces", f"{API}/debug")) for path in paths)


async def test_the_other_forms_of_a_response_are_as_the_document_says(serve: Serve, scripted: Scripted) -> None:
    async with serve([scripted(say("Done."))]) as served, served.client() as client:
        document = (await client.get("/openapi.json")).json()
        body = {"input": "Go.", "agent": "assistant", "background": True}
        started = await client.post(f"{API}/sessions/s/turns", json=body)
        assert started.status_code == 202
        check_response(document, "/sessions/{session}/turns", started.json(), status="202", method="post")
        ended = await client.post(f"{API}/sessions/s/turns/{started.json()['key']}/wait")
        for path in ("/traces/{session}", "/traces/{session}/{turn}"):
            address = path.replace("{session}", "s").replace("{turn}", ended.json()["id"])
            trace = (await client.get(f"{API}{address}", params={"format": "otlp"})).json()
            assert list(trace) == ["resourceSpans"]
            check_response(document, path, trace)


def test_the_document_says_which_values_of_parameters_are_accepted() -> None:
    document = json.loads((FOLDER / "openapi.json").read_text())
    given = [
        (each["name"], each["in"], each["schema"])
        for methods in document["paths"].values()
        for operation in methods.values()
        for each in operation.get("parameters", ())
    ]
    assert given
    for name, place, schema in given:
        if place == "path":
            assert {"minLength", "pattern"} <= set(schema), name
        if schema.get("type") in ("integer", "number"):
            assert {"minimum", "maximum"} <= set(schema), name
    assert {schema["maxLength"] for name, place, schema in given if (name, place) == ("session", "path")} == {200}
