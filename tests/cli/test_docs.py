"""The examples of the command line pages print what the pages show."""

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tests.cli.shell import Shell
from vaka.cli.command_table import find_command, list_commands
from vaka.config.setting_keys import read_settings_file

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "reference" / "cli.md").read_text(encoding="utf-8")
GUIDE = (DOCS / "guides" / "configuration.md").read_text(encoding="utf-8")

_FILES = re.compile(r"^`(\S+)`:\n\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_BLOCKS = re.compile(r"^```console\n(.*?)^```(?=\n\n|\Z)", re.MULTILINE | re.DOTALL)


def page_examples() -> list[tuple[str, str]]:
    """Return each command of the page with its output."""
    examples: list[tuple[str, str]] = []
    for block in _BLOCKS.findall(PAGE):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, printed = part.partition("\n")
            examples.append((command, printed))
    return examples


@pytest.mark.timeout(900)
def test_every_example_of_the_page_prints_what_it_shows(shell: Shell) -> None:
    for name, text in _FILES.findall(PAGE):
        shell.write_file(name, text)
    for command, printed in page_examples():
        done = shell.bash(f"({command}) 2>&1", fork=True)
        wanted = ".*".join(re.escape(piece) for piece in printed.split("…"))
        assert re.fullmatch(wanted, done.out, re.DOTALL), f"{command}\n{done.out}"


def test_every_command_is_on_the_page() -> None:
    for name in list_commands():
        assert f"`vaka {name}" in PAGE


def load_command(name: str) -> click.Command:
    command = find_command(name)
    assert command is not None
    return command


def commands_below(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    if not isinstance(command, click.Group):
        yield path, command
        return
    for name, below in command.commands.items():
        yield from commands_below(below, (*path, name))


def test_every_option_of_every_command_is_on_the_page() -> None:
    parts = re.split(r"^## (?=`vaka|Options)", PAGE, flags=re.MULTILINE)[1:]
    heads = [(part.partition("\n")[0], part) for part in parts]
    common = next(text for head, text in heads if head.startswith("Options"))
    missing: list[str] = []
    for group in list_commands():
        section = next(text for head, text in heads if f"`vaka {group}" in head)
        for path, command in commands_below(load_command(group), (group,)):
            for param in command.params:
                names = param.opts if isinstance(param, click.Option) and not param.hidden else []
                patterns = [rf"(?<![\w-]){name}(?![\w-])" for name in names if name.startswith("--")]
                if not all(re.search(pattern, f"{section}\n{common}") for pattern in patterns):
                    missing.append(f"vaka {' '.join(path)} {names[0]}")
    assert missing == []


def test_the_settings_in_the_guide_can_be_read(tmp_path: Path) -> None:
    file = tmp_path / "vaka.toml"
    file.write_text(re.findall(r"^```toml\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)[0], encoding="utf-8")
    assert set(read_settings_file(file)) == {"model", "store", "deny", "max_steps", "timeout"}
