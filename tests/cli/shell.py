"""Run commands as real processes in a folder of their own, with pipes or with a terminal."""

import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from tests.forked_python import ForkedProcess, can_fork, run_forked, write_client
from tests.unmeasured import without_coverage

TIMEOUT = 60
"""Seconds after which a command counts as hanging. Nothing else here depends on time."""

AGENT_FILE = '''
import asyncio
import os
import sys

import vaka
from vaka.core.types.errors import ModelError
from vaka.middleware import Ask


@vaka.tool(effect="read")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@vaka.tool
def pay(amount: int) -> str:
    """Pay an amount."""
    with open("ledger", "a") as ledger:
        ledger.write(f"{amount}\\n")
    return f"paid {amount}"


@vaka.tool(effect="read")
async def hang() -> str:
    """Wait for something that never comes."""
    await asyncio.Event().wait()


@vaka.tool(effect="read")
def gate(path: str) -> str:
    """Wait for a writer of a pipe."""
    with open(path) as pipe:
        return pipe.read()


@vaka.tool(effect="read")
async def colour(context: vaka.ToolContext) -> str:
    """Ask for a colour."""
    return f"colour {await context.ask('Which colour?', options=['red', 'blue'])}"


@vaka.tool
def boom() -> str:
    """Fail."""
    raise ValueError("boom")


class Careful(vaka.Middleware):
    """Asks before a payment."""

    async def before_tool(self, turn, call):
        return Ask("money is involved", rule="money") if call.name == "pay" else call


class Broken(vaka.Middleware):
    """Fails before anything happens."""

    async def before_agent(self, turn, content):
        raise RuntimeError("no luck")


class Locked(ModelError):
    """The key is refused."""

    code = "authentication"


class LockedModel:
    name = "locked"

    async def stream(self, prompt):
        raise Locked("the key is refused")
        yield


tools = [add, pay, hang, gate, colour, boom]
agent = vaka.Agent("payer", tools=tools, middleware=[Careful()])
broken = vaka.Agent("broken", middleware=[Broken()])
locked = vaka.Agent("locked", model=LockedModel())
'''


def call_line(name: str, **arguments: Any) -> dict[str, Any]:
    """Return a line of a scripted model that calls a tool."""
    return {"tool_calls": [{"name": name, "arguments": arguments}]}


def say_line(text: str) -> dict[str, Any]:
    """Return a line of a scripted model that answers with a text."""
    return {"text": text}


class CommandResult:
    """The exit code and output of a command."""

    def __init__(self, code: int, out: bytes, err: bytes) -> None:
        self.code, self.raw_out = code, out
        self.out, self.err = out.decode(), err.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


