"""Host functions without a VM: tools, chunks and hostile arguments; wrong calls of scripts."""

import base64
import inspect
from typing import Any

import pytest

from tests.luau.surfaces.surface_fixtures import (
    DictValues,
    EchoAgents,
    FakeNetwork,
    make_services,
    memory_services,
    run_script,
)
from vaka.core.loop.script_journal import ScriptRequest
from vaka.core.ports.net import NetResponse
from vaka.core.types.errors import ScriptError
from vaka.core.types.ids import JSON, CallId, Digest
from vaka.core.types.message import Audio, CallRef, Document, Image, Reasoning, Stored, Text
from vaka.core.types.tool import InvalidArguments, ParsedArguments
from vaka.luau.host import surface_functions
from vaka.luau.host.http import http_tools
from vaka.luau.host.io import EmittedChunk, chunk_of_content, parse_chunk
from vaka.luau.program import prelude_source, surfaces_of
from vaka.luau.services import HostServices, MemoryCache, ScriptIo
from vaka.testing.clock import FakeClock
from vaka.testing.models import ScriptedModel, say


def base64_text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def test_content_becomes_a_chunk_of_parts() -> None:
    content = (
        Text(text="hi"),
        Stored(blob=Digest("d"), size=9, preview="beg"),
        Audio(media_type="audio/ogg", data=base64_text(b"a")),
        Image(media_type="image/png", url="http://host/i"),
        Document(media_type="application/pdf", data=base64_text(b"d")),
        Reasoning(text="hm"),
        CallRef(id=CallId("call_1")),
    )
    assert chunk_of_content(content) == {
        "parts": [
            {"type": "text", "text": "hi"},
            {"type": "text", "text": "beg"},
            {"type": "blob", "mime_type": "audio/ogg", "base64": base64_text(b"a")},
            {"type": "blob", "mime_type": "image/png", "url": "http://host/i"},
            {"type": "blob", "mime_type": "application/pdf", "base64": base64_text(b"d")},
        ]
    }


def test_an_emitted_chunk_becomes_content() -> None:
    chunk = {
        "parts": [
            {"type": "text", "text": "hi"},
            {"type": "text", "text": b"\xff"},
            {"type": "blob", "mime_type": "audio/pcm", "data": b"\xff"},
            {"type": "blob", "mime_type": "image/png", "data": "x"},
            {"type": "blob", "data": "y"},
            {"type": "function_call", "name": "f"},
        ],
        "eof": True,
        "stream_id": "s",
    }
    content = (
        Text(text="hi"),
        Text(text="\ufffd"),
        Audio(media_type="audio/pcm", data=base64_text(b"\xff")),
        Image(media_type="image/png", data=base64_text(b"x")),
        Document(media_type="application/octet-stream", data=base64_text(b"y")),
        Text(text='{"type":"function_call","name":"f"}'),
    )
    assert parse_chunk(chunk) == EmittedChunk(content, True)
    assert parse_chunk({}) == EmittedChunk((), False)


@pytest.mark.parametrize("chunk", [1, "x", [1], {"parts": 1}, {"parts": [1]}, {"parts": [{"type": "blob", "data": 1}]}])
def test_an_invalid_chunk_is_refused(chunk: JSON) -> None:
    with pytest.raises(ScriptError, match="emit: "):
        parse_chunk(chunk)


def test_each_http_tool_accepts_only_its_own_requests() -> None:
    tools = http_tools(FakeNetwork())
    read = tools["http"]
    send = tools["http_send"]
    keyed = tools["http_send_keyed"]
    assert [tool.spec.effect for tool in (read, send, keyed)] == ["read", "once", "idempotent"]
    assert read.parse('{"url": "u"}') == ParsedArguments({"url": "u"})
    assert send.parse({"url": "u", "method": "POST", "body": "b"}) == ParsedArguments(
        {"url": "u", "method": "POST", "body": "b"}
    )
    wrong = send.parse({"url": "u", "method": "POST", "idempotency_key": "k"})
    assert wrong == InvalidArguments("POST requests like this one are sent by 'http_send_keyed'")
    assert isinstance(read.parse({"url": "u", "method": "DELETE"}), InvalidArguments)


@pytest.mark.parametrize(
    "raw",
    [
        "",
        "{",
        "[]",
        "1",
        "null",
        "{}",
        '{"url": 1}',
        '{"url": "u", "method": "BREW"}',
        '{"url": "u", "more": 1}',
        '{"url": "u", "timeout": 0}',
        '{"url": "u", "timeout": 1e9}',
        '{"url": "u", "headers": [1]}',
        '{"url": "u", "body_base64": "?"}',
        '{"url": "u", "redirects": -1}',
        '{"url": "u", "query": {"a": {"b": 1}}}',
    ],
)
def test_http_tools_refuse_invalid_requests(raw: str) -> None:
    problem = http_tools(FakeNetwork())["http"].parse(raw)
    assert isinstance(problem, InvalidArguments)
    assert problem.message


