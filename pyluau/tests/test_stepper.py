from typing import Any

import pytest

import pyluau
from pyluau import Call, Done, Limits, State, Stepper, Waiting


def script(state: State, source: str, **options: Any) -> Stepper:
    return state.stepper(source, expose=True, **options)


def drive(stepper: Stepper, args: list[Any], answer: Any = lambda call: call.args[0]) -> tuple[Any, list[Any]]:
    """Answer one call at a time, the oldest first."""
    step, pending, seen = stepper.start(args), [], []
    while isinstance(step, Waiting):
        pending += step.calls
        seen += [(call.id, call.name, call.args) for call in step.calls]
        pending = [call for call in pending if call.id not in step.dropped]
        call = pending.pop(0)
        step = stepper.answer(call.id, answer(call))
    return step.value, seen


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


@pytest.mark.parametrize("error", ["told", {"code": 7}, 42, [1]])
def test_a_failure_is_an_error_the_script_can_catch(state: State, error: Any) -> None:
    stepper = script(state, "local ok, e = pcall(request, 'a') return ok, e, request('b')")
    stepper.start()
    step = stepper.fail(1, error)
    assert isinstance(step, Waiting)
    step = stepper.answer(2, "after")
    assert isinstance(step, Done)
    assert step.values == [False, error, "after"]


def test_a_failure_nobody_catches_ends_the_script(state: State) -> None:
    stepper = script(state, "local function f() request('a') end\nf()\nreturn 1", chunkname="=mine", opt=1)
    stepper.start()
    with pytest.raises(pyluau.LuauError, match="told") as caught:
        stepper.fail(1, "told")
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


@pytest.mark.parametrize("source", [
    "xpcall(function() got = request('a', 1) end, print) return got",
    "local ok, got = pcall(function() return (pcall(function() return 0 end)) and request('a', 1) end) return got",
    "local co = coroutine.wrap(function() return request('a', 1) end) return co()",
    "for _, v in {1} do got = request('a', v) end return got",
    "local function deep(n) return if n == 0 then request('a', 1) else (deep(n - 1)) end return deep(100)",
    "local t = spawn(function() got = request('a', 1) wake(main, got) end) main = coroutine.running() return park()",
])
def test_requests_work_in_many_places(state: State, source: str) -> None:
    assert drive(script(state, source), []) == (1, [(1, "a", [1])])


@pytest.mark.parametrize("source", [
    "table.sort({2, 1}, function() request('a') end)",
    "local t = setmetatable({}, {__index = function() return request('a') end}) return t.x",
    "string.gsub('x', 'x', function() request('a') end)",
    "local t = setmetatable({}, {__add = function() park() end}) return t + 1",
])
def test_where_luau_cannot_wait_it_says_so(state: State, source: str) -> None:
    with pytest.raises(pyluau.LuauError, match="cannot wait for the host here"):
        script(state, source).start()


def test_an_iterator_may_wait(state: State) -> None:
    source = "local out = {} for v in function(_, i) i = (i or 0) + 1 if i < 4 then return request('next', i) end end do out[#out + 1] = v end return out"
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


def test_only_new_calls_are_told(state: State) -> None:
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


PARALLEL = """
local function parallel(...)
    local main, left, results = coroutine.running(), select('#', ...), {}
    for i, f in {...} do
        spawn(function()
            results[i] = f()
            left -= 1
            if left == 0 then wake(main) end
        end)
    end
    if left > 0 then park() end
    return results
end
"""


@pytest.mark.parametrize("order", [[1, 2, 3], [3, 2, 1], [2, 3, 1]])
def test_calls_are_answered_in_any_order(state: State, order: list[int]) -> None:
    body = "return parallel(function() return request('a') end, function() return request('b') end, function() return request('c') end)"
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


def test_wake_hands_values_over(state: State) -> None:
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


