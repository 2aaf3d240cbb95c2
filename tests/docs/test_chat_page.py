"""docs/guides/chat.md: its pictures show what the chat shows, and its tables list the keys and commands there are."""

import re
from pathlib import Path
from typing import Any

import pytest

from scripts.screenshots import COMMAND, IMAGES, take_screenshots, text_of_picture
from tests.cli.chat.chat_in_process import chat_in_process
from vaka import Agent, Runtime
from vaka.config.options import Commands
from vaka.models.scripted import Scripted

PAGE = (IMAGES.parent / "chat.md").read_text("utf-8")
KEY_NAMES = {
    "escape": "Esc",
    "pageup": "Page Up",
    "pagedown": "Page Down",
    "delete": "Del",
    "s-tab": "Shift-Tab",
    "c-m": "Enter",
    "c-i": "Tab",
    "c-h": "Backspace",
}
MODIFIED_KEY = re.compile(r"\b(?:Ctrl|Alt|Shift)-\w+")


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def name_of_keys(keys: tuple[Any, ...]) -> str:
    """Return keys of a binding as the page names them, ``""`` for input that is not a key."""
    first, *more = [str(getattr(key, "value", key)) for key in keys]
    if more:
        return f"Alt-{name_of_keys((more[0],))}"
    if first.startswith("<"):
        return ""
    return KEY_NAMES.get(first) or (f"Ctrl-{first[2:].upper()}" if first.startswith("c-") else first.title())


async def test_the_pictures_show_what_the_chat_shows_now() -> None:
    taken = {name: text_of_picture(svg) for name, svg in (await take_screenshots()).items()}
    present = {file.name: text_of_picture(file.read_text("utf-8")) for file in IMAGES.glob("*.svg")}
    assert present == taken, f"the chat has changed; run {COMMAND!r} and look at the pictures"
    assert [name for name in taken if f"](images/{name})" not in PAGE] == []


async def test_the_tables_list_every_key_and_command_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    agent: Agent[Any] = Agent("talker", model=Scripted([]))
    async with Runtime(agent=agent, commands=Commands(sandbox="off")) as runtime, chat_in_process(runtime) as chat:
        screen: Any = chat.chat.screen
        bindings = screen.app.key_bindings
        keys = {name_of_keys(binding.keys) for binding in bindings.bindings} - {""}
        commands = set(chat.chat.commands.help_texts)
    table = section("Keys")
    assert sorted(name for name in keys if not re.search(rf"\b{name}\b", table)) == []
    assert sorted(set(MODIFIED_KEY.findall(table)) - keys) == []
    assert set(re.findall(r"`/(\w+)", section("Commands"))) == commands
