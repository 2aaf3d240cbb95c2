"""The driver runs host calls concurrently and delivers their answers one by one."""

import asyncio
from collections.abc import Generator
from typing import Any

import pytest

from tests.luau.engine.script_fixtures import (
    DOUBLE_FUNCTIONS,
    GeneratorScript,
    MemoryJournal,
    double,
    run_source,
    yield_once,
)
from vaka.core.loop.script_journal import ScriptRequest
from vaka.core.loop.wait import DecisionPending
from vaka.core.types.errors import NetworkTimeout, ReplayError, ScriptError, ScriptLimit
from vaka.core.types.ids import CallId, DecisionId
from vaka.core.types.message import Text, ToolResult
from vaka.luau.protocol import HostFunction, HostFunctions, MultipleResults
from vaka.luau.scheduler import drive


async def test_a_call_gets_its_answer() -> None:
    assert await run_source("local n = ...; return ask('double', n) + 1", DOUBLE_FUNCTIONS, 20) == [41]


async def test_calls_of_several_coroutines_run_at_the_same_time() -> None:
    arrived = asyncio.Barrier(3)

    async def meet(name: str) -> str:
        await arrived.wait()
        return name

    source = """
        local names = {}
        for _, name in {"a", "b", "c"} do
            spawn(function() table.insert(names, ask("meet", name)) end)
        end
        repeat ask("pause") until #names == 3
        table.sort(names)
        return names
    """
    assert await run_source(source, {"meet": HostFunction(meet), "pause": HostFunction(yield_once)}) == [
        ["a", "b", "c"]
    ]


async def test_a_host_function_can_return_several_results() -> None:
    async def both() -> MultipleResults:
        return MultipleResults((1, "two"))

    assert await run_source("return ask('both')", {"both": HostFunction(both)}) == [1, "two"]


async def test_a_host_function_with_wants_request_receives_the_request() -> None:
    requests: list[ScriptRequest] = []

    async def look(request: ScriptRequest, word: str) -> str:
        requests.append(request)
        return word

    source = "return ask('look', 'a') .. ask('look', 'b')"
    assert await run_source(source, {"look": HostFunction(look, wants_request=True)}) == ["ab"]
    assert requests == [ScriptRequest.from_arguments(1, "look", ["a"]), ScriptRequest.from_arguments(2, "look", ["b"])]


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ScriptError("not today"), "not today"),
        (NetworkTimeout("too late", reason="timeout"), "too late"),
        (ValueError("bad"), "refuse: ValueError: bad"),
        (RuntimeError(), "refuse: RuntimeError"),
        (ScriptError(""), "script"),
    ],
)
async def test_an_error_of_a_host_function_can_be_caught_by_the_script(error: Exception, message: str) -> None:
    async def refuse() -> None:
        raise error

    for local in (False, True):
        functions = {"refuse": HostFunction(refuse, local=local)}
        assert await run_source("return pcall(ask, 'refuse')", functions) == [False, message]


async def test_an_uncaught_error_names_the_line_of_the_call() -> None:
    async def refuse() -> None:
        raise ScriptError("not today")

    with pytest.raises(ScriptError, match=r"^test\.luau:2: not today$") as caught:
        await run_source("local x = 1\nask('refuse')", {"refuse": HostFunction(refuse)})
    assert "test.luau:2" in caught.value.traceback


async def test_the_error_of_an_unknown_function_suggests_a_similar_one() -> None:
    with pytest.raises(ScriptError, match=r"test\.luau:1: the host has no function 'doubel'; did you mean 'double'"):
        await run_source("ask('doubel', 1)", DOUBLE_FUNCTIONS)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("ask('double')", "double needs 1 argument at least, and was given 0"),
        ("ask('double', 1, 2)", "double takes 1 argument at most, and was given 2"),
    ],
)
async def test_a_wrong_number_of_arguments_is_an_error_that_names_the_function(call: str, message: str) -> None:
    assert await run_source(f"return select(2, pcall(function() {call} end))", DOUBLE_FUNCTIONS) == [message]


async def test_nils_beyond_the_last_argument_are_ignored() -> None:
    assert await run_source("return ask('double', 4, nil, nil)", DOUBLE_FUNCTIONS) == [8]
    assert await run_source("return ask('double', 4, table.unpack({}, 1, 5000))", DOUBLE_FUNCTIONS) == [8]


async def test_self_is_not_counted_as_an_argument() -> None:
    class Library:
        async def put(self, thing: str, place: str = "top") -> str:
            return f"{thing} {place}"

    assert await run_source("return ask('put', 'book')", {"put": HostFunction(Library().put)}) == ["book top"]


@pytest.mark.parametrize("value", [{1, 2}, object(), {"a": [lambda: 1]}, 2**60 + 1, "\ud800"])
async def test_an_invalid_value_is_an_error_of_the_function_that_returned_it(value: Any) -> None:
    async def give() -> Any:
        return value

    for local in (False, True):
        ok, message = await run_source("return pcall(ask, 'give')", {"give": HostFunction(give, local=local)})
        assert not ok
        assert "cannot be" in message


