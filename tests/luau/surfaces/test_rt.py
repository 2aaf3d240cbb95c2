"""``rt``: the surface with promises."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from tests.luau.surfaces.surface_fixtures import (
    AgentConversation,
    DictValues,
    FakeNetwork,
    MemoryJournal,
    make_services,
    memory_services,
    run_for_result,
    run_script,
)
from vaka.core.ports.net import NetResponse
from vaka.core.types.ids import JSON
from vaka.luau.host.storage import StoredMemory
from vaka.luau.services import HostServices, ScriptIo
from vaka.testing.clock import FakeClock
from vaka.testing.models import ScriptedModel, fail, say

OK = NetResponse(status=200, body=b"{}")


def fake_clock_services() -> HostServices:
    """Return services whose clock does not wait."""
    return make_services(sleep=FakeClock(auto=True).sleep)


async def test_a_tool_has_an_input_and_an_output() -> None:
    source = "local args = rt:input() rt:output(0) rt:output({twice = args.x * 2}, nil)"
    assert await run_script(source, {"x": 21}, mode="tool") == [{"twice": 42}, None]
    assert await run_script("assert(rt:input() == nil) rt:output(nil, 'bad')", mode="tool") == [None, "bad"]


async def test_outputs_are_passed_on_at_once() -> None:
    shown: list[tuple[JSON, str | None]] = []

    async def output(value: JSON, error: str | None) -> None:
        shown.append((value, error))

    await run_script(
        "rt:output(1) rt:output(nil, 'no')", mode="tool", services=make_services(io=ScriptIo(output=output))
    )
    assert shown == [(1, None), (None, "no")]


async def test_a_received_chunk_has_all_field_names() -> None:
    talk = AgentConversation(
        "hi", {"parts": [{"type": "blob", "base64": "AP8=", "mime_type": "audio/ogg"}], "eos": True}
    )
    source = """
        local one, none = rt:recv()
        local two = rt:recv()
        return one.text, one.part.type, one.part.value, one[1].text, none,
            two.text, two.audio.mime_type, two.part.data, two.is_eos, rt:recv()
    """
    assert await run_script(source, services=talk.host_services) == [
        "hi",
        "text",
        "hi",
        "hi",
        None,
        None,
        "audio/ogg",
        b"\x00\xff",
        True,
        None,
        "agent is closed",
    ]


@pytest.mark.parametrize(
    ("chunk", "expected"),
    [
        ("{text = 'a'}", {"parts": [{"type": "text", "text": "a"}], "eof": False}),
        ("{text = '', eof = true}", {"parts": [{"type": "text", "text": ""}], "eof": True}),
        ("{part = 'a'}", {"parts": [{"type": "text", "text": "a"}], "eof": False}),
        ("{part = {type = 'text', value = 'a'}}", {"parts": [{"type": "text", "text": "a"}], "eof": False}),
        ("{{type = 'text', text = 'a'}}", {"parts": [{"type": "text", "text": "a"}], "eof": False}),
        (
            "{parts = {'a', {text = 'b'}}}",
            {"parts": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "eof": False},
        ),
        (
            "{part = {type = 'blob', data = 'x', mime_type = 'image/png'}}",
            {"parts": [{"type": "blob", "data": "x", "mime_type": "image/png"}], "eof": False},
        ),
        (
            "{part = {data = 'x'}}",
            {"parts": [{"type": "blob", "data": "x", "mime_type": "application/octet-stream"}], "eof": False},
        ),
        (
            "{audio = buffer.fromstring('x')}",
            {"parts": [{"type": "blob", "data": "x", "mime_type": "audio/pcm"}], "eof": False},
        ),
        (
            "{part = {type = 'function_call', value = {a = 1}}}",
            {"parts": [{"type": "function_call", "value": {"a": 1}}], "eof": False},
        ),
        (
            "{part = 'a', stream_id = 's', is_bos = true, is_eos = true}",
            {"parts": [{"type": "text", "text": "a"}], "eof": True, "bos": True, "stream_id": "s"},
        ),
        ("{is_eos = true}", {"parts": [], "eof": True}),
        ("{}", {"parts": [], "eof": False}),
    ],
)
async def test_emit_accepts_chunks_of_every_shape(chunk: str, expected: JSON) -> None:
    talk = AgentConversation()
    assert await run_script(f"return rt:emit({chunk})", services=talk.host_services) == [None]
    assert talk.emitted_chunks == [expected]


@pytest.mark.parametrize(
    ("chunk", "why"),
    [
        ("nil", "emit: expected table"),
        ("'hi'", "emit: expected table"),
        ("1", "emit: expected table"),
        ("{part = 1}", "emit: a part is a string or a table, not a number"),
        ("{text = {}}", "emit: the text of a part is a table, not a string"),
        ("{audio = 1}", "emit: audio is a string, a buffer or a table with data, not a number"),
        ("{parts = 1}", "emit: parts is a number, not a list"),
        ("{part = {type = 'blob'}}", "emit: the data of a part is a nil, not a string"),
        ("{part = {type = 'x', f = print}}", "emit cannot hold a function"),
    ],
)
async def test_emit_returns_an_error_for_an_invalid_chunk(chunk: str, why: str) -> None:
    talk = AgentConversation()
    assert await run_script(f"return rt:emit({chunk})", services=talk.host_services) == [why]
    assert talk.emitted_chunks == []


async def test_recv_and_emit_are_errors_outside_an_agent() -> None:
    assert await run_script("return rt:recv()") == [None, "recv is not available here: this script is not an agent"]
    assert await run_script("return rt:emit{text = 'a'}") == ["emit is not available here: this script is not an agent"]


async def test_a_promise_is_awaited_for_its_values() -> None:
    source = """
        local promise = rt:http{url = "http://host/a"}
        local before = promise:is_ready()
        local response = promise:await()
        return before, response.status, promise:is_ready(), promise:await().status
    """
    assert await run_script(source, services=make_services(network=FakeNetwork({"http://host/a": OK}))) == [
        False,
        200,
        True,
        200,
    ]


async def test_the_promise_of_an_invalid_request_is_ready_at_once() -> None:
    source = "local p = rt:http() return p:is_ready(), p:await().err"
    assert await run_script(source) == [True, "request must be a table"]


async def test_requests_run_concurrently() -> None:
    clock = FakeClock()
    source = "local a, b = rt:sleep(20), rt:sleep(20) a:await() b:await() return 'done'"
    running = asyncio.create_task(run_for_result(source, services=make_services(sleep=clock.sleep)))
    await clock.wait_for_sleeps(2)
    clock.advance(0.02)
    assert await running == "done"


@pytest.mark.parametrize("milliseconds", ["0", "-100", "nil", "'x'", "0/0"])
async def test_sleeping_for_no_time_returns_at_once(milliseconds: str) -> None:
    assert await run_script(f"return rt:sleep({milliseconds}):await()", services=fake_clock_services()) == []


async def test_a_timeout_that_fires_was_not_cancelled() -> None:
    source = "local t = rt:timeout(50) local r = t:await() return r, t:is_ready(), t:cancel(), t:await()"
    assert await run_script(source, services=fake_clock_services()) == [
        {"cancelled": False},
        True,
        False,
        {"cancelled": False},
    ]


async def test_a_timeout_that_is_cancelled_is_ready_at_once() -> None:
    source = "local t = rt:timeout(1e9) return t:is_ready(), t:cancel(), t:cancel(), t:is_ready(), t:await()"
    assert await run_script(source) == [False, True, False, True, {"cancelled": True}]


async def test_cancelling_a_timeout_wakes_the_coroutine_that_awaits_it() -> None:
    source = """
        local t, result = rt:timeout(1e9), nil
        local thread = coroutine.create(function() result = t:await() end)
        coroutine.resume(thread)
        t:cancel()
        rt:sleep(0):await()
        return result
    """
    assert await run_for_result(source) == {"cancelled": True}


async def test_await_all_returns_results_in_order() -> None:
    network = FakeNetwork({"http://host/a": OK})
    source = """
        local a, b, c = rt:timeout(2), rt:http{url = "http://host/a"}, rt:http{url = "http://unknown"}
        local results, err = rt:await_all(a, b, c)
        local again, same = rt:await_all(a, b, c):await()
        return #results, results[1].cancelled, results[2].status, results[3].err, err, #again, same == err
    """
    why = "no server at 'http://unknown'"
    assert await run_script(source, services=make_services(network=network)) == [3, False, 200, why, why, 3, True]


async def test_await_all_of_nothing_is_an_empty_list() -> None:
    assert await run_script("local r, e = rt:await_all() return next(r), e, next((rt:await_all():await()))") == [
        None,
        None,
        None,
    ]
    assert await run_script("return #rt:await_all(rt:sleep(0), rt:sleep(0))", services=fake_clock_services()) == [2]


async def test_await_all_raises_for_a_value_that_is_not_a_promise() -> None:
    results, why = await run_script("local r, e = rt:await_all(1, rt:sleep(0)) return r, e")
    assert results == [{"err": "not a promise: number"}, True]
    assert why == "not a promise: number"


async def test_await_any_returns_the_first_result() -> None:
    source = """
        local slow, fast = rt:timeout(1e9), rt:timeout(0)
        local value, err = rt:await_any(slow, fast)
        local again = rt:await_any(slow, fast):await()
        return value.cancelled, err, again.cancelled, slow:is_ready(), slow:cancel()
    """
    assert await run_script(source) == [False, None, False, False, True]


async def test_the_result_of_await_any_can_be_awaited() -> None:
    assert await run_script("return rt:await_any(rt:sleep(0), rt:timeout(1e9)):await()") == [None, None]
    assert await run_script("return rt:await_any():await()") == [None, None]
    assert await run_script("local v, e = rt:await_any(1) return e, v:await()") == [
        "not a promise: number",
        None,
        "not a promise: number",
    ]


async def test_a_response_can_be_awaited() -> None:
    source = """
        local promise = rt:http{url = "http://host/a"}
        local status = rt:await_any(promise, rt:timeout(1e9)):await().status
        return status, __builtin.http{url = "http://host/a"}:await().status
    """
    assert await run_script(source, services=make_services(network=FakeNetwork({"http://host/a": OK}))) == [200, 200]


async def test_promises_can_be_passed_in_a_list() -> None:
    assert await run_script("return #rt:await_all({rt:timeout(0), rt:timeout(0)})") == [2]


async def test_generate_returns_a_string_for_a_string() -> None:
    model = ScriptedModel(say("Hello."), fail(500, "down"))
    source = "local a, b = rt:generate('m', 'Hi') return a, b, rt:generate('m', 'Hi')"
    *first, nothing, why = await run_script(source, services=make_services(find_model=lambda _: model))
    assert first == ["Hello.", None]
    assert nothing is None
    assert why.startswith("scripted: ")
    assert "down" in why


async def test_generate_returns_a_stream_for_a_conversation() -> None:
    model = ScriptedModel({"chunks": ["He", "", "llo"]})
    source = """
        local stream, err = rt:generate("m", {system = "Be brief.", messages = {
            {role = "user", content = "Hi"}, {role = "model", content = "Yes?"}, {role = "system", content = "Now."},
            {role = "user", content = "Greet"},
        }})
        assert(stream, err)
        local seen = {}
        for index = 1, 3 do
            local chunk, problem = stream:recv()
            table.insert(seen, if chunk.is_eos then "eos" else chunk.part.value .. chunk.text)
        end
        local a, b = stream:recv()
        local c, d = stream:recv()
        local e, f = stream:recv()
        stream:close()
        local g, h = stream:recv()
        return seen, a, b, c, d, e, f, g, h
    """
    assert await run_script(source, services=make_services(find_model=lambda _: model)) == [
        ["HeHe", "llollo", "eos"],
        None,
        None,
        None,
        "stream EOF",
        None,
        "stream EOF",
        None,
        "stream is closed",
    ]
    (prompt,) = model.prompts
    assert prompt.system == "Be brief.\n\nNow."
    assert [type(message).__name__ for message in prompt.messages] == ["UserMessage", "AssistantMessage", "UserMessage"]


async def test_a_stream_that_fails_returns_an_error() -> None:
    model = ScriptedModel({"chunks": ["He", "llo"], "cut_after": 1})
    source = """
        local stream = rt:generate("m", {messages = {{role = "user", content = "Hi"}}})
        return stream:recv().text, stream:recv()
    """
    async with AsyncExitStack() as closing:
        services = make_services(find_model=lambda _: model, exit_stack=closing)
        assert await run_script(source, services=services) == ["He", None, "scripted: the answer was cut off"]


@pytest.mark.parametrize(
    ("call", "why"),
    [
        ("generate('m', 'x')", "generator not configured: there is no model 'm'"),
        ("generate('m', {messages = {}})", "generator not configured: there is no model 'm'"),
        ("generate_with_context('m', {messages = {}})", "generator not configured: there is no model 'm'"),
        ("generate('', 'x')", "model is required"),
        ("generate(nil, 'x')", "model is required"),
        ("generate(1, 'x')", "model is required"),
        ("generate('m')", "prompt must be a string or a table, not a nil"),
        ("generate('m', {messages = 1})", "messages must be a list"),
        ("generate('m', {messages = {1}})", "generate: a message is a table with role and content, both strings"),
        (
            "generate('m', {messages = {{role = 'ghost', content = ''}}})",
            "generate: there is no role ghost; it is user, assistant, system or tool",
        ),
    ],
)
async def test_generate_returns_an_error_for_invalid_arguments(call: str, why: str) -> None:
    assert await run_script(f"return rt:{call}") == [None, why]


async def test_generate_with_context_returns_text() -> None:
    model = ScriptedModel(say("Six."))
    source = "return rt:generate_with_context('m', {messages = {{role = 'user', content = '3+3?'}}})"
    assert await run_script(source, services=make_services(find_model=lambda _: model)) == ["Six.", None]


async def test_state_is_set_read_and_deleted() -> None:
    source = """
        local errors = {rt:state_set("counter", 42), rt:state_set("table", {1}), rt:state_set("gone", "x")}
        rt:state_delete("gone")
        rt:state_get("table")[1] = 2
        return (rt:state_get("counter")), (rt:state_get("table")), (rt:state_get("gone")), #errors
    """
    values = DictValues()
    assert await run_script(source, services=memory_services(values)) == [42, [1], None, 0]
    assert values.entries["state"] == {"counter": 42, "table": [1]}


async def test_history_is_appended_read_and_reverted() -> None:
    source = """
        rt:history_append{role = "user", content = "1"}
        rt:history_append{role = "assistant", content = "2"}
        rt:history_append{role = "user", content = "3"}
        rt:history_append{role = "model", content = "4"}
        local before = rt:history_recent(3)
        local err = rt:history_revert()
        return before, err, rt:history_recent(10)
    """
    before, err, after, _ = await run_script(source, services=memory_services())
    assert [message["content"] for message in before] == ["2", "3", "4"]
    assert err is None
    assert after == [{"role": "user", "content": "1"}, {"role": "assistant", "content": "2"}]


async def test_memory_is_a_summary() -> None:
    source = """
        local none = rt:memory_summary()
        local problem = rt:memory_set_summary("likes Luau")
        return none, problem, rt:memory_summary()
    """
    assert await run_script(source, services=memory_services()) == ["", None, "likes Luau", None]


@pytest.mark.parametrize(
    ("call", "why"),
    [
        ("state_set('', 1)", ["key must be a string that is not empty"]),
        ("state_set('k', print)", ["a function cannot be kept"]),
        ("history_append('x')", ["history_append: a message is a table with role and content, both strings"]),
        ("history_recent(-1)", [None, "history_recent: how many is a whole number, not -1"]),
        ("history_recent('x')", [None, "history_recent: how many is a whole number, not x"]),
        ("memory_set_summary(1)", ["memory_set_summary: the summary must be a string, not a number"]),
    ],
)
async def test_state_history_and_memory_return_errors_for_invalid_arguments(call: str, why: list[JSON]) -> None:
    assert await run_script(f"return rt:{call}", services=memory_services()) == why


async def test_log_may_name_a_level() -> None:
    lines: list[tuple[str, str]] = []
    source = "rt:log('error', 'a', 1) rt:log('warn', {}) rt:log('plain', 2) rt:log('info')"
    await run_script(source, services=make_services(log=lambda level, line: lines.append((level, line))))
    assert lines == [("error", "a\t1"), ("warning", "[table]"), ("info", "plain\t2"), ("info", "info")]


async def test_functions_can_be_called_with_a_dot_or_a_colon() -> None:
    assert await run_script("return rt.json_encode({1}), rt:json_encode({1})") == ["[1]", "[1]", None]


async def test_replaying_any_prefix_gives_the_same_result() -> None:
    source = """
        local model = rt:generate("m", "Hi")
        rt:state_set("a", 1)
        local results = rt:await_all(rt:sleep(1), rt:timeout(2), rt:http{url = "http://host/a"})
        return model, rt:uuid(), rt:state_get("a"), results[3].status, rt:time()
    """
    memory = StoredMemory(DictValues(), "agent/")
    services = make_services(
        find_model=lambda _: ScriptedModel(say("Yes.")),
        network=FakeNetwork({"http://host/a": OK}),
        memory=memory,
        sleep=FakeClock(auto=True).sleep,
    )
    book = MemoryJournal()
    first = await run_script(source, services=services, journal=book)
    for cut in range(1, len(book.answers) + 1):
        second = await run_script(source, services=services, journal=MemoryJournal(book.answers[:cut]))
        assert [second[0], *second[2:4]] == [first[0], *first[2:4]]
    assert await run_script(source, journal=MemoryJournal(book.answers)) == first
