"""Measure pyluau: ``python bench/run.py``; with ``LUAU=/path/to/luau`` also the stock binary, for comparison."""

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


def best_seconds(function: Callable[[], object], count: int, rounds: int = 5) -> float:
    """Return the seconds of one call, the best of several rounds."""
    function()
    times = []
    for _ in range(rounds):
        before = time.perf_counter()
        for _ in range(count):
            function()
        times.append((time.perf_counter() - before) / count)
    return min(times)


def print_time(name: str, seconds: float, note: str = "") -> None:
    print(f"{name:<44} {seconds * 1e6:>12.2f} µs  {note}")


def measure_eval(state: State) -> None:
    for name, source, count in [
        ("eval simple", "1 + 1", 5000),
        ("eval arithmetic", "(1 + 2 * 3 - 4) / 5 % 6 ^ 2", 5000),
        ("eval fib(15)", "local function f(n) return if n < 2 then n else f(n - 1) + f(n - 2) end return f(15)", 500),
        ("eval loop 10k", "local n = 0 for i = 1, 10000 do n += i end return n", 500),
        ("eval strings", "local s = '' for i = 1, 100 do s ..= i end return s", 500),
        ("eval tables", "local t = {} for i = 1, 100 do t[i] = {i} end return #t", 500),
    ]:
        print_time(name, best_seconds(partial(state.eval, source), count))
    function = "local function f(n) return if n < 2 then n else f(n - 1) + f(n - 2) end return f(15)"
    for level in OptLevel:
        print_time(f"eval fib(15) {level.name}", best_seconds(partial(state.eval, function, opt=level), 300))


def measure_compile(state: State) -> None:
    code = pyluau.compile("return 1 + 1")
    print_time("compile simple", best_seconds(lambda: pyluau.compile("return 1 + 1"), 5000))
    print_time("compile 150 functions", best_seconds(lambda: pyluau.compile(COMPLEX), 50))
    print_time("load bytecode", best_seconds(lambda: state.load(code), 5000))


def measure_values(state: State) -> None:
    identity = state.eval("function(...) return ... end")
    record = {"name": "Ada", "tags": ["a", "b"], "nested": {"n": 1, "ok": True}}
    for name, value in [
        ("a number", 1.5),
        ("a string", "text"),
        ("a record", record),
        ("a list of 1000", list(range(1000))),
    ]:
        print_time(f"{name} there and back", best_seconds(partial(identity, value), 1000))
    table = state.table({"a": 1})
    print_time("table get", best_seconds(lambda: table["a"], 20_000))
    print_time("table set", best_seconds(lambda: table.set("a", 2), 20_000))


def measure_calls(state: State) -> None:
    nothing, add = state.eval("return function() end, function(a, b) return a + b end")
    print_time("Python calls Luau, 0 arguments", best_seconds(nothing, 50_000), "≤ 2 µs")
    print_time("Python calls Luau, 2 arguments", best_seconds(lambda: add(1, 2), 50_000), "≤ 2 µs")
    state.register("nothing", lambda: None)
    state.register("add", lambda a, b: a + b)
    for name, call in [("0 arguments", "nothing()"), ("2 arguments", "add(1, 2)")]:
        run = state.eval(f"function() for i = 1, 10000 do {call} end end")
        print_time(f"Luau calls Python, {name}", best_seconds(run, 3) / 10_000, "≤ 3 µs")
    print_time("register a function", best_seconds(lambda: state.register("f", print), 5000))
    for number in range(1000):
        state.register(f"many{number}", lambda: None)
    run = state.eval("function() for i = 0, 999 do _G['many' .. i]() end end")
    print_time("call each of 1000 functions", best_seconds(run, 20))


