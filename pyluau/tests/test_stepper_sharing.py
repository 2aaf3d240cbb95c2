import time
from typing import Any

import pytest
from stepper_helpers import PARALLEL, drive, script

import pyluau
from pyluau import Done, Limits, State, Waiting


def test_scripts_that_share_a_state_are_isolated(state: State) -> None:
    steppers = [script(state, "n = ...; request('a'); n += 1; return n") for _ in range(100)]
    for number, stepper in enumerate(steppers):
        stepper.start([number])
    results = [stepper.answer(1, None) for stepper in reversed(steppers)]
    assert [step.value for step in results if isinstance(step, Done)] == [n + 1 for n in reversed(range(100))]


def test_random_numbers_and_object_numbers_depend_only_on_the_script(state: State) -> None:
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


@pytest.mark.parametrize(
    "source",
    [
        "while true do end",
        "request('a') while true do pcall(function() while true do end end) end",
        "spawn(function() while true do end end)",
        "coroutine.wrap(function() request('a') while true do end end)()",
    ],
)
def test_a_script_that_hits_a_limit_does_not_affect_others(state: State, source: str) -> None:
    other = script(state, "return request('b')")
    other.start()
    stepper = script(state, source, limits=Limits(seconds=0.05))
    with pytest.raises(pyluau.OutOfTime):
        drive(stepper, [], lambda call: None)
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


def test_a_closed_stepper_cannot_be_used(state: State) -> None:
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


def test_a_stepper_may_outlive_its_state() -> None:
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
    source = (
        PARALLEL
        + """
    local function chain(n)
        return function() local x = 0 for i = 1, n do x += request('c', n, i, x) end return x end
    end
    return parallel(chain(3), chain(1), chain(2))
    """
    )
    runs = [drive(script(state, source), [], lambda call: call.args[1]) for _ in range(3)]
    assert runs[0] == runs[1] == runs[2]
    assert [number for number, _, _ in runs[0][1]] == [1, 2, 3, 4, 5, 6]


def test_out_of_memory_in_a_spawned_coroutine_is_raised_as_such() -> None:
    with State(limits=Limits(memory=4 << 20)) as state:
        with pytest.raises(pyluau.OutOfMemory):
            script(state, "spawn(function() return table.create(2^24) end) request('a')").start()
        assert state.eval("1") == 1


def test_a_function_is_stepped_with_an_environment_of_its_own(state: State) -> None:
    function = state.load(state.compile("n = (n or 0) + 1 return n"))
    steps = [state.stepper(function, env=env).start() for env in ({"n": 4}, {}, state.environment({"n": 7}))]
    assert [step.value for step in steps if isinstance(step, pyluau.Done)] == [5, 1, 8]