def test_the_users_resume_of_a_waiting_coroutine_gives_control_back(state: State) -> None:
    source = """
    local co = coroutine.create(function(x) local got = request('a', x) return 'ended ' .. got end)
    local first = table.pack(coroutine.resume(co, 7))
    local status = coroutine.status(co)
    local again = table.pack(coroutine.resume(co))
    request('b')
    return first.n, first[1], status, again[1], again[2], coroutine.status(co), coroutine.resume(co)
    """
    stepper = script(state, source)
    step = stepper.start()
    assert isinstance(step, Waiting)
    assert [(call.name, call.args) for call in step.calls] == [("a", [7]), ("b", [])]
    stepper.answer(1, "well")
    step = stepper.answer(2, None)
    assert isinstance(step, Done)
    assert step.values == [
        1, True, "suspended", False, "coroutine is waiting for the host", "suspended", True, "ended well",
    ]


def test_what_is_yielded_to_nobody_is_kept_for_the_next_resume(state: State) -> None:
    source = """
    local co = coroutine.create(function() request('a') local x = coroutine.yield(1, 2) return 'got ' .. x end)
    coroutine.resume(co)
    request('b')
    local first = table.pack(coroutine.resume(co))
    return first, table.pack(coroutine.resume(co, 'x')), coroutine.status(co), coroutine.resume(co)
    """
    stepper = script(state, source)
    stepper.start()
    stepper.answer(1, None)
    step = stepper.answer(2, None)
    assert isinstance(step, Done)
    assert step.values == [
        {1: True, 2: 1, 3: 2, "n": 3}, {1: True, 2: "got x", "n": 2}, "dead", False, "cannot resume dead coroutine",
    ]


def test_an_error_to_nobody_is_kept_for_the_next_resume(state: State) -> None:
    source = """
    local co = coroutine.create(function() request('a') error('late', 0) end)
    coroutine.resume(co)
    request('b')
    return coroutine.resume(co)
    """
    stepper = script(state, source)
    stepper.start()
    stepper.answer(1, None)
    step = stepper.answer(2, None)
    assert isinstance(step, Done)
    assert step.values == [False, "late"]


def test_an_error_in_a_wrapped_coroutine_reaches_its_caller(state: State) -> None:
    source = "local f = coroutine.wrap(function() request('a') error('inside', 0) end) return pcall(f)"
    stepper = script(state, source)
    stepper.start()
    step = stepper.answer(1, None)
    assert isinstance(step, Done)
    assert step.values == [False, "inside"]


def test_wrapped_coroutines_wait_through_each_other(state: State) -> None:
    source = """
    local function layer(n)
        return coroutine.wrap(function()
            if n == 0 then return request('a', 1) + request('a', 2) end
            local inner = layer(n - 1)
            coroutine.yield('at ' .. n)
            return inner() + n
        end)
    end
    local f = layer(0)
    for n = 1, 3 do
        local below = f
        f = coroutine.wrap(function() return below() + n end)
    end
    return f()
    """
    assert drive(script(state, source), []) == (9, [(1, "a", [1]), (2, "a", [2])])


def test_closing_a_waiting_coroutine_drops_its_call(state: State) -> None:
    source = """
    local co = coroutine.create(function() request('a') end)
    coroutine.resume(co)
    request('b')
    local closed = coroutine.close(co)
    request('c')
    return closed, coroutine.status(co)
    """
    stepper = script(state, source)
    stepper.start()
    step = stepper.answer(2, None)
    assert isinstance(step, Waiting)
    assert (step.dropped, [call.name for call in step.calls]) == ([1], ["c"])
    with pytest.raises(RuntimeError, match="call 1 was answered already, or dropped"):
        stepper.answer(1, None)
    step = stepper.answer(3, None)
    assert isinstance(step, Done)
    assert step.values == [True, "dead"]


def test_a_call_made_and_dropped_within_a_step_is_never_told(state: State) -> None:
    source = "local co = coroutine.create(function() request('a') end) coroutine.resume(co) coroutine.close(co) request('b')"
    step = script(state, source).start()
    assert isinstance(step, Waiting)
    assert ([call.name for call in step.calls], step.dropped) == (["b"], [])