def measure_lifetime() -> None:
    def cold() -> None:
        with State() as state:
            state.eval("local t = {} for i = 1, 10 do t[i] = i end return #t")

    def parallel() -> None:
        threads = [threading.Thread(target=cold) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    print_time("new state and close", best_seconds(lambda: State().close(), 200))
    print_time("first use: state, compile, run", best_seconds(cold, 200), "≤ 1000 µs")
    print_time("four states in four threads", best_seconds(parallel, 20))
    with State() as state:
        print_time("collect garbage", best_seconds(state.collect, 1000))


def measure_steps(state: State) -> None:
    code = pyluau.compile("local a = ... return {x = a.q, y = 1}")
    function = state.load(code)
    print_time(
        "stepper, start to done, bytecode",
        best_seconds(lambda: state.stepper(code).start([{"q": "x", "n": [1, 2]}]), 2000),
        "≤ 15 µs",
    )
    print_time(
        "stepper, start to done, function",
        best_seconds(lambda: state.stepper(function).start([{"q": "x"}]), 2000),
        "≤ 15 µs",
    )
    print_time(
        "stepper, start to done, JSON", best_seconds(lambda: state.stepper(code).start_json(b'[{"q": "x"}]'), 2000)
    )
    stepper = state.stepper("while true do request('a', {q = 1}) end", expose=True)
    stepper.start()
    numbers = iter(range(1, 10**9))
    print_time("request and answer", best_seconds(lambda: stepper.answer(next(numbers), {"x": 1}), 5000), "≤ 5 µs")
    for count in (1, 100):
        source = f"for i = 1, {count} do spawn(function() request('a') end) end park()"

        def wait(source: str = source, count: int = count) -> None:
            stepper = state.stepper(source, expose=True)
            stepper.start()
            for number in range(1, count):
                stepper.answer(number)
            stepper.close()

        print_time(f"{count} calls in flight, made and answered", best_seconds(wait, 50))


def resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def measure_memory() -> None:
    before = resident_mb()
    states = [State() for _ in range(1000)]
    for state in states:
        state.eval("1")
    print(f"{'1000 states of their own':<44} {resident_mb() - before:>12.1f} MB  ≤ 250 MB")
    before, steppers = resident_mb(), []
    for state in states[:10]:
        for _ in range(1000):
            stepper = state.stepper("local x = ... return request('a', x)", expose=True)
            stepper.start([1])
            steppers.append(stepper)
    print(f"{'10000 suspended scripts in 10 states':<44} {resident_mb() - before:>12.1f} MB  ≤ 400 MB")


TIMED = "local before = os.clock()\n{source}\nlocal took = os.clock() - before\n"


def pyluau_seconds(source: str, limits: Limits) -> float:
    """Return the seconds that a script takes in pyluau."""
    with State(limits=limits) as state:
        return float(state.eval(TIMED.format(source=source) + "return took"))


def stock_seconds(luau: str, source: str) -> float:
    """Return the seconds that a script takes in the stock binary."""
    with tempfile.NamedTemporaryFile("w", suffix=".luau") as file:
        file.write(TIMED.format(source=source) + "print(took)")
        file.flush()
        done = subprocess.run([luau, "-O2", file.name], capture_output=True, text=True, check=True)
        return float(done.stdout)


def measure_scripts(luau: str | None, rounds: int = 9) -> None:
    """Measure in turns, so that load on the machine affects all alike; the best of several rounds counts."""
    unlimited, counted = Limits(memory=None), Limits(memory=None, instructions=10**12)
    print(f"\n{'script':<14} {'pyluau':>9} {'counted':>9} {'stock':>9}  ratio")
    for name, source in SCRIPTS.items():
        turns = [
            (
                pyluau_seconds(source, unlimited),
                pyluau_seconds(source, counted),
                stock_seconds(luau, source) if luau else 0.0,
            )
            for _ in range(rounds)
        ]
        plain, slow, reference = (min(times) * 1e3 for times in zip(*turns, strict=True))
        line = f"{name:<14} {plain:>7.1f}ms {slow:>7.1f}ms"
        print(f"{line} {reference:>7.1f}ms  {plain / reference:.2f}" if luau else line)


def main() -> None:
    print(pyluau.version, "load", os.getloadavg()[0])
    with State(limits=Limits(seconds=60)) as state:
        for measure in (measure_eval, measure_compile, measure_values, measure_calls, measure_steps):
            measure(state)
    measure_lifetime()
    measure_memory()
    measure_scripts(os.environ.get("LUAU"))


if __name__ == "__main__":
    main()
