"""HTTP tools of definitions against a real server."""

import asyncio
import base64
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.net.http_server import Handler, ReceivedRequest, RunningServer, encode_response, respond_with, serve
from tests.runtime.runtime_fixtures import agent, read_log, results_by_call, runtime
from vaka.config.options import NetworkAccess, Permissions, Scripts
from vaka.core.types.errors import InvalidInput
from vaka.core.types.message import ToolResult
from vaka.genx.kinds.http import HttpTool
from vaka.net.connector import Connector
from vaka.net.rules import NetworkRules
from vaka.stores.memory import MemoryStore
from vaka.testing.models import ScriptedModel, call, say

TOKEN = "tok-1234567890"


def json_response(value: Any, status: str = "200 OK") -> bytes:
    return encode_response(json.dumps(value).encode(), status, [("Content-Type", "application/json")])


async def echo(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
    """Answer with the request."""
    sent = {"method": request.method, "target": request.target, "body": request.body.decode()}
    writer.write(json_response(sent | {"headers": {key.lower(): value for key, value in request.headers}}))


class HttpSession:
    def __init__(self, server: RunningServer, network: Connector) -> None:
        self.server, self.network = server, network
        self.events = ""

    async def call(self, path: str, arguments: dict[str, Any] | None = None, **options: Any) -> ToolResult:
        tool = HttpTool(
            "look", endpoint=path if "://" in path or path.startswith("$") else self.server.url(path), **options
        )
        store, model = MemoryStore(), ScriptedModel(call("look", **(arguments or {})), say("done"))
        env = {"ALLOWED": "from-the-runtime"}
        async with runtime(
            store,
            network=NetworkAccess(client=self.network),
            permissions=Permissions(mode="bypassPermissions"),
            scripts=Scripts(env=env),
        ) as rt:
            await (await rt.open(agent(model, tool), id="s")).run("Go.")
        log = await read_log(store, "s")
        self.events = b"\n".join(event.stored for event in log).decode()
        return results_by_call(log)["call_1"]


@asynccontextmanager
async def server(handler: Handler = echo) -> AsyncGenerator[HttpSession]:
    async with serve(handler) as running, Connector(NetworkRules(trusted=(running.authority,))) as network:
        yield HttpSession(running, network)


async def test_arguments_fill_path_and_query_without_changing_the_path() -> None:
    async with server() as it:
        result = await it.call(
            "/users/{id}/notes?q={q}&lang=$LANG&page={page}&tag={tags}",
            {"id": "../a/b?c=d#e", "q": "ü & x=1", "tags": ["a,b", 2.0], "more": [True, 1.5], "none": None},
            variables={"LANG": "de"},
            params={"type": "object"},
        )
        assert result.value["target"] == (
            "/users/..%2Fa%2Fb%3Fc%3Dd%23e/notes?q=%C3%BC%20%26%20x%3D1&lang=de&tag=a%2Cb,2&more=true&more=1.5"
        )
        assert (result.value["method"], result.value["body"]) == ("GET", "")
        for id in ("..", ".", "", None):
            assert "'id' is part of the path" in (await it.call("/users/{id}", {"id": id})).text
        assert "'a' is part of the path" in (await it.call("/{a}{b}/x", {"a": ".", "b": "."})).text
        assert (await it.call("/cost?$$top={n}&s", {"n": 3})).value["target"] == "/cost?$top=3&s"
        assert "the variable $KEY in endpoint is not set" in (await it.call("/x?key=$KEY")).text
        query = {"q": "{q}", "both": "{q}-$LANG", "n": "{n}", "none": "{none}"}
        asked = await it.call("/x", {"q": "a b", "n": [1, 2]}, query=query, variables={"LANG": "de"})
        assert asked.value["target"] == "/x?q=a%20b&both=a%20b-de&n=1&n=2"
    assert len(it.server.requests) == 3


async def test_bodies_are_json_arguments_or_the_result_of_jq() -> None:
    async with server() as it:
        posted = (await it.call("/notes/{id}", {"id": 7.0, "text": "hi"}, method="POST")).value
        assert (posted["method"], posted["target"]) == ("POST", "/notes/7")
        assert (json.loads(posted["body"]), posted["headers"]["content-type"]) == (
            {"id": 7, "text": "hi"},
            "application/json",
        )
        made = await it.call(
            "/notes",
            {"text": "hi"},
            method="DELETE",
            req_body_jq="{note: .text}",
            resp_body_jq=".body | fromjson",
            headers={"content-type": "text/plain"},
        )
        assert made.value == {"note": "hi"}
        assert "jq expression returned no result" in (await it.call("/", resp_body_jq="empty")).text
        assert "Cannot index string" in (await it.call("/", resp_body_jq=".method.x")).text
        await it.call("/", {"a": 1}, method="PUT", effect="idempotent")
        sent = {name.lower(): value for name, value in it.server.requests[-1].headers}
        assert sent["idempotency-key"].startswith("s/call_1/")


async def test_credentials_are_sent_and_appear_in_no_event() -> None:
    variables = {"TOKEN": TOKEN, "KEY": "k/y+1234567890"}
    async with server() as it:
        variables["BASE"] = it.server.url("")
        result = await it.call(
            "$BASE/x?key=${KEY}",
            auth={"type": "bearer", "token": "${TOKEN}"},
            variables=variables,
            headers={"X-Custom": "v $KEY"},
        )
        sent = it.server.requests[-1]
        assert (sent.header("authorization"), sent.header("x-custom")) == (f"Bearer {TOKEN}", "v k/y+1234567890")
        assert result.value["headers"]["authorization"] == "Bearer [redacted]"
        assert not any(value in it.events for value in (TOKEN, "k/y+1234567890", "1234567890"))
        assert result.value["target"] == "/x?key=[redacted]"
        await it.call("/", auth={"type": "basic", "token": "ada:lovelace1"})
        encoded = base64.b64encode(b"ada:lovelace1").decode()
        assert it.server.requests[-1].header("authorization") == f"Basic {encoded}"
        assert encoded not in it.events
        await it.call("/", auth={"type": "basic", "username": "ada", "password": "${TOKEN}"}, variables=variables)
        assert (
            it.server.requests[-1].header("authorization")
            == "Basic " + base64.b64encode(f"ada:{TOKEN}".encode()).decode()
        )


async def test_without_variables_of_its_own_a_tool_has_those_of_the_runtime() -> None:
    async with server() as it:
        await it.call("/", headers={"X-Who": "$ALLOWED"})
        assert it.server.requests[-1].header("x-who") == "from-the-runtime"
        assert (
            "$HOME in the header 'X-Who' is not set or not allowed"
            in (await it.call("/", headers={"X-Who": "$HOME"})).text
        )


async def test_answers_that_are_no_success_or_no_json_fail_without_secrets() -> None:
    async with server(respond_with(json_response({"token": TOKEN}, "403 Forbidden"))) as it:
        refused = await it.call("/", auth={"type": "bearer", "token": TOKEN})
        assert (refused.failed, refused.text) == (True, 'http status 403: {"token": "[redacted]"}')
    async with server(respond_with(encode_response(b"<html>"))) as it:
        assert (await it.call("/")).text.startswith("decode response: the body is not JSON")
    async with server(respond_with(encode_response(b"[" * 100_000))) as it:
        assert "nested too deeply" in (await it.call("/")).text
    async with server(respond_with(encode_response(b"", "204 No Content"))) as it:
        assert (await it.call("/", method="DELETE")).value is None
    async with server(respond_with(json_response("x" * 3000, "500 Broken"))) as it:
        assert len((await it.call("/")).text) < 2100


async def test_an_answer_over_the_limit_or_the_time_fails() -> None:
    async with server(respond_with(json_response("x" * 200_000))) as it:
        assert (await it.call("/", max_response_size_mb=0.1)).text.startswith("response too large: ")

    async def never(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    async with server(never) as it:
        assert "took longer than the 0.05 s" in (await it.call("/", timeout=0.05)).text


async def test_private_addresses_and_redirects_to_them_are_refused() -> None:
    redirect = encode_response(b"", "302 Found", [("Location", "http://169.254.169.254/latest")])
    async with server(respond_with(redirect)) as it:
        assert "169.254.169.254" in (await it.call("/")).text
        assert (await it.call("http://127.0.0.1:9/")).failed
        held = await it.call("/", headers={"X-Custom": "$KEY"}, variables={"KEY": "abcdefgh"})
        assert held.text.startswith("http status 302: a redirect")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": ""}, "http tool: name is required"),
        ({"endpoint": ""}, "tool t: endpoint is required"),
        ({"endpoint": "https://{host}/x"}, "may stand in the path and the query"),
        ({"endpoint": "$BASE{x}/"}, "may stand in the path and the query"),
        ({"endpoint": "{scheme}://a/"}, "may stand in the path and the query"),
        ({"endpoint": "example.com/x"}, "must begin with https://"),
        ({"method": "TRACE"}, "invalid HTTP method 'TRACE'"),
        ({"auth": {"type": "digest"}}, "invalid HTTP auth type 'digest'"),
        ({"auth": {"type": "bearer"}}, "auth: token is required for bearer authentication"),
        ({"auth": {"type": "basic", "token": "x"}}, "are required for basic authentication"),
        ({"req_body_jq": ".["}, 'invalid jq expression ".["'),
        ({"resp_body_jq": ".["}, 'invalid jq expression ".["'),
        ({"max_response_size_mb": 0}, "max_response_size_mb must be more than 0"),
        ({"timeout": 0}, "timeout must be more than 0"),
        ({"effect": "maybe"}, "effect 'maybe'"),
        ({"params": {"city": "string"}}, "params: 'city' must be a JSON Schema"),
    ],
)
def test_a_definition_that_is_not_valid_says_what_is_expected(options: dict[str, Any], message: str) -> None:
    given = {"name": "t", "endpoint": "https://example.com/", **options}
    with pytest.raises(InvalidInput) as caught:
        HttpTool(given.pop("name"), **given)
    assert message in str(caught.value)


def test_the_model_sees_the_schema_of_the_arguments_and_the_effect_of_the_method() -> None:
    params = {"city": {"type": "string"}, "days": {"type": "integer", "optional": True}}
    tool = HttpTool("weather now", endpoint="https://example.com/{city}", params=params, description="The weather.")
    assert (tool.spec.name, tool.spec.effect, repr(tool)) == ("weather_now", "read", "HttpTool('weather now')")
    assert tool.spec.parameters == {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city"],
        "additionalProperties": False,
    }
    assert HttpTool("t", endpoint="https://example.com/", method="POST").spec.effect == "once"
    assert HttpTool("t", endpoint="https://example.com/", method="").spec.effect == "read"