def test_closing_what_a_caller_waits_for_is_an_error_there(state: State) -> None:
    source = """
    local inner
    local t = spawn(function()
        local ok, e = pcall(coroutine.wrap(function() inner = coroutine.running() request('a') end))
        request('told', ok, e)
    end)
    coroutine.close(inner)
    request('main')
    """
    step = script(state, source).start()
    assert isinstance(step, Waiting)
    assert [(call.name, call.args) for call in step.calls] == [
        ("main", []), ("told", [False, "the coroutine was closed"]),
    ]


def test_coroutines_tell_the_usual_things(state: State) -> None:
    source = """
    local main = coroutine.running()
    local inner = coroutine.wrap(function() return coroutine.status(main), coroutine.isyieldable() end)
    return coroutine.isyieldable(), typeof(main), inner()
    """
    step = script(state, source).start()
    assert isinstance(step, Done)
    assert step.values == [True, "thread", "normal", True]


def test_yielding_from_the_main_function_is_an_error(state: State) -> None:
    with pytest.raises(pyluau.LuauError, match="attempt to yield from outside a coroutine"):
        script(state, "coroutine.yield(1)").start()
    step = script(state, "return pcall(coroutine.yield, 1)").start()
    assert isinstance(step, Done)
    assert step.values[0] is False


def test_when_the_main_function_ends_the_others_are_cancelled(state: State) -> None:
    stepper = script(state, "spawn(function() request('a') request('never') end) return request('b')")
    stepper.start()
    step = stepper.answer(2, "end")
    assert isinstance(step, Done)
    with pytest.raises(RuntimeError, match="is over"):
        stepper.answer(1, None)


def test_a_deadlock_is_told(state: State) -> None:
    with pytest.raises(pyluau.Deadlock, match="parked"):
        script(state, "park()").start()
    stepper = script(state, "request('a') park()")
    stepper.start()
    with pytest.raises(pyluau.Deadlock):
        stepper.answer(1, None)
    assert state.eval("1") == 1


@pytest.mark.parametrize(("source", "why"), [
    ("request('a', print)", "a function is not plain data"),
    ("request('a', {coroutine.running()})", "a thread is not plain data"),
    ("request('a', newproxy())", "a userdata is not plain data"),
    ("local t = {} t.t = t request('a', t)", "holds itself"),
    ("request('a', {[{}] = 1})", "a table as a key"),
])
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


def test_misuse_is_told(state: State) -> None:
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


def test_without_a_stepper_there_is_nobody_to_ask(state: State) -> None:
    state.define("request", state.primitives["request"])
    with pytest.raises(pyluau.LuauError, match="there is no host to ask"):
        state.execute("request('a')")


def test_primitives_are_no_globals_unless_asked_for(state: State) -> None:
    step = state.stepper("return request, spawn, park, wake, array").start()
    assert isinstance(step, Done)
    assert step.values == [None] * 5


def test_a_prelude_furnishes_the_environment(state: State) -> None:
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


def test_a_failing_prelude_is_told(state: State) -> None:
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


def test_scripts_that_share_a_state_do_not_meet(state: State) -> None:
    steppers = [script(state, "n = ...; request('a'); n += 1; return n") for _ in range(100)]
    for number, stepper in enumerate(steppers):
        stepper.start([number])
    results = [stepper.answer(1, None) for stepper in reversed(steppers)]
    assert [step.value for step in results if isinstance(step, Done)] == [n + 1 for n in reversed(range(100))]


def test_random_numbers_and_names_depend_on_the_script_alone(state: State) -> None:
    source = "local a = math.random(1e6) request('x') return a, math.random(1e6), tostring({})"

    def run() -> Any:
        stepper = script(state, source, seed=3)
        stepper.start()
        script(state, "return math.random(), tostring({}), tostring({})").start()
        return stepper.answer(1, None)

    assert run().values == run().values


def test_each_script_can_have_a_clock(state: State) -> None:
    step = script(state, "return os.time()", clock=lambda: 12.5).start()
    assert isinstance(step, Done)
    assert step.value == 12