def all_services() -> HostServices:
    async def answer(*_: Any) -> JSON:
        return "x"

    async def ignore(*_: Any) -> None:
        return None

    return make_services(
        network=FakeNetwork({"u": NetResponse(status=200)}),
        find_model=lambda _: ScriptedModel(say("x")),
        find_schema_problem=lambda *_: "",
        invoke=answer,
        agents=EchoAgents(),
        memory=memory_services().memory,
        values=DictValues(),
        cache=MemoryCache(),
        io=ScriptIo(input=answer, output=ignore, recv=answer, emit=ignore),
        sleep=FakeClock(auto=True).sleep,
    )


HOSTILE: list[JSON] = [
    None,
    True,
    7,
    -1,
    1.5,
    "",
    "x" * 5000,
    b"\xff",
    [],
    {},
    [None],
    {"a": {"b": [1]}},
    {1: 2},
    [[[]]],
]


async def call_with(name: str, value: JSON) -> None:
    """Call a host function with the same value for every argument."""
    function = surface_functions(all_services())[name]
    parameters = inspect.signature(function.function).parameters.values()
    count = sum(parameter.kind is not parameter.VAR_POSITIONAL for parameter in parameters)
    arguments: list[Any] = [value] * count
    if function.wants_request:
        arguments = [ScriptRequest.from_arguments(1, name, None), *arguments[1:]]
    await function.function(*arguments)


async def test_host_functions_accept_any_value_or_raise_a_script_error() -> None:
    failures: list[str] = []
    for name in sorted(surface_functions(all_services())):
        for value in HOSTILE:
            try:
                await call_with(name, value)
            except ScriptError as error:
                if not str(error):
                    failures.append(f"{name}({value!r}): a ScriptError without a message")
            except Exception as error:  # noqa: BLE001  # every other error is the failure this test looks for
                failures.append(f"{name}({value!r}): {error!r}")
    assert failures == []


def test_a_script_has_the_surfaces_whose_names_occur_in_it() -> None:
    assert surfaces_of(["return ctx.now()"]) == ("ctx",)
    assert surfaces_of(["local start = 1", "return __builtin.time()"]) == ("ctx", "builtin")
    assert surfaces_of(["rt:log(1)"]) == ("ctx", "rt")
    assert prelude_source(("ctx",)) != prelude_source(("ctx", "rt"))


WRONG_CALLS = (
    "ctx.invoke(7)",
    "ctx.invoke('t', 7)",
    "ctx.sleep('x')",
    "ctx.sleep(0/0)",
    "ctx.spawn(7)",
    "ctx.join(7)",
    "ctx.generate(7, 'x')",
    "ctx.generate('', 'x')",
    "ctx.generate('m', 7)",
    "ctx.generate('m', 'x', 7)",
    "ctx.generate_json('m', 'x', 7)",
    "ctx.generate_stream(7)",
    "ctx.json.decode(7)",
    "ctx.json.encode(print)",
    "ctx.emit(7)",
    "ctx.http.get(7)",
    "ctx.http.get('http://x', 7)",
    "ctx.http.get('http://x', {bad = 1})",
    "ctx.http.request(7)",
    "ctx.http.get('http://x', {headers = 7})",
    "ctx.create_agent(7)",
    "ctx.create_agent('a', 7)",
    "ctx.agent.history:recent('x')",
    "ctx.agent.history:append(7)",
    "ctx.agent.memory:set_summary(7)",
    "ctx.agent.memory:query(7)",
    "ctx.parallel(7)",
    "ctx.parallel({[true] = print})",
    "ctx.agent.state[7] = 7",
    "ctx.agent.state.x = print",
    "ctx.agent.name = 1",
    "ctx.realtime.connect('x')",
    "ctx.transformer(7)",
    "ctx.transformer('split', 7)",
    "pcall(error) ctx.spawn(print).join()",
)


async def test_the_error_of_a_wrong_call_names_its_line() -> None:
    lines: dict[str, str] = {}
    for wrong in WRONG_CALLS:
        source = f"local function call()\n{wrong}\nend\nlocal function outer()\ncall()\nend\nreturn pcall(outer)"
        services = make_services(agents=EchoAgents())
        _, message = await run_script(source, services=services, startup_info={"state": True})
        lines[wrong] = str(message).partition(": ")[0]
    assert {wrong: line for wrong, line in lines.items() if line != "script:2"} == {}
