import pytest

import pyluau
from pyluau import State, Thread


def test_a_thread_yields_and_returns(state: State) -> None:
    thread = Thread(state.eval("function(a) local b = coroutine.yield(a + 1) return b * 2 end"))
    statuses: list[str] = [thread.status]
    assert thread.start(1) == 2
    statuses.append(thread.status)
    assert thread.resume(21) == 42
    statuses.append(thread.status)
    assert statuses == ["suspended", "suspended", "finished"]
    with pytest.raises(RuntimeError, match="only a suspended coroutine"):
        thread.resume()


def test_an_error_can_be_thrown_into_a_thread(state: State) -> None:
    thread = Thread(state.eval("function() local ok, e = pcall(coroutine.yield) return ok, e end"))
    thread.start()
    assert thread.throw("oh") == (False, "oh")


def test_an_exception_can_be_thrown_into_a_thread(state: State) -> None:
    thread, problem = Thread(state.eval("function() coroutine.yield() end")), ValueError("no")
    thread.start()
    with pytest.raises(ValueError, match="no") as caught:
        thread.throw(problem)
    assert caught.value is problem
    assert thread.status == "failed"


def test_a_failing_thread_has_a_traceback(state: State) -> None:
    thread = Thread(state.eval("function()\n error('x')\nend", chunkname="=mine"))
    with pytest.raises(pyluau.LuauError, match="mine:2: x") as caught:
        thread.start()
    assert "mine:2" in caught.value.traceback


def test_a_host_function_can_yield(state: State) -> None:
    state.register("pause", lambda x: pyluau.Yield(x, x + 1))
    thread = Thread(state.eval("function() return 'got', pause(1) end"))
    assert thread.start() == (1, 2)
    assert thread.resume("a", "b") == ("got", "a", "b")


def test_a_host_function_can_continue_after_its_yield(state: State) -> None:
    state.register("ask", lambda q: pyluau.Yield(q, then=lambda answer: f"{q} {answer}"))
    thread = Thread(state.eval("function() return ask('why?') end"))
    assert thread.start() == "why?"
    assert thread.resume("because") == "why? because"


def test_a_host_function_cannot_yield_outside_a_coroutine(state: State) -> None:
    state.register("pause", pyluau.Yield)
    with pytest.raises(pyluau.LuauError, match="yield"):
        state.execute("pause()")


def test_luau_sees_the_yield_of_a_host_function(state: State) -> None:
    state.register("pause", pyluau.Yield)
    source = """
    local co = coroutine.create(function() return pause(7) end)
    return select(2, coroutine.resume(co)), select(2, coroutine.resume(co, 8))
    """
    assert state.eval(source) == (7, 8)


def test_a_thread_can_be_closed(state: State) -> None:
    thread = Thread(state.eval("function() coroutine.yield() end"))
    thread.start()
    thread.close()
    assert thread.status != "suspended"


def test_a_running_thread_is_not_resumed_or_closed(state: State) -> None:
    threads: list[Thread] = []
    state.register("resume", lambda: threads[0].resume())
    state.register("close", lambda: threads[0].close())
    for name in ("resume", "close"):
        threads[:] = [Thread(state.eval(f"function() {name}() end"))]
        with pytest.raises(RuntimeError):
            threads[0].start()


def test_a_thread_knows_whether_it_can_yield(state: State) -> None:
    seen: list[bool] = []
    threads = [Thread(state.eval("function() look() end"))]
    state.register("look", lambda: seen.append(threads[0].is_yieldable))
    threads = [Thread(state.eval("function() look() end"))]
    threads[0].start()
    assert seen == [True]


def test_a_thread_is_alive_as_long_as_it_is_held(state: State) -> None:
    threads = [Thread(state.eval("function() coroutine.yield(1) return 2 end")) for _ in range(100)]
    for thread in threads:
        thread.start()
    state.collect()
    assert [thread.resume() for thread in threads] == [2] * 100


def test_threads_of_scripts_are_handles(state: State) -> None:
    thread = state.eval("coroutine.create(function(n) return n end)")
    assert isinstance(thread, Thread)
    assert thread.resume(5) == 5
    assert state.eval("coroutine.status(...)", thread) == "dead"


def test_limits_hold_in_threads() -> None:
    with State(limits=pyluau.Limits(seconds=0.05)) as state:
        thread = Thread(state.eval("function() while true do pcall(function() while true do end end) end end"))
        with pytest.raises(pyluau.OutOfTime):
            thread.start()
        assert thread.status == "failed"
        assert state.eval("1") == 1


def test_threads_see_the_globals_of_their_function(state: State) -> None:
    env = state.environment({"x": 5})
    function = state.load(state.compile("return x"), env=env)
    assert Thread(function).start() == 5


def test_a_thread_can_be_iterated(state: State) -> None:
    source = "function() for i = 1, 3 do coroutine.yield(i) end coroutine.yield(4, {5}) return 'end' end"
    thread = Thread(state.eval(source))
    assert next(thread) == 1
    assert list(thread) == [2, 3, (4, [5])]
    assert list(thread) == []


def test_an_error_ends_the_iteration(state: State) -> None:
    thread = Thread(state.eval("function() coroutine.yield(1) error('no') end"))
    assert next(thread) == 1
    with pytest.raises(pyluau.LuauError, match="no"):
        next(thread)
    assert list(thread) == []