async def test_a_list_that_contains_itself_is_an_error_of_the_function_that_returned_it() -> None:
    endless: list[Any] = []
    endless.append(endless)

    async def give() -> Any:
        return endless

    ok, message = await run_source("return pcall(ask, 'give')", {"give": HostFunction(give)})
    assert (ok, message) == (
        False,
        "give returned an invalid value: lists and tables are nested deeper than 200, or one contains itself",
    )


async def test_local_functions_are_answered_at_once_and_not_recorded() -> None:
    words: list[str] = []

    async def say(word: str) -> int:
        words.append(word)
        return len(words)

    source = """
        spawn(function() ask("double", 1) ask("say", "after") end)
        ask("say", "one")
        ask("say", "two")
        ask("double", 2)
        return ask("say", "end")
    """
    functions = {"say": HostFunction(say, local=True), **DOUBLE_FUNCTIONS}
    book = MemoryJournal()
    assert await run_source(source, functions, journal=book) == [4]
    assert words == ["one", "two", "after", "end"]
    assert [answer.request.name for answer in book.answers] == ["double", "double"]
    words.clear()
    assert await run_source(source, functions, journal=book.first_answers(2)) == [4]
    assert words == ["one", "two", "after", "end"]


async def test_bytes_are_passed_and_recorded() -> None:
    async def turn(value: Any) -> Any:
        assert value == b"\xff\x00"
        return [value, bytearray(b"\xfe"), {"$bytes": "mine"}]

    source = """
        local got = ask("turn", "\\xff\\0")
        return got[1] == "\\xff\\0", buffer.tostring(got[2]) == "\\xfe", got[3]["$bytes"]
    """
    book = MemoryJournal()
    functions = {"turn": HostFunction(turn)}
    assert await run_source(source, functions, journal=book) == [True, True, "mine"]
    assert book.answers[0].value == [{"$bytes": "/wA="}, {"$buffer": "/g=="}, {"$table": {"$bytes": "mine"}}]
    assert await run_source(source, functions, journal=book.first_answers(1)) == [True, True, "mine"]


async def test_the_answer_of_a_durable_function_is_committed_before_the_script_continues() -> None:
    book = MemoryJournal()
    counts: list[int] = []

    async def look() -> None:
        counts.append(book.committed_count)

    functions = {
        "double": HostFunction(double, durable=True),
        "look": HostFunction(look, local=True),
        "free": HostFunction(double),
    }
    await run_source("ask('free', 1) ask('look') ask('double', 1) ask('look')", functions, journal=book)
    assert counts == [0, 2]


async def test_the_clock_and_the_random_seed_come_from_the_journal() -> None:
    source = "local a = os.time(); local n = math.random(1, 2^30); ask('double', 1); return a, os.time(), n"
    book = MemoryJournal()
    book.record_start({"seed": 42})
    first = await run_source(source, DOUBLE_FUNCTIONS, journal=book)
    assert first[:2] == [1, 1]
    again = MemoryJournal(book.first, [book.answers[0]._replace(at=61_000)])
    assert await run_source(source, DOUBLE_FUNCTIONS, journal=again) == [1, 61, first[2]]


# ---------------------------------------------------------------------------------------------------- replay

PARALLEL = """
    local order = {}
    local function task(name, n)
        spawn(function()
            local ok, value = pcall(ask, name, n)
            table.insert(order, `{name}{n}={if ok then value else "!" .. value}`)
            if ok and value < 40 then table.insert(order, `again={ask("double", value)}`) end
        end)
    end
    task("double", 1) task("late", 2) task("fail", 3) task("late", 10)
    local dice = math.random(1, 1000)
    while #order < 7 do ask("pause") end
    return order, dice, os.time()
"""


