"""Import, the start of the command line, and construction."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bench.agents import make_agent
from bench.measure import measure_object_size, subprocess_environment, time_construction, time_process
from bench.row import Row
from bench.stores import temporary_folder

FORBIDDEN_MODULES = ("httpx2", "jsonschema_rs", "click", "yaml", "sqlite3")
"""Modules that the first import must not load."""
IMPORT_STATEMENT = "import vaka"
USE_STATEMENT = "from vaka import Agent, Runtime, tool"
"""Names of ``vaka`` are loaded on first use: this is the import of a program that uses some."""
VERSION_ARGUMENTS = ("--version",)
RUN_ARGUMENTS = ("run", "Say hello.", "--model", "scripted:hello.jsonl", "--output", "stream-json", "--ephemeral")
"""A run with the scripted model and all built-in tools; it prints one event per line."""


def list_loaded_modules(statement: str, cwd: Path | None = None) -> list[str]:
    """Return the modules that a statement loads, beyond those of an empty program.

    With a folder, that is also the home of the user: agents, skills and settings of this machine would load more.
    """
    environment = subprocess_environment()
    if cwd is not None:
        environment = {name: value for name, value in environment.items() if not name.startswith(("VAKA_", "XDG_"))}
        environment["HOME"] = str(cwd)
    shown = "print(json.dumps(sorted(set(sys.modules) - old)))"
    code = f"import sys, json\nold = set(sys.modules)\n{statement}\n{shown}"
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, env=environment, capture_output=True, text=True, cwd=cwd
    )
    found: list[str] = json.loads(done.stdout.splitlines()[-1])
    return found


def list_command_modules(arguments: Sequence[str]) -> list[str]:
    """Return the modules that a command of ``vaka`` loads."""
    with temporary_folder() as folder:
        _write_script(folder)
        return list_loaded_modules(
            f"try:\n from vaka.cli.main import main\n main({list(arguments)!r})\nexcept SystemExit:\n pass", folder
        )


def _write_script(folder: Path) -> None:
    (folder / "hello.jsonl").write_text('{"text": "Hello."}\n')


def list_forbidden(found: list[str]) -> list[str]:
    """Return the modules that must not be loaded."""
    return [name for name in found if name.partition(".")[0] in FORBIDDEN_MODULES]


def measure_imports(quick: bool) -> list[Row]:
    """Measure the wall time of a whole process and the modules it loads."""
    times = 3 if quick else 9
    nothing = time_process("pass", times) * 1e3
    rows: list[Row] = []
    for statement, name, target in (
        (IMPORT_STATEMENT, "import vaka", 150.0),
        (USE_STATEMENT, "import Agent, Runtime, tool", None),
    ):
        found, taken = list_loaded_modules(statement), time_process(statement, times) * 1e3
        bad = list_forbidden(found)
        rows += [
            Row(
                name=name,
                value=taken,
                unit="ms",
                target=target,
                raw=nothing,
                ratio=taken / nothing,
                note=f"whole process, best of {times}; raw: a Python that does nothing",
            ),
            Row(name=f"{name}: forbidden modules", value=len(bad), unit="", target=0.0, note=", ".join(bad)),
            Row(name=f"{name}: modules", value=len(found), unit=""),
        ]
    return rows


def time_first_line(command: Sequence[str], folder: Path) -> float:
    """Return the milliseconds from the start of a command to its first line of output."""
    begun = time.perf_counter()
    with subprocess.Popen(command, cwd=folder, env=subprocess_environment(), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        taken = time.perf_counter() - begun
        process.stdout.read()
    assert line
    return taken * 1e3


def measure_commands(quick: bool) -> list[Row]:
    """Measure the start of the command line and of the tools that people use beside it, in turns."""
    times = 5 if quick else 25
    vaka = str(Path(sys.executable).with_name("vaka"))
    commands: dict[str, Sequence[str]] = {
        "python -c 'print()'": (sys.executable, "-c", "print()"),
        "git --version": ("git", "--version"),
        "node --version": ("node", "--version"),
        "vaka --version": (vaka, *VERSION_ARGUMENTS),
        "vaka run, first event": (vaka, *RUN_ARGUMENTS),
    }
    commands = {name: command for name, command in commands.items() if shutil.which(command[0])}
    taken: dict[str, list[float]] = {name: [] for name in commands}
    with temporary_folder() as folder:
        _write_script(folder)
        for _ in range(times + 1):  # the first round writes the .pyc files
            for name, command in commands.items():
                taken[name].append(time_first_line(command, folder))
    targets = {"vaka --version": 60.0, "vaka run, first event": 200.0}
    nothing = min(taken["python -c 'print()'"])
    rows = [
        Row(
            name=f"start: {name}",
            value=min(found),
            unit="ms",
            target=targets.get(name),
            raw=nothing,
            ratio=min(found) / nothing,
            note=f"exec to the first line, best of {times}; raw: Python alone",
        )
        for name, found in taken.items()
    ]
    counts = {"vaka --version": VERSION_ARGUMENTS, "vaka run": RUN_ARGUMENTS}
    return rows + [
        Row(name=f"start: {name}: modules", value=len(list_command_modules(arguments)), unit="")
        for name, arguments in counts.items()
    ]


_LOAD_PROJECT = """
import os, time
from pathlib import Path
import vaka.runtime.runtime
begun = time.perf_counter()
from vaka.project.claude_settings import load_settings_files
from vaka.project.content import ProjectSource
from vaka.config.settings import ConfigContext
from vaka.project.hook_sources import hooks_in_force
context = ConfigContext(cwd=Path.cwd(), home=Path.home(), environ=os.environ)
source = ProjectSource()
content = source.load(".")
hooks = hooks_in_force(context, load_settings_files(context, trust=True), trusted=True)
loaded = time.perf_counter()
again = source.load(".", content)
found = content.components
assert (len(found.skills), len(found.commands), len(found.agents), len(hooks.hooks)) == (70, 70, 60, 20), found
assert again == content
print((loaded - begun) * 1e3, (time.perf_counter() - loaded) * 1e3)
"""


def write_project(folder: Path) -> None:
    """Write a project with 70 skills, 70 commands, 60 agents and 20 hooks, none of which changed lately."""
    files = {".git/HEAD": ""}
    for number in range(70):
        skill = f"---\nname: skill-{number}\ndescription: Skill {number}, for one kind of work.\n---\n"
        files[f".claude/skills/skill-{number}/SKILL.md"] = skill + "Do this and that.\n" * 500
        command = f"---\ndescription: Command {number}.\nallowed-tools: Read, Bash(git:*)\n---\nDo $ARGUMENTS.\n"
        files[f".claude/commands/command-{number}.md"] = command
    for number in range(60):
        agent = f"---\nname: agent-{number}\ndescription: Agent {number}.\ntools: Read, Grep\nmodel: sonnet\n---\n"
        files[f".claude/agents/agent-{number}.md"] = agent + "You are an agent.\n" * 50
    hooks = [{"matcher": f"Tool{number}", "hooks": [{"type": "command", "command": "true"}]} for number in range(20)]
    files[".claude/settings.json"] = json.dumps({"hooks": {"PreToolUse": hooks}})
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        os.utime(path, (1_700_000_000, 1_700_000_000))


def measure_project(quick: bool) -> list[Row]:
    """Measure how long the content of a large project takes to load, and a run that begins with it."""
    times = 5 if quick else 15
    run = (str(Path(sys.executable).with_name("vaka")), *RUN_ARGUMENTS)
    loads: list[tuple[float, float]] = []
    starts: list[tuple[float, float]] = []
    with temporary_folder() as folder, temporary_folder() as empty:
        for place in (folder, empty):
            _write_script(place)
        write_project(folder)
        for _ in range(times):
            done = subprocess.run(
                [sys.executable, "-c", _LOAD_PROJECT],
                check=True,
                cwd=folder,
                capture_output=True,
                text=True,
                env=subprocess_environment() | {"HOME": str(empty)},
            )
            first, again = map(float, done.stdout.split())
            loads.append((first, again))
            starts.append((time_first_line(run, folder), time_first_line(run, empty)))
    with_project, without = min(one for one, _ in starts), min(one for _, one in starts)
    what = "70 skills, 70 commands, 60 agents, 20 hooks"
    return [
        Row(
            name=f"project: load {what}",
            value=min(first for first, _ in loads),
            unit="ms",
            target=60.0,
            note=f"with its imports, after those of a runtime, best of {times}",
        ),
        Row(name="project: load again, nothing changed", value=min(again for _, again in loads), unit="ms"),
        Row(
            name="start: vaka run in it, first event",
            value=with_project,
            unit="ms",
            raw=without,
            ratio=with_project / without,
            note="raw: an empty folder",
        ),
    ]


def measure_construction(quick: bool) -> list[Row]:
    """Measure the construction of an agent with one tool."""
    count = 500 if quick else 3000
    return [
        Row(name="construct an agent", value=time_construction(make_agent, count) * 1e6, unit="µs", target=10.0),
        Row(
            name="idle agent", value=measure_object_size(make_agent) / 1024, unit="KiB", target=4.0, note="tracemalloc"
        ),
    ]
