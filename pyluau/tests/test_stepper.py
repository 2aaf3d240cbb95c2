from typing import Any

import pytest
from stepper_helpers import PARALLEL, drive, script

import pyluau
from pyluau import Call, Done, State, Waiting


def test_a_script_without_calls_is_done_at_once(state: State) -> None:
    step = script(state, "local a, b = ...; return a + b").start([1, 2])
    assert isinstance(step, Done)
    assert (step.value, step.values) == (3, [3])


def test_several_results_are_a_list(state: State) -> None:
    step = script(state, "return 1, nil, 'x'").start()
    assert isinstance(step, Done)
    assert step.value == step.values == [1, None, "x"]


def test_no_result_is_none(state: State) -> None:
    step = script(state, "").start()
    assert isinstance(step, Done)
    assert (step.value, step.values) == (None, [])


def test_a_request_waits_for_its_answer(state: State) -> None:
    stepper = script(state, "return request('greet', ...)")
    step = stepper.start(["Ada", {"n": [1, []]}])
    assert isinstance(step, Waiting)
    (call,) = step.calls
    assert (call.id, call.name, call.args, step.dropped) == (1, "greet", ["Ada", {"n": [1, []]}], [])
    step = stepper.answer(1, {"text": "hi", "list": []})
    assert isinstance(step, Done)
    assert step.value == {"text": "hi", "list": []}


def test_steps_can_be_matched(state: State) -> None:
    match script(state, "request('a', 1)").start():
        case Waiting([Call(1, "a", [1])]):
            pass
        case other:
            pytest.fail(repr(other))
    assert repr(script(state, "request('a', 1)").start()) == (
        'Waiting(calls=[Call(id=1, name="a", args=[1])], dropped=[])'
    )
    assert repr(script(state, "return 1").start()) == "Done(value=1)"


def test_a_tuple_answers_with_several_values(state: State) -> None:
    stepper = script(state, "return request('a')")
    stepper.start()
    step = stepper.answer(1, (1, None, "x"))
    assert isinstance(step, Done)
    assert step.values == [1, None, "x"]


def test_an_empty_tuple_answers_with_nothing(state: State) -> None:
    stepper = script(state, "return select('#', request('a'))")
    stepper.start()
    step = stepper.answer(1, ())
    assert isinstance(step, Done)
    assert step.value == 0


@pytest.mark.parametrize("error", ["refused", {"code": 7}, 42, [1]])
def test_a_failure_is_an_error_the_script_can_catch(state: State, error: Any) -> None:
    stepper = script(state, "local ok, e = pcall(request, 'a') return ok, e, request('b')")
    stepper.start()
    step = stepper.fail(1, error)
    assert isinstance(step, Waiting)
    step = stepper.answer(2, "after")
    assert isinstance(step, Done)
    assert step.values == [False, error, "after"]


def test_an_uncaught_failure_ends_the_script(state: State) -> None:
    stepper = script(state, "local function f() request('a') end\nf()\nreturn 1", chunkname="=mine", opt=1)
    stepper.start()
    with pytest.raises(pyluau.LuauError, match="refused") as caught:
        stepper.fail(1, "refused")
    assert "mine:2" in caught.value.traceback
    with pytest.raises(RuntimeError, match="is over"):
        stepper.answer(1, 1)


def test_a_failure_may_be_an_exception(state: State) -> None:
    stepper, problem = script(state, "request('a')"), OSError("disk")
    stepper.start()
    with pytest.raises(OSError, match="disk") as caught:
        stepper.fail(1, problem)
    assert caught.value is problem


def test_an_error_of_the_script_is_raised(state: State) -> None:
    with pytest.raises(pyluau.LuauError, match="chunk:1: oh") as caught:
        script(state, "error('oh')").start()
    assert caught.value.line == 1


@pytest.mark.parametrize(
    "source",
    [
        "xpcall(function() got = request('a', 1) end, print) return got",
        "local ok, got = pcall(function() return (pcall(function() return 0 end)) and request('a', 1) end) return got",
        "local co = coroutine.wrap(function() return request('a', 1) end) return co()",
        "for _, v in {1} do got = request('a', v) end return got",
        "local function deep(n) return if n == 0 then request('a', 1) else (deep(n - 1)) end return deep(100)",
        "spawn(function() got = request('a', 1) wake(main, got) end) main = coroutine.running() return park()",
    ],
)
def test_requests_work_in_many_places(state: State, source: str) -> None:
    assert drive(script(state, source), []) == (1, [(1, "a", [1])])


