import signal
import subprocess
import sys
import threading
import time

import pytest

import pyluau
from pyluau import Limits, State

SPIN = "local stop = os.clock() + ... while os.clock() < stop do end return true"


def test_python_code_runs_while_a_script_runs() -> None:
    states = [State(), State()]
    threads = [threading.Thread(target=state.eval, args=(SPIN, 2.0)) for state in states]
    for thread in threads:
        thread.start()
    counted = 0
    while counted < 10 and all(thread.is_alive() for thread in threads):
        counted += 1
        time.sleep(0)  # releases the GIL, and acquires it again only if no script holds it
    alive = all(thread.is_alive() for thread in threads)
    for thread in threads:
        thread.join()
    assert alive


def test_scripts_of_two_states_run_at_once() -> None:
    meeting = threading.Barrier(2, timeout=10)
    states = [State(), State()]
    for state in states:
        state.register("meet", lambda: meeting.wait())
    threads = [threading.Thread(target=state.execute, args=("for i = 1, 10 do meet() end",)) for state in states]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not meeting.broken


def test_a_state_in_use_by_another_thread_raises() -> None:
    started, release = threading.Event(), threading.Event()
    with State() as state:

        def wait() -> None:
            started.set()
            release.wait(10)

        state.register("wait", wait)
        thread = threading.Thread(target=state.execute, args=("wait()",))
        thread.start()
        started.wait()
        for use in (lambda: state.eval("1"), state.collect, state.close, lambda: state.globals):
            with pytest.raises(RuntimeError, match="in use by another thread"):
                use()
        release.set()
        thread.join()
        assert state.eval("1") == 1


def test_a_state_may_move_between_threads(state: State) -> None:
    results: list[int] = []
    function = state.eval("local n = 0 return function() n += 1 return n end")
    for _ in range(5):
        thread = threading.Thread(target=lambda: results.append(function()))
        thread.start()
        thread.join()
    assert results == [1, 2, 3, 4, 5]


def test_handles_may_be_dropped_by_any_thread(state: State) -> None:
    handles = [state.table() for _ in range(1000)]
    running = threading.Thread(target=state.eval, args=(SPIN, 0.1))
    running.start()
    handles.clear()
    running.join()
    state.collect()


def test_many_states_run_in_parallel() -> None:
    def work(number: int) -> None:
        with State(limits=Limits(seconds=5)) as state:
            for function in range(100):
                state.register(f"f{function}", lambda x: x + number)
            total = state.eval("local n = 0 for i = 1, 100 do n += f0(i) end return n")
            results.append(total == 5050 + 100 * number)

    results: list[bool] = []
    threads = [threading.Thread(target=work, args=(number,)) for number in range(100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 100


def test_time_limits_hold_in_many_threads_at_once() -> None:
    def work() -> None:
        with State(limits=Limits(seconds=0.1)) as state:
            try:
                state.execute("while true do end")
            except pyluau.OutOfTime:
                stopped.append(True)

    stopped: list[bool] = []
    threads = [threading.Thread(target=work) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert stopped == [True] * 20


def test_time_limits_hold_in_the_child_of_a_fork() -> None:
    program = """
import os, sys, pyluau
state = pyluau.State(limits=pyluau.Limits(seconds=0.1))
state.eval("1")
child = os.fork()
for state in (state, pyluau.State(limits=pyluau.Limits(seconds=0.1))):
    try:
        state.execute("while true do end")
    except pyluau.OutOfTime:
        pass
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert subprocess.run([sys.executable, "-c", program], timeout=20, check=False).returncode == 0


def test_a_keyboard_interrupt_stops_a_script() -> None:
    program = """
import signal
import pyluau
signal.signal(signal.SIGINT, signal.default_int_handler)  # the parent process may have ignored it
try:
    state = pyluau.State(print=lambda line: print(line, flush=True))
    state.execute("print('running') while true do pcall(function() while true do end end) end")
except KeyboardInterrupt:
    raise SystemExit(7)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"running\n"
        child.send_signal(signal.SIGINT)
        try:
            assert child.wait(10) == 7
        finally:
            child.kill()
