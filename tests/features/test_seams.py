"""Each feature can be deleted: everything else works without its folder. A folder more is a feature more."""

import importlib
import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import httpx2
import pytest

import vaka
from tests.cli.shell import Shell, say_line
from tests.features.trees import LIBRARY_TURN, copy_tree, environ_of, list_feature_folders
from tests.server_process import ServerProcess
from vaka.cli.command_table import list_commands
from vaka.feature import Feature, find_features

FEATURE_FILE = """
from vaka.feature import Feature


def load_commands():
    from vaka.greetings.cli import greet

    return [greet]


def load_session_commands():
    from vaka.greetings.cli import salute

    return [salute]


def load_operations():
    from vaka.greetings.http import OPERATIONS

    return OPERATIONS


def load_door():
    from vaka.greetings.http import door

    return door


def load_checks():
    from vaka.cli.kit.checks import Check

    return [Check("greetings", "ok", "politely")]


def load_records():
    from vaka.greetings.records import GreetingRecords

    return GreetingRecords()


FEATURE = Feature(
    name="greetings",
    commands={"greet": "Greet a person."},
    load_commands=load_commands,
    load_session_commands=load_session_commands,
    load_operations=load_operations,
    load_door=load_door,
    load_checks=load_checks,
    load_records=load_records,
)
"""
CLI_FILE = '''
import click


@click.command()
@click.argument("name")
def greet(name):
    """Greet a person."""
    click.echo(f"Good morning, {name}.")


@click.command()
@click.argument("session")
def salute(session):
    """Greet in a session."""
    click.echo(f"Good morning in {session}.")
'''
HTTP_FILE = """
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from vaka.server.kit.door import Door
from vaka.server.kit.operation import Operation


async def list_greetings(service, request):
    return PlainTextResponse("Good morning.")


async def show_page(request):
    return PlainTextResponse("A page of greetings.")


OPERATIONS = [
    Operation(method="GET", path="/greetings", scope="runs:read", handler=list_greetings, summary="List greetings")
]


def door(service):
    return Door([Route("/greetings", show_page)])
"""
RECORDS_FILE = """
class GreetingRecords:
    async def copy_session(self, store, origin, new_session):
        await store.values.put(f"greetings/{new_session}", origin)

    async def list_copies(self, store, session):
        return []

    async def erase_session(self, store, session, *, dry_run):
        return {}

    async def erase_owner(self, store, owner, open_files, *, dry_run):
        return {"greetings": len(await store.values.keys("greetings/"))}
"""
USED_NAMES = {
    "genx": "vaka.load_agents",
    "mcp": "Project(mcp=…)",
    "memory": "runtime.memories",
    "project": "vaka.ProjectSource",
    "threads": "runtime.threads",
}
"""What programs use of a feature by its name."""
MISSING_PROJECT = "this needs the feature 'project', and this installation has no folder vaka/project"


@pytest.mark.parametrize("feature", find_features(), ids=lambda feature: feature.name)
def test_everything_else_works_without_the_folder_of_a_feature(feature: Feature, tmp_path: Path) -> None:
    tree, shell = copy_tree(tmp_path / "tree", without=[feature.name]), Shell(tmp_path)
    shell.write_script(say_line("Hello.") | {"repeat": True})
    used = use_tree(tree, shell, "sessions --help", *(["config show"] if feature.name == "project" else []))
    assert used["path"] == str(tree / "vaka" / "__init__.py")
    assert (used["answer"], used["run"]) == ("It is 5.", "Hello.\n")
    assert used["fork"].startswith("ses_fork")
    shown = commands_of(used["help"])
    assert shown == set(list_commands()) - set(feature.commands)
    below_sessions = feature.load_session_commands() if feature.load_session_commands is not None else ()
    assert commands_of(used["others"][0]).isdisjoint(command.name for command in below_sessions)
    if feature.name in USED_NAMES:
        name = USED_NAMES[feature.name]
        assert (
            used[name]
            == f"{name} needs the feature '{feature.name}', and this installation has no folder vaka/{feature.name}"
        )
    if feature.name == "project":
        assert used["others"][1] == f"error: {MISSING_PROJECT}\n"
    with start_server(tree, shell) as server:
        turn = httpx2.post(
            f"{server.url}/api/v1/sessions/s/turns", json={"input": "Hi.", "agent": "assistant"}, timeout=60
        )
        assert turn.status_code == 200, turn.text
        assert (turn.json()["status"], turn.json()["text"]) == ("completed", "Hello.")


