"""What the command line loads; counted in modules, since a time depends on the machine."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys
from vaka.cli.main import main
try:
    main(sys.argv[1:])
except SystemExit:
    pass
print(*sys.modules)
"""
RUN = ("run", "Say hello.", "--model", "scripted:hello.jsonl", "--ephemeral")


def loaded_modules(folder: Path, *arguments: str) -> set[str]:
    """Return the modules that a command has loaded at its end; without coverage, which loads some itself."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    environment["HOME"] = str(folder)
    command = [sys.executable, "-c", PROGRAM, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment, cwd=folder)
    return set(done.stdout.splitlines()[-1].split())


def test_the_version_is_printed_without_the_event_loop_and_the_runtime(tmp_path: Path) -> None:
    loaded = loaded_modules(tmp_path, "--version")
    assert loaded & {"asyncio", "msgspec", "json", "ssl", "pathlib", "vaka.runtime", "vaka.config"} == set()
    assert len(loaded) < 125


@pytest.mark.parametrize("arguments", [RUN, (*RUN, "--output", "stream-json")], ids=["text", "stream-json"])
def test_a_run_that_calls_no_tool_imports_no_tool(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    (tmp_path / "hello.jsonl").write_text('{"text": "Hello."}\n')
    loaded = loaded_modules(tmp_path, *arguments)
    heavy = {"httpx2", "jsonschema_rs", "yaml", "sqlite3", "asyncpg", "pydantic", "tree_sitter", "zipfile"}
    assert loaded & heavy == set()
    tools = {name for name in loaded if name.startswith(("vaka.tools.builtin.", "vaka.tools.function"))}
    assert tools == set()
    assert len(loaded) < 357
