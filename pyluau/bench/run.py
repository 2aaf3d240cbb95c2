"""Measure pyluau: ``python bench/run.py``; with ``LUAU=/path/to/luau`` the stock binary's numbers stand beside ours."""

import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyluau
from pyluau import Limits, OptLevel, State
from scripts import SCRIPTS

COMPLEX = "\n".join(
    f"local function f{i}(a, b) if a > b then return a * {i} end return {{x = b, y = f}} end" for i in range(150)
)


def best(function: Callable[[], object], count: int, rounds: int = 5) -> float:
    """Seconds for one call, the best of some rounds."""
    function()
    times = []
    for _ in range(rounds):
        before = time.perf_counter()
        for _ in range(count):
            function()
        times.append((time.perf_counter() - before) / count)
    return min(times)


def show(name: str, seconds: float, note: str = "") -> None:
    print(f"{name:<44} {seconds * 1e6:>12.2f} µs  {note}")


def evaluation(state: State) -> None:
    for name, source, count in [
        ("eval simple", "1 + 1", 5000),
        ("eval arithmetic", "(1 + 2 * 3 - 4) / 5 % 6 ^ 2", 5000),
        ("eval fib(15)", "local function f(n) return if n < 2 then n else f(n - 1) + f(n - 2) end return f(15)", 500),
        ("eval loop 10k", "local n = 0 for i = 1, 10000 do n += i end return n", 500),
        ("eval strings", "local s = '' for i = 1, 100 do s ..= i end return s", 500),
        ("eval tables", "local t = {} for i = 1, 100 do t[i] = {i} end return #t", 500),
    ]:
        show(name, best(partial(state.eval, source), count))
    function = "local function f(n) return if n < 2 then n else f(n - 1) + f(n - 2) end return f(15)"
    for level in OptLevel:
        show(f"eval fib(15) {level.name}", best(partial(state.eval, function, opt=level), 300))


def compilation(state: State) -> None:
    code = pyluau.compile("return 1 + 1")
    show("compile simple", best(lambda: pyluau.compile("return 1 + 1"), 5000))
    show("compile 150 functions", best(lambda: pyluau.compile(COMPLEX), 50))
    show("load bytecode", best(lambda: state.load(code), 5000))


def values(state: State) -> None:
    identity = state.eval("function(...) return ... end")
    record = {"name": "Ada", "tags": ["a", "b"], "nested": {"n": 1, "ok": True}}
    for name, value in [
        ("a number", 1.5),
        ("a string", "text"),
        ("a record", record),
        ("a list of 1000", list(range(1000))),
    ]:
        show(f"{name} there and back", best(partial(identity, value), 1000))
    table = state.table({"a": 1})
    show("table get", best(lambda: table["a"], 20_000))
    show("table set", best(lambda: table.set("a", 2), 20_000))


def calls(state: State) -> None:
    nothing, add = state.eval("return function() end, function(a, b) return a + b end")
    show("Python calls Luau, 0 arguments", best(nothing, 50_000), "≤ 2 µs")
    show("Python calls Luau, 2 arguments", best(lambda: add(1, 2), 50_000), "≤ 2 µs")
    state.register("nothing", lambda: None)
    state.register("add", lambda a, b: a + b)
    for name, call in [("0 arguments", "nothing()"), ("2 arguments", "add(1, 2)")]:
        run = state.eval(f"function() for i = 1, 10000 do {call} end end")
        show(f"Luau calls Python, {name}", best(run, 3) / 10_000, "≤ 3 µs")
    show("register a function", best(lambda: state.register("f", print), 5000))
    for number in range(1000):
        state.register(f"many{number}", lambda: None)
    run = state.eval("function() for i = 0, 999 do _G['many' .. i]() end end")
    show("call each of 1000 functions", best(run, 20))