def test_time_between_steps_does_not_count(state: State) -> None:
    import time

    stepper = script(state, "request('a') return 1", limits=Limits(seconds=0.1))
    stepper.start()
    time.sleep(0.2)
    assert isinstance(stepper.answer(1, None), Done)
    assert stepper.seconds < 0.1


def test_limits_count_all_steps_together(state: State) -> None:
    source = "while true do for i = 1, 400 do end request('a') end"
    stepper = script(state, source, limits=Limits(instructions=1000))
    stepper.start()
    stepper.answer(1, None)
    assert 800 < stepper.instructions < 1000
    with pytest.raises(pyluau.OutOfInstructions):
        stepper.answer(2, None)
    with pytest.raises(RuntimeError, match="is over"):
        stepper.answer(3, None)


@pytest.mark.parametrize("source", [
    "while true do end",
    "request('a') while true do pcall(function() while true do end end) end",
    "spawn(function() while true do end end)",
    "coroutine.wrap(function() request('a') while true do end end)()",
])
def test_a_killed_script_harms_no_other(state: State, source: str) -> None:
    other = script(state, "return request('b')")
    other.start()
    stepper = script(state, source, limits=Limits(seconds=0.05))
    with pytest.raises(pyluau.OutOfTime):
        if isinstance(stepper.start(), Waiting):
            stepper.answer(1, None)
    step = other.answer(1, "fine")
    assert isinstance(step, Done)
    assert step.value == "fine"


def test_coroutines_are_counted_for_each_script(state: State) -> None:
    limits = Limits(coroutines=10)
    source = "local t = {} for i = 1, ... do t[i] = coroutine.create(print) end return request('a')"
    for _ in range(5):
        script(state, source, limits=limits).start([10])
    with pytest.raises(pyluau.TooManyCoroutines):
        script(state, source, limits=limits).start([11])


def test_a_closed_stepper_is_over(state: State) -> None:
    stepper = script(state, "request('a')")
    stepper.start()
    with stepper:
        pass
    stepper.close()
    with pytest.raises(RuntimeError, match="is over"):
        stepper.answer(1, None)


def test_steppers_that_are_dropped_leave_nothing_behind(state: State) -> None:
    def batch() -> None:
        for _ in range(200):
            script(state, "spawn(function() request('a', table.create(100)) end) park2 = {} request('b')").start()

    batch()
    state.collect()
    before = state.memory_used
    for _ in range(5):
        batch()
    state.collect()
    assert state.memory_used < before + 50_000


def test_a_stepper_outlives_its_state_harmlessly() -> None:
    state = State()
    stepper = script(state, "request('a')")
    stepper.start()
    state.close()
    with pytest.raises(pyluau.ClosedError):
        stepper.answer(1, None)
    stepper.close()


def test_stepping_from_inside_the_same_state_is_refused(state: State) -> None:
    inner = script(state, "return 1")
    state.register("step", lambda: inner.start())
    with pytest.raises(RuntimeError, match="cannot be stepped by a function"):
        state.execute("step()")


def test_ten_thousand_spawned_coroutines_wait(state: State) -> None:
    source = "for i = 1, 9000 do spawn(function() request('a', i) end) end request('end')"
    stepper = script(state, source)
    step = stepper.start()
    assert isinstance(step, Waiting)
    assert len(step.calls) == 9001
    assert isinstance(stepper.answer(9001, None), Done)


def test_the_same_answers_give_the_same_calls(state: State) -> None:
    source = PARALLEL + """
    local function chain(n) return function() local x = 0 for i = 1, n do x += request('c', n, i, x) end return x end end
    return parallel(chain(3), chain(1), chain(2))
    """
    runs = [drive(script(state, source), [], lambda call: call.args[1]) for _ in range(3)]
    assert runs[0] == runs[1] == runs[2]
    assert [number for number, _, _ in runs[0][1]] == [1, 2, 3, 4, 5, 6]
