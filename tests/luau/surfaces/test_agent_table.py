"""``ctx.agent``, ``ctx.runtime`` and ``ctx.log``."""

import pytest

from tests.luau.surfaces.surface_fixtures import (
    DictValues,
    MemoryJournal,
    make_services,
    memory_services,
    run_for_error,
    run_for_result,
    run_script,
)
from vaka.core.types.ids import JSON

GIVEN: dict[str, JSON] = {
    "name": "assistant",
    "model": "m",
    "state_id": "s-1",
    "request_id": "r",
    "user_id": "u",
    "trace_id": "t",
    "state": True,
}


async def test_state_is_read_and_written_as_fields() -> None:
    values = DictValues()
    values.entries["state"] = {"count": 1, "keys": "mine", "list": [1, 2]}
    source = """
        local state = ctx.agent.state
        state.count += 1
        state.list[1] = 9
        local list = state.list
        state.made = {a = {true}}
        state.gone = 1
        state.gone = nil
        local names = {}
        for name in state do names[name] = true end
        local all = state:all()
        return state.count, list, state.made.a[1], state.gone, state:keys(), all.keys, names.made, ctx.state.count
    """
    assert await run_script(source, services=memory_services(values), startup_info=GIVEN) == [
        2,
        [1, 2],
        True,
        None,
        ["count", "keys", "list", "made"],
        "mine",
        True,
        2,
    ]
    assert values.entries["state"] == {"count": 2, "keys": "mine", "list": [1, 2], "made": {"a": [True]}}


async def test_state_is_written_before_the_next_call() -> None:
    book = MemoryJournal()
    source = "local s = ctx.agent.state s.a = 1 s.b = 2 s.a = 3 ctx.sleep(0) s.a = 4"
    await run_script(source, services=memory_services(), startup_info=GIVEN, journal=book)
    assert [answer.request.name for answer in book.answers] == [
        "start",
        "state.all",
        "state.set",
        "state.set",
        "sleep",
        "state.set",
    ]


async def test_state_is_cleared() -> None:
    values = DictValues()
    values.entries["state"] = {"a": 1, "all": 2}
    source = "ctx.agent.state:clear() return ctx.agent.state.a, ctx.agent.state:keys(), ctx.agent.state:all()"
    assert await run_script(source, services=memory_services(values), startup_info=GIVEN) == [None, [], {}]
    assert values.entries["state"] == {}


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("ctx.agent.state.f = print", "agent.state.f cannot hold a function"),
        ("ctx.agent.state.keys = 1", "agent.state.keys is a function of the state and cannot be written"),
        ("ctx.agent.state[1] = 1", "agent.state: a key must be a string, not a number"),
        ("local t = {} t.t = t ctx.agent.state.t = t", "agent.state.t is nested deeper than 100, or holds itself"),
        ("ctx.agent.state = {}", "ctx.agent.state cannot be written"),
        ("ctx.agent.name = 'x'", "ctx.agent.name cannot be written"),
        ("ctx.runtime.user_id = 'x'", "ctx.runtime.user_id cannot be written"),
        ("ctx.agent.memory.query = 1", "agent.memory.query cannot be written"),
        ("ctx.new = 1", "ctx.new cannot be written"),
        ("ctx.http.get = 1", "attempt to modify a readonly table"),
        ("setmetatable(ctx, nil)", "protected metatable"),
        ("ctx.agent.history:append('x')", "history:append: a message is a table with role and content, both strings"),
        ("ctx.agent.history:append{role = 'x', content = ''}", "history:append: there is no role x"),
        ("ctx.agent.history:recent(1.5)", "history:recent: how many is a whole number, not 1.5"),
        ("ctx.agent.memory:set_summary()", "memory:set_summary: the summary must be a string, not nil"),
        ("ctx.agent.memory:query(1)", "memory:query: the question must be a string, not a number"),
    ],
)
async def test_agent_functions_raise_for_invalid_arguments(body: str, why: str) -> None:
    assert why in await run_for_error(body, memory_services(), GIVEN)


async def test_a_script_without_an_agent_has_no_state() -> None:
    assert "agent.state is not available here" in await run_for_error("local x = ctx.agent.state.a")
    assert "agent.state is not available here" in await run_for_error("ctx.agent.state.a = 1")
    assert await run_script("return ctx.agent.name, ctx.runtime.user_id") == [None, None]


async def test_ctx_agent_and_ctx_runtime_have_the_startup_info() -> None:
    source = """
        local a, r = ctx.agent, ctx.runtime
        return a.name, a.model, a.state_id, r.request_id, r.user_id, r.trace_id
    """
    assert await run_script(source, services=memory_services(), startup_info=GIVEN) == [
        "assistant",
        "m",
        "s-1",
        "r",
        "u",
        "t",
    ]


async def test_memory_finds_the_forms_of_a_word_as_a_search_of_threads_does() -> None:
    source = """
        for _, said in {"two cats", "a catalogue", "in der Strasse", "臺北", "a, b", "香港很好"} do
            ctx.agent.history:append{role = "user", content = said}
        end
        local found = {}
        for index, words in {"cat", "Straße", "台北", "b", "港", "cata"} do
            local texts = {}
            for _, message in ctx.agent.memory:query(words) do table.insert(texts, message.content) end
            found[index] = texts
        end
        return found
    """
    (found,) = await run_script(source, services=memory_services())
    assert found == [["two cats"], ["in der Strasse"], ["臺北"], ["a, b"], ["香港很好"], {}]


async def test_history_and_memory() -> None:
    source = """
        local history, memory = ctx.agent.history, ctx.agent.memory
        for _, said in {"the weather in Hilo", "Hilo and its weather again", "Tee und Kaffee", "天气很好"} do
            history:append{role = "user", content = said}
        end
        memory:set_summary("short")
        local found = memory:query("Weather, Hilo?", 5)
        history:revert()
        local coffee = memory:query("Kaffee")[1].content
        return #history:recent(), memory:summary(), found, coffee, #memory:query("天气"), #memory:query("")
    """
    count, summary, found, coffee, weather, nothing = await run_script(source, services=memory_services())
    assert (count, summary, coffee, weather, nothing) == (3, "short", "Tee und Kaffee", 0, 0)
    assert [message["content"] for message in found] == ["Hilo and its weather again", "the weather in Hilo"]
    assert found[0]["score"] == 1.0


async def test_memory_finds_words_in_text_without_spaces() -> None:
    source = """
        ctx.agent.history:append{role = "user", content = "今天天气很好"}
        return ctx.agent.memory:query("天气")[1].content
    """
    assert await run_for_result(source, services=memory_services()) == "今天天气很好"


async def test_logs_have_a_level() -> None:
    lines: list[tuple[str, str]] = []
    source = "local l = ctx.log l.debug('a', 1) l.info({b = {1}}) l.warn(nil, print ~= nil) l.error('x\\255')"
    await run_script(source, services=make_services(log=lambda level, line: lines.append((level, line))))
    assert lines == [("debug", "a\t1"), ("info", '{"b":[1]}'), ("warning", "nil\ttrue"), ("error", "x\ufffd")]