@pytest.mark.parametrize(
    "source",
    [
        "table.sort({2, 1}, function() request('a') end)",
        "local t = setmetatable({}, {__index = function() return request('a') end}) return t.x",
        "string.gsub('x', 'x', function() request('a') end)",
        "local t = setmetatable({}, {__add = function() park() end}) return t + 1",
    ],
)
def test_a_request_where_luau_cannot_yield_is_an_error(state: State, source: str) -> None:
    with pytest.raises(pyluau.LuauError, match="cannot wait for the host here"):
        script(state, source).start()


def test_an_iterator_may_wait(state: State) -> None:
    source = """
    local out = {}
    local function following(_, i) i = (i or 0) + 1 if i < 4 then return request('next', i) end end
    for v in following do out[#out + 1] = v end
    return out
    """
    assert drive(script(state, source), []) == ([1, 2, 3], [(1, "next", [1]), (2, "next", [2]), (3, "next", [3])])


def test_a_wrapped_generator_may_wait(state: State) -> None:
    source = """
    local out = {}
    for v in coroutine.wrap(function() for i = 1, 3 do coroutine.yield(request('get', i)) end end) do
        out[#out + 1] = v
    end
    return out
    """
    assert drive(script(state, source), [], lambda call: call.args[0] * 10)[0] == [10, 20, 30]


def test_a_step_has_only_new_calls(state: State) -> None:
    stepper = script(state, "for i = 1, 3 do spawn(function() request('a', i) request('b', i) end) end park()")
    step = stepper.start()
    assert isinstance(step, Waiting)
    assert [call.args for call in step.calls] == [[1], [2], [3]]
    step = stepper.answer(2, None)
    assert isinstance(step, Waiting)
    assert [(call.id, call.name, call.args) for call in step.calls] == [(4, "b", [2])]
    step = stepper.answer(1, None)
    assert isinstance(step, Waiting)
    assert [call.id for call in step.calls] == [5]


@pytest.mark.parametrize("order", [[1, 2, 3], [3, 2, 1], [2, 3, 1]])
def test_calls_are_answered_in_any_order(state: State, order: list[int]) -> None:
    body = """
    local function ask(name) return function() return request(name) end end
    return parallel(ask('a'), ask('b'), ask('c'))
    """
    stepper = script(state, PARALLEL + body)
    step = stepper.start()
    for number in order:
        assert isinstance(step, Waiting)
        step = stepper.answer(number, number * 10)
    assert isinstance(step, Done)
    assert step.value == [10, 20, 30]


def test_spawn_runs_at_once_until_it_waits(state: State) -> None:
    source = """
    local log = {}
    local t = spawn(function(a, b) log[#log + 1] = a + b; request('x'); log[#log + 1] = 'late' end, 1, 2)
    log[#log + 1] = coroutine.status(t)
    return log
    """
    step = script(state, source).start()
    assert isinstance(step, Done)
    assert step.value == [3, "suspended"]


def test_an_error_in_a_spawned_coroutine_ends_the_script(state: State) -> None:
    with pytest.raises(pyluau.LuauError, match="chunk:1: inside") as caught:
        script(state, "pcall(spawn, function() error('inside') end) request('a')").start()
    assert caught.value.message == "chunk:1: inside"
    stepper = script(state, "spawn(function() request('a') error({code = 1}) end) request('b')")
    stepper.start()
    with pytest.raises(pyluau.LuauError) as late:
        stepper.answer(1, None)
    assert late.value.value == {"code": 1}


def test_wake_passes_values_to_park(state: State) -> None:
    source = """
    local t = spawn(function() local a, b = park() request('got', a, b) end)
    return wake(t, 1, 2), wake(t), coroutine.status(t), request('main')
    """
    stepper = script(state, source)
    step = stepper.start()
    assert isinstance(step, Waiting)
    assert [(call.name, call.args) for call in step.calls] == [("main", []), ("got", [1, 2])]
    step = stepper.answer(1, "end")
    assert isinstance(step, Done)
    assert step.values == [True, False, "suspended", "end"]


