import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

import pytest

import pyluau
from pyluau import State


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


async def double(number: int) -> int:
    await asyncio.sleep(0)
    return number * 2


def test_a_script_calls_async_functions_and_its_results_are_those_of_eval(state: State) -> None:
    state.register("double", double)
    assert run(state.eval_async("double(...)", 21)) == 42
    assert run(state.eval_async("local a, b = double(1), double(2) return a, b")) == (2, 4)
    assert run(state.eval_async("local unused = 1")) is None


def test_a_function_is_called_by_handle_or_by_name(state: State) -> None:
    state.register("double", double)
    function = state.eval("function(n) return double(n) + 1 end")
    state.define("more", function)
    assert run(state.call_async(function, 4)) == 9
    assert run(state.call_async("more", 5)) == 11


def test_async_functions_work_wherever_a_function_may_be(state: State) -> None:
    assert run(state.eval_async("api.double(4)", env={"api": {"double": double}})) == 8
    assert run(state.eval_async("local f = ... return f(3)", double)) == 6
    assert run(state.eval_async("select(2, pcall(double, 5))", env={"double": double})) == 10


def test_several_results_are_a_tuple(state: State) -> None:
    async def pair() -> tuple[int, str]:
        return 1, "x"

    assert run(state.eval_async("pair()", env={"pair": pair})) == (1, "x")


def test_calls_of_several_coroutines_are_awaited_at_once(state: State) -> None:
    async def main() -> Any:
        both = asyncio.Event()
        started: list[str] = []

        async def meet(name: str) -> str:
            started.append(name)
            if len(started) == 2:
                both.set()
            await both.wait()
            return name

        source = """
            local names, main = {}, coroutine.running()
            for _, name in {"a", "b"} do
                spawn(function() table.insert(names, meet(name)) if #names == 2 then wake(main) end end)
            end
            if #names < 2 then park() end
            return names
        """
        primitives = {name: state.primitives[name] for name in ("spawn", "park", "wake")}
        return await state.eval_async(source, env={"meet": meet, **primitives})

    assert run(main()) == ["a", "b"]


def test_calls_of_one_state_may_overlap(state: State) -> None:
    async def main() -> list[int]:
        calls = [state.eval_async("double(...)", number, env={"double": double}) for number in range(20)]
        return await asyncio.gather(*calls)

    assert run(main()) == [number * 2 for number in range(20)]


def test_an_exception_can_be_caught_and_is_otherwise_the_same_object(state: State) -> None:
    problem = ValueError("no")

    async def fail() -> None:
        raise problem

    state.register("fail", fail)
    assert run(state.eval_async("local ok, e = pcall(fail) return ok, tostring(e)")) == (False, "ValueError: no")
    with pytest.raises(ValueError, match="no") as caught:
        run(state.eval_async("fail()"))
    assert caught.value is problem


def test_a_result_without_a_counterpart_is_an_error_of_the_call(state: State) -> None:
    async def give() -> object:
        return object()

    ok, message = run(state.eval_async("local ok, e = pcall(give) return ok, tostring(e)", env={"give": give}))
    assert not ok
    assert "has no counterpart" in message


def test_without_an_event_loop_an_async_function_is_an_error_and_nothing_is_left_unawaited(state: State) -> None:
    state.register("double", double)
    with pytest.raises(pyluau.LuauError, match="only while the host awaits the script"):
        state.eval("double(1)")
    with pytest.raises(pyluau.LuauError, match="cannot wait for the host here"):
        run(state.eval_async("table.sort({2, 1}, function(a, b) return double(a) < b end)"))


def test_a_request_that_no_function_answers_is_an_error(state: State) -> None:
    env = {"request": state.primitives["request"]}
    with pytest.raises(pyluau.LuauError, match="no function of the host to answer 'x'"):
        run(state.eval_async("request('x')", env=env))


def test_cancelling_the_caller_cancels_what_it_awaits(state: State) -> None:
    async def main() -> None:
        entered, ended = asyncio.Event(), asyncio.Event()

        async def wait() -> None:
            entered.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        task = asyncio.create_task(state.eval_async("wait()", env={"wait": wait}))
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended.is_set()

    run(main())
    assert state.eval("1 + 1") == 2


def test_a_closed_coroutine_cancels_its_call(state: State) -> None:
    async def main() -> Any:
        ended = asyncio.Event()

        async def wait() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        source = """
            local waiting = coroutine.create(wait)
            coroutine.resume(waiting)
            pause()
            coroutine.close(waiting)
            return pause()
        """

        async def pause() -> str:
            await asyncio.sleep(0)
            return "on"

        result = await state.eval_async(source, env={"wait": wait, "pause": pause})
        return result, ended.is_set()

    assert run(main()) == ("on", True)


def test_a_call_dropped_before_it_was_seen_is_closed(state: State) -> None:
    source = "local waiting = coroutine.create(double) coroutine.resume(waiting, 1) coroutine.close(waiting) return 1"
    assert run(state.eval_async(source, env={"double": double})) == 1


def test_in_a_thread_a_long_script_does_not_block_the_loop_and_can_be_cancelled(state: State) -> None:
    async def main() -> None:
        begun = asyncio.Event()
        loop = asyncio.get_running_loop()
        state.register("begin", lambda: loop.call_soon_threadsafe(begun.set) and None)
        task = asyncio.create_task(state.eval_async("begin() while true do end", thread=True))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(main())
    assert state.eval("1") == 1


def test_in_a_thread_async_functions_still_run_in_the_loop(state: State) -> None:
    places: dict[str, int] = {}

    async def waits() -> None:
        places["async"] = threading.get_ident()

    def plain() -> None:
        places["plain"] = threading.get_ident()

    run(state.eval_async("waits() plain()", env={"waits": waits, "plain": plain}, thread=True))
    assert places["async"] == threading.get_ident()
    assert places["plain"] != threading.get_ident()


def test_a_state_may_be_used_in_one_loop_after_the_other(state: State) -> None:
    state.register("double", double)
    for thread in (False, True):
        assert run(state.eval_async("double(1)", thread=thread)) == 2


def test_limits_hold(state: State) -> None:
    with pytest.raises(pyluau.OutOfTime):
        run(state.eval_async("while true do end", limits=pyluau.Limits(seconds=0.05)))


def test_a_stepper_gives_the_coroutine_to_its_host(state: State) -> None:
    stepper = state.stepper("return double(3)", env={"double": double})
    step = stepper.start()
    assert isinstance(step, pyluau.Waiting)
    assert (step.calls[0].name, len(step.calls[0].args)) == ("await", 1)
    done = stepper.answer(step.calls[0].id, asyncio.run(step.calls[0].args[0]))
    assert isinstance(done, pyluau.Done)
    assert done.value == 6


def test_calls_in_threads_wait_for_each_other(state: State) -> None:
    async def call_all() -> list[int]:
        function = state.eval("function(n) local sum = 0 for i = 1, n do sum += i end return sum end")
        calls = [state.call_async(function, 200_000, thread=True) for _ in range(3)]
        return await asyncio.gather(*calls, state.eval_async("1 + 1"))

    assert run(call_all()) == [20000100000, 20000100000, 20000100000, 2]
