import pytest
from stepper_helpers import drive, script

import pyluau
from pyluau import Done, State, Waiting


def test_resuming_a_waiting_coroutine_returns_at_once(state: State) -> None:
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
        1,
        True,
        "suspended",
        False,
        "coroutine is waiting for the host",
        "suspended",
        True,
        "ended well",
    ]


def test_values_yielded_after_an_answer_are_kept_for_the_next_resume(state: State) -> None:
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
        {1: True, 2: 1, 3: 2, "n": 3},
        {1: True, 2: "got x", "n": 2},
        "dead",
        False,
        "cannot resume dead coroutine",
    ]


def test_an_error_after_an_answer_is_kept_for_the_next_resume(state: State) -> None:
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


def test_a_call_made_and_dropped_within_a_step_is_not_reported(state: State) -> None:
    source = (
        "local co = coroutine.create(function() request('a') end) coroutine.resume(co) coroutine.close(co) request('b')"
    )
    step = script(state, source).start()
    assert isinstance(step, Waiting)
    assert ([call.name for call in step.calls], step.dropped) == (["b"], [])


def test_closing_a_coroutine_is_an_error_for_its_waiting_caller(state: State) -> None:
    source = """
    local inner
    local t = spawn(function()
        local ok, e = pcall(coroutine.wrap(function() inner = coroutine.running() request('a') end))
        request('refused', ok, e)
    end)
    coroutine.close(inner)
    request('main')
    """
    step = script(state, source).start()
    assert isinstance(step, Waiting)
    assert [(call.name, call.args) for call in step.calls] == [
        ("main", []),
        ("refused", [False, "the coroutine was closed"]),
    ]


def test_status_and_running_work_in_coroutines(state: State) -> None:
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


def test_a_wrapped_call_that_cannot_yield_is_an_error_without_side_effects(state: State) -> None:
    source = """
    local ask = coroutine.wrap(function() return request('a') end)
    local ok, e = pcall(table.sort, {2, 1}, function() ask() return true end)
    return ok, e, request('b')
    """
    stepper = script(state, source)
    step = stepper.start()
    assert isinstance(step, Waiting)
    assert [call.name for call in step.calls] == ["a", "b"]
    assert isinstance(stepper.answer(1, None), Waiting)
    step = stepper.answer(2, "end")
    assert isinstance(step, Done)
    assert step.values[0] is False
    assert "cannot wait for the host here" in step.values[1]
    assert step.values[2] == "end"
