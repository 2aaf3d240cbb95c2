import asyncio
import gc
import weakref

import pytest

import pyluau
from pyluau import Module, State

MODULES = {
    "counter": "local n = 0 return { next = function() n += 1 return n end }",
    "uses": "local c = require('counter') return function() return c.next() end",
    "left": "return require('right')",
    "right": "return require('left')",
    "broken": "local x = = 1",
    "fails": "error('no luck')",
    "leaks": "leaked = 1 return _G.leaked",
}


@pytest.fixture
def modules(state: State) -> State:
    state.set_require(lambda name, origin: MODULES.get(name))
    return state


def test_there_is_no_require_unless_the_host_gives_one(state: State) -> None:
    assert state.eval("require") is None


def test_a_module_runs_once_for_a_state(modules: State) -> None:
    assert modules.eval("require('counter').next()") == 1
    assert modules.eval("require('counter').next()") == 2
    assert modules.eval("require('uses')()") == 3


def test_a_module_has_globals_of_its_own(modules: State) -> None:
    assert modules.eval("require('leaks'), leaked") == (1, None)


def test_an_unknown_module_is_an_error_at_the_line_that_requires_it(modules: State) -> None:
    with pytest.raises(pyluau.LuauError, match="mine:2: require: there is no module 'none'"):
        modules.execute("\nrequire('none')", chunkname="=mine")
    with pytest.raises(pyluau.LuauError, match="named by a string"):
        modules.eval("require(1)")


def test_modules_that_require_each_other_are_an_error(modules: State) -> None:
    with pytest.raises(pyluau.LuauError, match="'left' is being loaded"):
        modules.eval("require('left')")
    with pytest.raises(pyluau.LuauError, match="'left' is being loaded"):
        modules.eval("require('left')")


def test_errors_of_a_module_name_it(modules: State) -> None:
    with pytest.raises(pyluau.LuauError, match="broken:1:"):
        modules.eval("require('broken')")
    with pytest.raises(pyluau.LuauError, match="fails:1: no luck"):
        modules.eval("require('fails')")


def test_the_host_learns_who_requires_and_names_the_module(state: State) -> None:
    asked: list[tuple[str, str]] = []

    def find(name: str, origin: str) -> Module:
        asked.append((name, origin))
        return Module("lib/" + name.removeprefix("./"), "return {}" if name == "./b" else "return require('./b')")

    state.set_require(find)
    assert state.eval("require('./a') == require('./b'), require('a') == require('./b')", chunkname="@main.luau") == (
        True,
        True,
    )
    assert asked[:2] == [("./a", "main.luau"), ("./b", "lib/a")]
    state.eval("pcall(require, './b'), coroutine.wrap(require)('./b')", chunkname="@main.luau")
    assert asked[-2:] == [("./b", "main.luau"), ("./b", "")]


def test_an_exception_of_the_host_is_passed_on(state: State) -> None:
    def find(name: str, origin: str) -> str:
        raise PermissionError("not yours")

    state.set_require(find)
    with pytest.raises(PermissionError):
        state.eval("require('x')")


def test_a_module_may_await_the_host(state: State) -> None:
    async def fetch() -> int:
        await asyncio.sleep(0)
        return 5

    state.register("fetch", fetch)
    state.set_require(lambda name, origin: "return fetch()")
    assert asyncio.run(state.eval_async("require('x') + require('x')")) == 10


def test_a_module_that_awaits_can_be_required_by_several_calls_at_once(state: State) -> None:
    async def fetch() -> int:
        await asyncio.sleep(0)
        return 5

    async def require_twice() -> list[int]:
        calls = [state.eval_async("require('x').n") for _ in range(2)]
        return await asyncio.gather(*calls)

    state.register("fetch", fetch)
    state.set_require(lambda name, origin: "return { n = fetch() }")
    assert asyncio.run(require_twice()) == [5, 5]
    assert state.eval("require('x') == require('x')") is True


def test_a_module_whose_load_was_stopped_can_be_required_again(state: State) -> None:
    sources = {"cancelled": "return wait()", "endless": "while true do end", "own": "require('own')"}

    async def cancel_load() -> None:
        call = asyncio.ensure_future(state.eval_async("require('cancelled')"))
        await asyncio.sleep(0)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)

    state.register("wait", asyncio.Event().wait)
    state.set_require(lambda name, origin: sources[name])
    asyncio.run(cancel_load())
    with pytest.raises(pyluau.OutOfInstructions):
        state.stepper("require('endless')", limits=pyluau.Limits(instructions=1000)).start()
    for call in ("require('own')", "coroutine.wrap(require)('own')"):
        with pytest.raises(pyluau.LuauError, match="module 'own' is being loaded: modules cannot require each other"):
            state.eval(call)
    sources.update(cancelled="return 1", endless="return 2", own="return 3")
    assert state.eval("require('cancelled'), require('endless'), require('own')") == (1, 2, 3)


def test_require_can_be_taken_away(modules: State) -> None:
    modules.set_require(None)
    assert modules.eval("require") is None


def test_require_does_not_keep_the_state_alive() -> None:
    state = State()
    state.set_require(lambda name, origin: None)
    reference = weakref.ref(state)
    del state
    gc.collect()
    assert reference() is None
