"""The Python side alone: tools, chunks and what hostile scripts could hand over."""

import base64
from typing import Any

import pytest

from tests.luau.surfaces.surface_fixtures import DictValues, FakeNetwork, memory_services
from vaka.core.loop.children.script_journal import ScriptRequest
from vaka.core.ports.net import NetResponse
from vaka.core.types.errors import ScriptError
from vaka.core.types.ids import JSON, CallId, Digest
from vaka.core.types.message import Audio, CallRef, Document, Image, Reasoning, Stored, Text
from vaka.core.types.tool import InvalidArguments, ParsedArguments
from vaka.luau.host.compat import MemoryCache, surface_functions
from vaka.luau.host.host_services import HostServices
from vaka.luau.host.http import http_tools
from vaka.luau.host.io import EmittedChunk, chunk_of_content, parse_chunk
from vaka.luau.prelude import prelude_source, surfaces_of, uses_state
from vaka.testing.clock import FakeClock
from vaka.testing.models import ScriptedModel, say


def base64_text(data: bytes) -> str:
    """Write bytes as the log has them."""
    return base64.b64encode(data).decode()


def test_content_is_heard_as_parts() -> None:
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


def test_what_is_said_becomes_content() -> None:
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
    assert parse_chunk(chunk) == EmittedChunk(content, True, "s")
    assert parse_chunk({}) == EmittedChunk((), False, "")


@pytest.mark.parametrize("chunk", [1, "x", [1], {"parts": 1}, {"parts": [1]}, {"parts": [{"type": "blob", "data": 1}]}])
def test_what_is_no_chunk_is_refused(chunk: JSON) -> None:
    with pytest.raises(ScriptError, match="emit: "):
        parse_chunk(chunk)


def test_tools_for_requests_know_which_are_theirs() -> None:
    tools = http_tools(FakeNetwork())
    read, send, keyed = tools["http"], tools["http_send"], tools["http_send_keyed"]
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
        "", "{", "[]", "1", "null", "{}", '{"url": 1}', '{"url": "u", "method": "BREW"}', '{"url": "u", "more": 1}',
        '{"url": "u", "timeout": 0}', '{"url": "u", "timeout": 1e9}', '{"url": "u", "headers": [1]}',
        '{"url": "u", "body_base64": "?"}', '{"url": "u", "redirects": -1}', '{"url": "u", "query": {"a": {"b": 1}}}',
    ],
)  # fmt: skip
def test_tools_say_what_is_wrong_with_a_request(raw: str) -> None:
    problem = http_tools(FakeNetwork())["http"].parse(raw)
    assert isinstance(problem, InvalidArguments)
    assert problem.message


def all_services() -> HostServices:
    """Parts of every kind."""
    notes = memory_services()

    async def later(*_: Any) -> JSON:
        return "x"

    async def told(*_: Any) -> None:
        return None

    def fits(*_: Any) -> str:
        return ""

    return HostServices(
        network=FakeNetwork({"u": NetResponse(status=200)}),
        models=lambda _: ScriptedModel(say("x")),
        fits=fits,
        invoke=later,
        agents=later,
        state=notes.state,
        history=notes.history,
        summary=notes.summary,
        values=DictValues(),
        cache=MemoryCache(),
        input=later,
        output=told,
        recv=later,
        emit=told,
        clock=FakeClock(auto=True),
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


@pytest.mark.parametrize("value", HOSTILE, ids=lambda value: repr(value)[:20])
@pytest.mark.parametrize("name", sorted(surface_functions(all_services())))
async def test_whatever_a_script_hands_over_its_host_does_it_or_says_why_not(name: str, value: JSON) -> None:
    function = surface_functions(all_services())[name]
    code: Any = function.function
    count = code.__code__.co_argcount - (1 if function.wants_request else 0)
    arguments: list[Any] = [value] * max(count, 0)
    if function.wants_request:
        arguments.insert(0, ScriptRequest.from_arguments(1, name, None))
    try:
        await function.function(*arguments)
    except ScriptError as error:
        assert str(error)  # noqa: PT017  # either is fine


def test_a_script_gets_the_surfaces_it_names() -> None:
    assert surfaces_of(["return ctx.now()"]) == ("ctx",)
    assert surfaces_of(["local start = 1", "return __builtin.time()"]) == ("ctx", "builtin")
    assert surfaces_of(["rt:log(1)"]) == ("ctx", "rt")
    assert uses_state(["x", "ctx.agent.state.a = 1"])
    assert not uses_state(["estate"])
    assert prelude_source(("ctx",)) != prelude_source(("ctx", "rt"))