def lifetime() -> None:
    def cold() -> None:
        with State() as state:
            state.eval("local t = {} for i = 1, 10 do t[i] = i end return #t")

    def parallel() -> None:
        threads = [threading.Thread(target=cold) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    show("new state and close", best(lambda: State().close(), 200))
    show("first use: state, compile, run", best(cold, 200), "≤ 1000 µs")
    show("four states in four threads", best(parallel, 20))
    with State() as state:
        show("collect garbage", best(state.collect, 1000))


def stepping(state: State) -> None:
    code = pyluau.compile("local a = ... return {x = a.q, y = 1}")
    function = state.load(code)
    show(
        "stepper, start to done, bytecode",
        best(lambda: state.stepper(code).start([{"q": "x", "n": [1, 2]}]), 2000),
        "≤ 15 µs",
    )
    show("stepper, start to done, function", best(lambda: state.stepper(function).start([{"q": "x"}]), 2000), "≤ 15 µs")
    show("stepper, start to done, JSON", best(lambda: state.stepper(code).start_json(b'[{"q": "x"}]'), 2000))
    stepper = state.stepper("while true do request('a', {q = 1}) end", expose=True)
    stepper.start()
    numbers = iter(range(1, 10**9))
    show("request and answer", best(lambda: stepper.answer(next(numbers), {"x": 1}), 5000), "≤ 5 µs")
    for count in (1, 100):
        source = f"for i = 1, {count} do spawn(function() request('a') end) end park()"

        def wait(source: str = source, count: int = count) -> None:
            stepper = state.stepper(source, expose=True)
            stepper.start()
            for number in range(1, count):
                stepper.answer(number)
            stepper.close()

        show(f"{count} calls in flight, made and answered", best(wait, 50))


def resident() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def memory() -> None:
    before = resident()
    states = [State() for _ in range(1000)]
    for state in states:
        state.eval("1")
    print(f"{'1000 states of their own':<44} {resident() - before:>12.1f} MB  ≤ 250 MB")
    before, steppers = resident(), []
    for state in states[:10]:
        for _ in range(1000):
            stepper = state.stepper("local x = ... return request('a', x)", expose=True)
            stepper.start([1])
            steppers.append(stepper)
    print(f"{'10000 suspended scripts in 10 states':<44} {resident() - before:>12.1f} MB  ≤ 400 MB")


TIMED = "local before = os.clock()\n{source}\nlocal took = os.clock() - before\n"


def ours(source: str, limits: Limits) -> float:
    """Seconds one script needs."""
    with State(limits=limits) as state:
        return float(state.eval(TIMED.format(source=source) + "return took"))


def stock(luau: str, source: str) -> float:
    """Seconds the same script needs in the stock binary."""
    with tempfile.NamedTemporaryFile("w", suffix=".luau") as file:
        file.write(TIMED.format(source=source) + "print(took)")
        file.flush()
        done = subprocess.run([luau, "-O2", file.name], capture_output=True, text=True, check=True)
        return float(done.stdout)


def scripts(luau: str | None, rounds: int = 9) -> None:
    """Take turns, so that a busy machine slows all alike; the best of some rounds counts."""
    free, counted = Limits(memory=None), Limits(memory=None, instructions=10**12)
    print(f"\n{'script':<14} {'pyluau':>9} {'counted':>9} {'stock':>9}  ratio")
    for name, source in SCRIPTS.items():
        turns = [
            (ours(source, free), ours(source, counted), stock(luau, source) if luau else 0.0) for _ in range(rounds)
        ]
        mine, slow, theirs = (min(times) * 1e3 for times in zip(*turns, strict=True))
        line = f"{name:<14} {mine:>7.1f}ms {slow:>7.1f}ms"
        print(f"{line} {theirs:>7.1f}ms  {mine / theirs:.2f}" if luau else line)


def main() -> None:
    print(pyluau.version, "load", os.getloadavg()[0])
    with State(limits=Limits(seconds=60)) as state:
        for part in (evaluation, compilation, values, calls, stepping):
            part(state)
    lifetime()
    memory()
    scripts(os.environ.get("LUAU"))


if __name__ == "__main__":
    main()
