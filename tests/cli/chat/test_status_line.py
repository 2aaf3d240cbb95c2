"""The status line that a command of the user prints."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.chat.chat_in_process import chat_in_process
from vaka import Agent, Runtime
from vaka.cli.chat.status_line import StatusCommand, status_command
from vaka.config.options import Commands, Workspace
from vaka.config.settings import SettingsFile
from vaka.models import Scripted
from vaka.project.content import ProjectSource
from vaka.runtime.options import Project


async def test_the_first_line_of_the_command_is_shown_and_follows_the_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SOME_API_KEY", "hidden")
    printed = "'\\033[31mbranch\\033[0m [%s] \\a turns %s\\nmore'"
    script = f'cat > seen.json; printf {printed} "$SOME_API_KEY" "$(wc -l < turns)"'
    (tmp_path / "turns").touch()
    agent: Agent[Any] = Agent("talker", model=Scripted([{"text": "Hi.", "usage": {"input": 7}, "repeat": True}]))
    status = StatusCommand(command=script)
    async with (
        Runtime(agent=agent, commands=Commands(sandbox="off")) as runtime,
        chat_in_process(runtime, status=status) as chat,
    ):
        await chat.expect("branch [] ")
        await chat.expect("turns 0")
        (tmp_path / "turns").write_text("one\n")
        await chat.say("First.")
        await chat.expect("turns 1")
        payload = json.loads((tmp_path / "seen.json").read_text())
        assert payload["session_id"] == chat.chat.session.id
        assert payload["workspace"]["current_dir"] == str(tmp_path)
        assert "more" not in chat.visible


def test_a_command_counts_from_trusted_files_only() -> None:
    setting = {"type": "command", "command": "date", "intervalSeconds": 2, "timeoutSeconds": 0}
    user = SettingsFile(layer="user", path=Path("u"), document={"statusLine": setting})
    project = SettingsFile(
        layer="project",
        path=Path("p"),
        document={"statusLine": {**setting, "command": "evil"}},
        project=True,
        trusted=False,
    )
    assert status_command([user, project]) == StatusCommand(command="date", interval=2.0)
    assert status_command([project]) is None
    template = SettingsFile(
        layer="user", path=Path("u"), document={"statusLine": {"type": "template", "template": "x"}}
    )
    assert status_command([template]) is None


async def test_the_status_line_shows_the_mode_in_force_also_when_settings_change_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    file = tmp_path / ".claude/settings.json"
    file.parent.mkdir()
    file.write_text('{"permissions": {"defaultMode": "plan"}}')
    agent: Agent[Any] = Agent("talker", model=Scripted([{"text": "Hi.", "repeat": True}]))
    source = ProjectSource(settings=True)
    async with Runtime(
        agent=agent,
        commands=Commands(sandbox="off"),
        project=Project(content=source),
        workspace=Workspace(cwd=str(tmp_path)),
    ) as runtime:

        def find_mode() -> str:
            return str(getattr(runtime.env.policy, "mode", ""))

        async with chat_in_process(runtime, find_mode=find_mode) as chat:
            await chat.expect(" plan ")
            file.write_text('{"permissions": {"defaultMode": "dontAsk"}}')
            await chat.say("First.")
            await chat.expect(" dontAsk ")