class ReorderingHost:
    """Host functions that return in an order of their own."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []

    async def late(self, number: int) -> int:
        self.calls.append(("late", number))
        for _ in range(20 - number):
            await asyncio.sleep(0)
        return number * 3

    async def fail(self, number: int) -> int:
        self.calls.append(("fail", number))
        raise ScriptError(f"no {number}")

    async def double(self, number: int) -> int:
        self.calls.append(("double", number))
        return await double(number)

    def functions(self) -> HostFunctions:
        methods = {name: HostFunction(getattr(self, name)) for name in ("late", "fail", "double")}
        return {**methods, "pause": HostFunction(yield_once)}


async def test_replaying_any_prefix_of_the_answers_gives_the_same_result() -> None:
    book, host = MemoryJournal(), ReorderingHost()
    first = await run_source(PARALLEL, host.functions(), journal=book)
    assert len(first[0]) == 7
    result = None
    for count in range(len(book.answers) + 1):
        again, late = book.first_answers(count), ReorderingHost()
        result = await run_source(PARALLEL, late.functions(), journal=again)
        assert sorted(result[0]) == sorted(first[0])
        assert result[1] == first[1]
        answered = [answer.request for answer in book.answers[:count]]
        assert again.answers[:count] == book.answers[:count]
        requested = [answer.request for answer in again.answers[count:]]
        assert not set(requested) & set(answered), "an answered call was made again"
    assert result == first


async def test_a_generator_replaces_a_vm() -> None:
    def body(first: int) -> Generator[tuple[str, Any], Any, Any]:
        total = yield "double", first
        try:
            yield "fail", total
        except ScriptError as error:
            return total, str(error)

    book = MemoryJournal()
    script = GeneratorScript(body)
    assert await drive(script, ReorderingHost().functions(), book, [4]) == [(8, "no 8")]
    assert script.closed
    for count in range(3):
        late = ReorderingHost()
        assert await drive(GeneratorScript(body), late.functions(), book.first_answers(count), [4]) == [(8, "no 8")]
        assert late.calls == [("double", 4), ("fail", 8)][count:]


async def record_answers(source: str) -> MemoryJournal:
    book = MemoryJournal()
    await run_source(source, DOUBLE_FUNCTIONS, journal=book)
    return book


@pytest.mark.parametrize(
    ("now", "message"),
    [
        ("return ask('double', 2)", "request 1 is 'double' now, and was 'double' or had other arguments"),
        ("return ask('other', 1)", "request 1 is 'other' now, and was 'double' or had other arguments"),
        ("return 1", "the script has ended, but the log has an answer to 'double' as request 1"),
        ("return ask('say')", "the script has ended, but the log has an answer to 'double' as request 1"),
        ("ask('say') return ask('double', 1)", "the script does not ask for 'double' as request 1 any more"),
    ],
)
async def test_a_script_that_makes_other_requests_is_a_replay_error(now: str, message: str) -> None:
    book = await record_answers("return ask('double', 1)")
    functions = {**DOUBLE_FUNCTIONS, "other": HostFunction(double), "say": HostFunction(yield_once, local=True)}
    with pytest.raises(ReplayError, match=message):
        await run_source(now, functions, journal=book.first_answers(1))


async def test_a_script_with_too_many_answers_is_stopped_with_advice() -> None:
    book = MemoryJournal()
    source = "for i = 1, 10 do ask('double', i) end"
    with pytest.raises(ScriptError, match="received 5 answers, too many to replay: use on_input"):
        await run_source(source, DOUBLE_FUNCTIONS, journal=book, max_answers=5)
    assert len(book.answers) == 5
    with pytest.raises(ScriptError, match="use on_input"):
        await run_source(source, DOUBLE_FUNCTIONS, journal=book.first_answers(5), max_answers=5)


# ---------------------------------------------------------------------------------------------------- people


async def test_pending_decisions_are_raised_when_no_other_call_is_running() -> None:
    async def ask_a_person(name: str) -> str:
        raise DecisionPending(DecisionId(f"decision-{name}"))

    source = """
        spawn(function() ask("person", "a") end)
        spawn(function() ask("double", 1) ask("double", 2) ask("person", "b") end)
        ask("double", 3)
        ask("person", "c")
    """
    book = MemoryJournal()
    with pytest.raises(DecisionPending) as caught:
        await run_source(source, {"person": HostFunction(ask_a_person), **DOUBLE_FUNCTIONS}, journal=book)
    assert sorted(caught.value.decisions) == ["decision-a", "decision-b", "decision-c"]
    assert [answer.request.name for answer in book.answers] == ["double"] * 3
    assert book.committed_count == 3

    async def answered(name: str) -> str:
        return f"yes {name}"

    again = book.first_answers(3)
    await run_source(source, {"person": HostFunction(answered), **DOUBLE_FUNCTIONS}, journal=again)
    assert again.answers[:3] == book.answers
    assert {answer.request.name for answer in again.answers[3:]} == {"person"}


async def test_a_tool_result_becomes_its_value_or_an_error() -> None:
    async def tool(name: str) -> ToolResult:
        if name == "bad":
            return ToolResult(call=CallId("1"), content=(Text(text="it broke"),), failed=True, reason="error")
        if name == "text":
            return ToolResult(call=CallId("2"), content=(Text(text="words"),))
        return ToolResult(call=CallId("3"), value={"n": 1})

    source = "return ask('tool', 'text'), ask('tool', 'value').n, pcall(ask, 'tool', 'bad')"
    book = MemoryJournal()
    assert await run_source(source, {"tool": HostFunction(tool)}, journal=book) == ["words", 1, False, "it broke"]
    assert [answer.value for answer in book.answers] == [None, None, None]
    assert await run_source(source, {"tool": HostFunction(tool)}, journal=book.first_answers(2)) == [
        "words",
        1,
        False,
        "it broke",
    ]


async def test_a_script_that_makes_too_many_local_calls_is_stopped() -> None:
    async def note(*_: Any) -> None:
        """Accept anything."""

    functions = {"note": HostFunction(note, local=True)}
    assert await run_source("for i = 1, 5 do ask('note', {x = i}) end", functions, max_local_calls=5) == []
    with pytest.raises(ScriptLimit, match="functions such as log and emit more than 5 times"):
        await run_source("while true do pcall(ask, 'note', 'x') end", functions, max_local_calls=5)
