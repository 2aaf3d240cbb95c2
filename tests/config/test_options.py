"""A marked field of an option group is a flag, a variable, a setting and part of the reference: one file changes."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import click
import pytest

from tests.cli.shell import say_line
from tests.cli.test_docs import commands_below, load_command
from vaka.cli.command_table import list_commands
from vaka.cli.kit.options import flag_of
from vaka.config.options import Permissions
from vaka.config.setting_keys import SETTING_KEYS, settings_of
from vaka.runtime.one_shot import RuntimeOptions

ROOT = Path(__file__).parents[2]
ANCHOR = "    policy: Policy | None = None\n"
FIELD = '''    tide: Annotated[
        int | None, Flag("--highest-tide", "Metres of a tide at most.", stored="tide_limit"), Key("tide_height")
    ] = None
    """How high a tide may be."""
'''


class ChangedVaka:
    """A copy of vaka whose permissions have one more field."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.copytree(ROOT / "src/vaka", folder / "src/vaka", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(ROOT / "scripts", folder / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
        options = folder / "src/vaka/config/options.py"
        before, anchor, after = options.read_text(encoding="utf-8").partition(ANCHOR)
        assert anchor
        options.write_text(f"{before}{FIELD}{anchor}{after}", encoding="utf-8")
        (folder / "project/.git").mkdir(parents=True)
        script = "".join(json.dumps(say_line(text)) + "\n" for text in ("One.", "Two."))
        (folder / "project/script.jsonl").write_text(script)

    def run(self, *words: str, cwd: str = "project", **environ: str) -> str:
        """Run a program with the copy and return what it prints."""
        own = {name: value for name, value in os.environ.items() if not name.startswith(("VAKA_", "XDG_"))}
        own |= {"HOME": str(self.folder / "home"), "PYTHONPATH": f"{self.folder}/src", "COLUMNS": "200"}
        done = subprocess.run(
            [sys.executable, *words],
            cwd=self.folder / cwd,
            env={**own, **environ},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def show_setting(self, *words: str, **environ: str) -> tuple[Any, str, str]:
        shown = json.loads(self.run("-m", "vaka", "config", "show", "--origin", "--json", *words, **environ))
        setting = shown["tide_height"]
        return setting["value"], setting["layer"], Path(setting["origin"]).name

    def find_row(self, page: str, name: str) -> str:
        """Return the row of a table that begins with a name."""
        lines = (self.folder / page).read_text(encoding="utf-8").splitlines()
        return next(line for line in lines if line.startswith(f"| `{name}` |"))


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> ChangedVaka:
    return ChangedVaka(tmp_path_factory.mktemp("changed"))


def test_a_new_field_is_a_flag_in_the_help(changed: ChangedVaka) -> None:
    shown = changed.run("-m", "vaka", "run", "--help")
    assert "--highest-tide INTEGER RANGE" in shown
    assert "Metres of a tide at most." in shown


def test_a_new_field_is_a_variable_a_setting_of_a_file_and_a_flag_with_their_origin(changed: ChangedVaka) -> None:
    assert changed.show_setting() == (None, "default", "default")
    (changed.folder / "project/vaka.toml").write_text("tide_height = 2\n")
    assert changed.show_setting() == (2, "project", "vaka.toml:1")
    assert changed.show_setting(VAKA_TIDE_HEIGHT="3") == (3, "environment", "VAKA_TIDE_HEIGHT")
    assert changed.show_setting("--highest-tide", "4", VAKA_TIDE_HEIGHT="3") == (4, "flag", "--highest-tide")


def test_the_log_of_a_session_has_a_new_flag_under_its_stored_name(changed: ChangedVaka) -> None:
    words = ("-m", "vaka", "run", "Go.", "--session", "s", "--store", "sqlite:///s.db", "--model")
    changed.run(*words, "scripted:script.jsonl", "--highest-tide", "5")
    changed.run(*words, "scripted:script.jsonl")
    log = changed.run("-m", "vaka", "sessions", "export", "s", "--store", "sqlite:///s.db").splitlines()
    opened = json.loads(log[0])["data"]["run"]["flags"]
    assert opened == {"tide_limit": 5}
    runs = [json.loads(line)["data"].get("run") for line in log]
    assert [run["flags"] for run in runs if run] == [opened], "the second run has the same flags"


def test_the_reference_has_a_new_field_with_its_flag(changed: ChangedVaka) -> None:
    (changed.folder / "docs/reference").mkdir(parents=True)
    changed.run("-m", "scripts.reference", cwd=".")
    assert changed.find_row("docs/reference/python.md", "tide") == (
        "| `tide` | `int \\| None` | `None` | How high a tide may be. (flag `--highest-tide`, setting `tide_height`, "
        "variable `VAKA_TIDE_HEIGHT`) |"
    )
    assert changed.find_row("docs/reference/settings.md", "tide_height") == (
        "| `tide_height` | `--highest-tide` | whole number above 0 |  |  | How high a tide may be. |"
    )


def test_a_new_field_is_an_argument_of_run_by_its_group(changed: ChangedVaka) -> None:
    assert RuntimeOptions.__annotations__["permissions"].__forward_arg__ == Permissions.__name__
    code = "import vaka; runtime = vaka.Runtime(permissions=vaka.Permissions(tide=3))"
    assert changed.run("-c", f"{code}; print(runtime.options.permissions.tide)") == "3\n"


def test_every_command_has_the_flag_of_a_setting_as_its_mark_makes_it() -> None:
    made: dict[str, click.Option] = {}
    for key in SETTING_KEYS.values():
        if key.flag is not None:
            command = flag_of(key.name)(click.Command("made"))
            made[key.flag.name] = cast("click.Option", command.params[0])
    others = set[str]()
    for group in list_commands():
        for path, command in commands_below(load_command(group), (group,)):
            for param in command.params:
                names = [name for name in param.opts if name in made]
                if any(describe_flag(made[name]) != describe_flag(param) for name in names):
                    others.add(f"{' '.join(path)} {names[0]}")
    assert others == {
        "config convert --output",  # a folder
        "init --permission-mode",  # only the modes that it offers
        "match test --model",  # may be repeated
        "match test --output",  # a file
        "mcp add --env",  # a variable of the server
        "mcp login --timeout",
    }, "flags that have the name of a setting and another meaning"


def describe_flag(flag: click.Parameter) -> tuple[object, ...]:
    return flag.name, flag.multiple, type(flag.type), getattr(flag.type, "choices", ())


def test_what_marks_leave_out_follows_from_the_type_and_the_default() -> None:
    keys = {key.name: (key.kind, key.default, key.choices, key.widens) for key in settings_of(Permissions)}
    modes = ("default", "acceptEdits", "plan", "dontAsk", "bypassPermissions")
    assert keys == {
        "permission_mode": ("text", "default", modes, False),
        "allow": ("list", (), (), True),
        "confirm": ("list", (), (), False),
        "deny": ("list", (), (), False),
        "ask": ("text", "", ("wait", "suspend", "deny"), False),
    }