def test_settings_with_mcp_servers_name_the_missing_feature(tmp_path: Path) -> None:
    tree, shell = copy_tree(tmp_path / "tree", without=["mcp"]), Shell(tmp_path)
    shell.write_script(say_line("Hello.") | {"repeat": True})
    shell.write_file("servers.json", json.dumps({"mcpServers": {"db": {"command": "true"}}}))
    home = Path(shell.env["HOME"])
    home.mkdir(exist_ok=True)
    (home / ".claude.json").write_text(json.dumps({"projects": {}}))
    run = "run Hi. --model scripted:script.jsonl"
    with_file, without, command = use_tree(tree, shell, f"{run} --mcp-config servers.json", run, "mcp list")["others"]
    assert without == "Hello.\n"
    missing = "needs the feature 'mcp', and this installation has no folder vaka/mcp"
    assert f"a definition of MCP servers {missing}" in with_file
    assert "No such command 'mcp'" in command


def test_a_folder_more_is_a_feature_more(tmp_path: Path) -> None:
    folder, shell = tmp_path / "greetings", Shell(tmp_path)
    files = {"__init__": "", "feature": FEATURE_FILE, "cli": CLI_FILE, "http": HTTP_FILE, "records": RECORDS_FILE}
    for name, text in files.items():
        shell.write_file(f"greetings/{name}.py", text)
    tree = copy_tree(tmp_path / "tree", more={"greetings": folder})
    shell.write_script(say_line("Hello.") | {"repeat": True})
    used = use_tree(tree, shell, "greet Kim", "doctor", "gret Kim", "sessions salute s")
    assert commands_of(used["help"]) == {*list_commands(), "greet"}
    greeting, report, unknown, salute = used["others"]
    assert (greeting, salute) == ("Good morning, Kim.\n", "Good morning in s.\n")
    assert ["greetings", "ok", "politely"] in [line.split() for line in report.splitlines()]
    assert "Did you mean 'greet'?" in unknown
    assert used["erased"] == "greetings,rules,semantic,text,working"
    with start_server(tree, shell) as server:
        assert httpx2.get(f"{server.url}/api/v1/greetings").text == "Good morning."
        assert httpx2.get(f"{server.url}/greetings").text == "A page of greetings."
        document = httpx2.get(f"{server.url}/api/v1/openapi.json").json()
        assert document["paths"]["/api/v1/greetings"]["get"]["summary"] == "List greetings"


def test_a_missing_library_of_a_feature_is_an_error_that_names_the_extra() -> None:
    def load_missing() -> object:
        return importlib.import_module("a_library_that_nobody_has")

    with pytest.raises(vaka.VakaError, match=r"that_nobody_has is not installed; .* 'vaka\[tui\]'"):
        Feature(name="greetings", extra="tui").load(load_missing)
    with pytest.raises(ModuleNotFoundError):
        Feature(name="greetings").load(load_missing)


def test_every_folder_of_a_feature_is_found_and_has_a_place_in_the_import_contract() -> None:
    assert [feature.name for feature in find_features()] == list_feature_folders()
    contracts = tomllib.loads(Path("pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    [inside] = [contract for contract in contracts if contract["name"].startswith("The inside of a feature")]
    assert sorted(inside["source_modules"]) == [f"vaka.{name}" for name in list_feature_folders()]


def start_server(tree: Path, shell: Shell) -> ServerProcess:
    """Start ``vaka serve`` of a copy of vaka."""
    arguments = ("--model", "scripted:script.jsonl", "--insecure", "--no-ui")
    return ServerProcess(shell.folder, environ_of(tree, shell.env), *arguments)


def use_tree(tree: Path, shell: Shell, *commands: str) -> dict[str, Any]:
    """Run a program with a copy of vaka."""
    command = [sys.executable, str(LIBRARY_TURN), *commands]
    done = subprocess.run(
        command,
        cwd=shell.folder,
        env=environ_of(tree, shell.env),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    results: dict[str, Any] = json.loads(done.stdout)
    return results


def commands_of(text: str) -> set[str]:
    """Return the commands that a help text lists."""
    lines = text.partition("\nCommands:\n")[2].partition("\n\n")[0].splitlines()
    return {line.split()[0] for line in lines if line[:2] == "  " and line[2:3] != " "}
