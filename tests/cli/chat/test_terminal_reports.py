"""The theme by the background of the terminal, and notifications while it has no focus."""

from pathlib import Path
from typing import Any

import pytest

from tests.cli.chat.chat_in_process import chat_in_process
from vaka import Agent, Runtime
from vaka.cli.chat.notifications import notification_command, notification_sequence
from vaka.cli.chat.terminal_reports import theme_of_colour, theme_of_environment
from vaka.config.options import Commands
from vaka.models.scripted import Scripted

FOCUS_GAINED = "\x1b[I"
FOCUS_LOST = "\x1b[O"
BELL = "\x07"


def asking_runtime() -> Runtime:
    """Return a runtime whose first turn asks for an approval."""
    lines: list[dict[str, Any]] = [
        {"tool_calls": [{"name": "Bash", "arguments": {"command": "touch x"}}]},
        {"text": "Done.", "repeat": True},
    ]
    agent: Agent[Any] = Agent("coder", model=Scripted(lines), tools=["Bash"])
    return Runtime(agent=agent, commands=Commands(sandbox="off"))


async def test_the_theme_follows_the_background_and_the_bell_rings_without_focus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TERM", "xterm")
    settings: dict[str, Any] = {"theme": "auto", "notify": "bell", "notify_after": 0}
    async with asking_runtime() as runtime, chat_in_process(runtime, **settings) as chat:
        assert "\x1b]11;?\x1b\\" in chat.output.written
        chat.send("\x1b]11;rgb:ff")
        chat.send("ff/ffff/ffff\x1b\\")
        chat.send(FOCUS_GAINED)
        await chat.say("Go.")
        await chat.expect("Approve Bash?")
        assert "\x1b[1;34m❯" in chat.output.written
        assert BELL not in chat.output.written
        chat.send(FOCUS_LOST + "y")
        await chat.expect("Done.")
        await chat.expect("Esc interrupts", gone=True)
        assert chat.output.written.count(BELL) == 1
        assert "rgb" not in chat.text
    assert chat.output.written.rfind("\x1b[?1004l") > chat.output.written.rfind("\x1b[?1004h")


def test_the_environment_can_name_the_background_and_refuse_colours() -> None:
    assert theme_of_environment({"COLORFGBG": "0;15"}) == "light"
    assert theme_of_environment({"COLORFGBG": "15;default;0"}) == "dark"
    assert theme_of_environment({"COLORFGBG": "0;15", "NO_COLOR": "1"}) == "none"
    assert theme_of_environment({"TERM": "dumb"}) == "none"
    assert theme_of_environment({"COLORFGBG": "default"}) == ""
    assert theme_of_colour("rgb:1e/1e/2e") == "dark"
    assert theme_of_colour("rgba:ffff/fafa/f0f0/ffff") == "light"
    assert theme_of_colour("?") == ""


def test_a_desktop_notification_uses_the_desktop_or_the_terminal(tmp_path: Path) -> None:
    program = tmp_path / "notify-send"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    desktop = {"PATH": str(tmp_path), "DISPLAY": ":0"}
    assert notification_command("-a question\x1b", desktop) == [
        str(program),
        "--app-name=vaka",
        "--",
        "vaka",
        "-a question\\u001b",
    ]
    assert notification_command("a question", {"PATH": str(tmp_path)}) is None
    assert notification_sequence("a\x07b", {"TERM": "xterm-256color"}) == "\x1b]9;vaka: a\\u0007b\x07"
    assert notification_sequence("ab", {"TERM": "foot"}) == "\x1b]777;notify;vaka;ab\x07"