class RunningCommand:
    """A command that runs in the background."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self.process = process
        assert process.stdout is not None
        self.stdout: IO[bytes] = process.stdout
        self.events: list[Any] = []

    def read_until(self, kind: str) -> Any:
        """Read stream-json until an event of this type."""
        for line in self.stdout:
            self.events.append(json.loads(line))
            if self.events[-1]["type"] == kind:
                return self.events[-1]
        raise AssertionError(f"no {kind} among {[line['type'] for line in self.events]}")

    def send_signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait_result(self) -> CommandResult:
        """Wait for the end; return its whole output."""
        out, err = self.process.communicate(timeout=TIMEOUT)
        before = b"".join(json.dumps(line).encode() + b"\n" for line in self.events)
        return CommandResult(self.process.returncode, before + out, err)


_started: set[tuple[str, ...]] = set()
_measured: set[tuple[str, ...]] = set()


def is_first_start(words: Sequence[str], place: str = "") -> bool:
    """Return whether a command is new in this process; then it runs in a new interpreter, else in a fork of one."""
    command = (place, *[word for word in words[:2] if word.isidentifier()])
    is_new = command not in _started
    _started.add(command)
    return is_new


def is_first_use(words: Sequence[str], place: str = "") -> bool:
    """Return whether the name or an option of a command is new in this file of tests; then it is measured."""
    file = os.environ.get("PYTEST_CURRENT_TEST", "").partition("::")[0]
    command = (file, *[word for word in words[:2] if word.isidentifier()])
    options = {(*command, word.partition("=")[0]) for word in words if word.startswith("-")}
    new = {(*command, place), *options} - _measured
    _measured.update(new)
    return bool(new)


def measure_once(env: dict[str, str], words: Sequence[str], place: str = "") -> dict[str, str]:
    """Return the environment of a command, which is measured if it is a first use."""
    return env if is_first_use(words, place) else without_coverage(env)


class Shell:
    """Runs commands in one folder, with a home of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("VAKA_", "XDG_")) and not key.endswith(("_API_KEY", "VISUAL", "EDITOR"))
        }
        self.env |= {
            "HOME": str(folder / "home"),
            "XDG_DATA_HOME": str(folder / "data"),
            "XDG_CONFIG_HOME": str(folder / "conf"),
            "USER": "kim",
            "LOGNAME": "kim",
            "TERM": "xterm",
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        }
        self.write_file("agent.py", AGENT_FILE)
        self.write_file(".git/HEAD", "")

    def write_file(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def write_script(self, *lines: dict[str, Any], name: str = "script.jsonl") -> str:
        """Write a script and return the model that reads it."""
        self.write_file(name, "".join(json.dumps(line) + "\n" for line in lines))
        return f"scripted:{name}"

    def vaka(self, *words: str, input: bytes | None = None, **env: str) -> CommandResult:
        """Run a command without a terminal."""
        command = ["-m", "vaka", *words]
        given = measure_once(self.env | env, words, "" if input is None else "stdin")
        source: Any = {"stdin": subprocess.DEVNULL} if input is None else {"input": input}
        if not is_first_start(words) and can_fork(command, given):
            forked = run_forked(command, self.folder, given, input=input, timeout=TIMEOUT)
            return CommandResult(forked.returncode, forked.stdout, forked.stderr)
        line = [sys.executable, *command]
        done: subprocess.CompletedProcess[bytes] = subprocess.run(
            line, cwd=self.folder, env=given, timeout=TIMEOUT, capture_output=True, check=False, **source
        )
        return CommandResult(done.returncode, done.stdout, done.stderr)

    def run(
        self, *words: str, model: str = "scripted:script.jsonl", agent: str = "agent.py", **more: Any
    ) -> CommandResult:
        """Run a turn."""
        return self.vaka("run", *words, "--agent", agent, "--model", model, **more)

    def start_run(
        self,
        *words: str,
        stdin: Any = subprocess.DEVNULL,
        model: str = "scripted:script.jsonl",
        agent: str = "agent.py",
    ) -> RunningCommand:
        """Start a turn in the background."""
        command = [sys.executable, "-m", "vaka", "run", *words, "--agent", agent, "--model", model]
        command += ["--output", "stream-json"]
        pipe, env = subprocess.PIPE, measure_once(self.env, command[3:], "background")
        return RunningCommand(
            subprocess.Popen(command, cwd=self.folder, env=env, stdin=stdin, stdout=pipe, stderr=pipe)
        )

    def bash(self, line: str, *, fork: bool = False) -> CommandResult:
        """Run a line of shell; with ``fork`` its ``vaka`` is a fork of a process that has imported it."""
        env, inherited = without_coverage(self.env), list[int]()
        if fork:
            client = self.folder / "home" / "bin" / "vaka"
            inherited, env["PATH"] = [write_client(client)], f"{client.parent}{os.pathsep}{env['PATH']}"
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=self.folder,
            env=env,
            timeout=TIMEOUT,
            pass_fds=inherited,
            capture_output=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        return CommandResult(done.returncode, done.stdout, done.stderr)

    def terminal(self, *words: str, **env: str) -> "Terminal":
        """Run a command at a terminal."""
        given, fork = measure_once(self.env | env, words, "terminal"), not is_first_start(words, "terminal")
        return Terminal(["-m", "vaka", *words], self.folder, given, fork=fork)

    def pending_decisions(self) -> list[Any]:
        decisions: list[Any] = self.vaka("approvals", "list", "--json").json["decisions"]
        return decisions

    def events(self, session: str) -> list[Any]:
        return self.vaka("sessions", "export", session).lines

    def event_types(self, session: str) -> list[str]:
        return [event["type"] for event in self.events(session)]


class Terminal:
    """A command whose stdin, stdout and stderr are a terminal."""

    def __init__(self, arguments: Sequence[str], folder: Path, env: dict[str, str], *, fork: bool = True) -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 200, 0, 0))
        self.process: subprocess.Popen[bytes] | ForkedProcess
        if fork and can_fork(arguments, env):
            self.process = ForkedProcess(arguments, folder, env, (slave, slave, slave), session="new")
        else:
            self.process = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=folder,
                env=env,
                stdin=slave,
                stdout=slave,
                stderr=slave,
                start_new_session=True,
            )
        os.close(slave)
        self.screen = ""
        self._offset = 0

    def expect(self, text: str) -> str:
        """Read until ``text`` is on the screen; return what came before it."""
        while text not in self.screen[self._offset :]:
            if not self._read():
                raise AssertionError(f"{text!r} did not appear; the screen is {self.screen!r}")
        place = self.screen.index(text, self._offset)
        before, self._offset = self.screen[self._offset : place], place + len(text)
        return before

    def send_line(self, line: str) -> None:
        os.write(self.master, f"{line}\n".encode())

    def wait_exit(self) -> int:
        """Read to the end and return the exit code."""
        while self._read():
            pass
        os.close(self.master)
        return self.process.wait(TIMEOUT)

    def _read(self) -> bool:
        if not select.select([self.master], [], [], TIMEOUT)[0]:
            self.process.kill()
            return False
        try:
            data = os.read(self.master, 65536)
        except OSError:  # the process has exited
            return False
        self.screen += data.decode(errors="replace")
        return bool(data)