def test_when_the_main_function_ends_the_others_are_cancelled(state: State) -> None:
    stepper = script(state, "spawn(function() request('a') request('never') end) return request('b')")
    stepper.start()
    step = stepper.answer(2, "end")
    assert isinstance(step, Done)
    with pytest.raises(RuntimeError, match="is over"):
        stepper.answer(1, None)


def test_a_deadlock_is_an_error(state: State) -> None:
    with pytest.raises(pyluau.Deadlock, match="parked"):
        script(state, "park()").start()
    stepper = script(state, "request('a') park()")
    stepper.start()
    with pytest.raises(pyluau.Deadlock):
        stepper.answer(1, None)
    assert state.eval("1") == 1


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("request('a', print)", "a function is not plain data"),
        ("request('a', {coroutine.running()})", "a thread is not plain data"),
        ("request('a', newproxy())", "a userdata is not plain data"),
        ("local t = {} t.t = t request('a', t)", "holds itself"),
        ("request('a', {[{}] = 1})", "a table as a key"),
    ],
)
def test_only_plain_data_reaches_the_host(state: State, source: str, why: str) -> None:
    with pytest.raises(pyluau.LuauError, match=f"cannot ask the host for 'a': .*{why}"):
        script(state, source).start()


@pytest.mark.parametrize("source", ["return print", "return {f = print}", "local t = {} t.t = t return t"])
def test_only_plain_data_is_a_result(state: State, source: str) -> None:
    with pytest.raises(pyluau.ConversionError):
        script(state, source).start()
    assert state.eval("1") == 1


def test_a_request_needs_a_name(state: State) -> None:
    with pytest.raises(pyluau.LuauError, match="string expected"):
        script(state, "request({})").start()


def test_misuse_of_a_stepper_is_an_error(state: State) -> None:
    stepper = script(state, "request('a')")
    with pytest.raises(RuntimeError, match="was not started"):
        stepper.answer(1, None)
    stepper.start()
    with pytest.raises(RuntimeError, match="was started already"):
        stepper.start()
    with pytest.raises(RuntimeError, match="call 9 was never made"):
        stepper.answer(9, None)
    with pytest.raises(pyluau.ConversionError):
        stepper.answer(1, object())
    stepper.answer(1, 1)


def test_primitives_are_errors_outside_a_stepper(state: State) -> None:
    state.define("request", state.primitives["request"])
    with pytest.raises(pyluau.LuauError, match="there is no host to ask"):
        state.execute("request('a')")


def test_primitives_are_globals_only_with_expose(state: State) -> None:
    step = state.stepper("return request, spawn, park, wake, array").start()
    assert isinstance(step, Done)
    assert step.values == [None] * 5


def test_a_prelude_can_add_to_the_environment(state: State) -> None:
    prelude = """
    local env, host = ...
    env.ctx = table.freeze({greet = function(name) return host.request('greet', name) end})
    """
    stepper = state.stepper("return ctx.greet('Ada')", prelude=prelude)
    step = stepper.start()
    assert isinstance(step, Waiting)
    assert step.calls[0].args == ["Ada"]


def test_preludes_may_be_functions_or_bytecode_and_several(state: State) -> None:
    one = state.load(state.compile("local env = ...; env.a = 1"))
    two = state.compile("local env = ...; env.b = env.a + 1")
    step = state.stepper(state.compile("return a + b"), prelude=[one, two]).start()
    assert isinstance(step, Done)
    assert step.value == 3


def test_the_error_of_a_prelude_is_raised(state: State) -> None:
    with pytest.raises(pyluau.LuauError, match="prelude:1: no"):
        state.stepper("return 1", prelude="error('no')")


def test_a_function_can_be_stepped(state: State) -> None:
    state.define("request", state.primitives["request"])
    function = state.eval("function(n) return request('a', n) end")
    assert drive(state.stepper(function), [5])[0] == 5
    assert drive(state.stepper(function), [6])[0] == 6


def test_values_can_be_put_into_the_environment(state: State) -> None:
    step = state.stepper("x += 1; return x", env={"x": 1}).start()
    assert isinstance(step, Done)
    assert step.value == 2
