"""What slash commands of a chat say about its agent, and how they switch its mode."""

from pathlib import Path

import pytest

from tests.cli.chat.chat_in_process import chat_in_process
from vaka import Agent, Runtime
from vaka.config.options import Permissions
from vaka.models.scripted import Scripted
from vaka.runtime.options import Project

FIRST_PROMPT_NOTE = "the first prompt adds those for child agents, skills and MCP servers"


@pytest.fixture(autouse=True)
def _project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


async def test_tools_lists_those_of_the_last_request_with_the_tool_for_child_agents() -> None:
    agent = Agent("coder", model=Scripted([{"text": "Hello."}]), tools=["Bash", "Read"])
    project = Project(child_agents=True)
    async with Runtime(agent=agent, project=project) as runtime, chat_in_process(runtime) as chat:
        await chat.say("/tools")
        await chat.expect("  Bash\n  Read\nthe first prompt adds")
        await chat.say("Greet me.")
        await chat.expect("Hello.")
        await chat.say("/tools")
        await chat.expect("  Bash\n  Read\n  Task\n")
        assert chat.text.count(FIRST_PROMPT_NOTE) == 1


async def test_plan_goes_back_to_the_mode_before_it() -> None:
    agent = Agent("coder", model=Scripted([{"text": "Hello."}]))
    permissions = Permissions(mode="acceptEdits")
    async with Runtime(agent=agent, permissions=permissions) as runtime, chat_in_process(runtime) as chat:
        await chat.say("/permissions acceptEdits")
        await chat.expect("permission mode: acceptEdits")
        await chat.say("/plan")
        await chat.expect("permission mode: plan")
        await chat.say("/plan")
        await chat.expect("permission mode: plan\n\npermission mode: acceptEdits")


@pytest.mark.parametrize("command", ["/undo", "/fork", "/rewind 1", "/rewind 1 files", "/usage"])
async def test_commands_about_turns_say_that_a_new_session_has_none(command: str) -> None:
    agent = Agent("coder", model=Scripted([{"text": "Hello."}]))
    async with Runtime(agent=agent) as runtime, chat_in_process(runtime) as chat:
        await chat.say(command)
        await chat.expect("error: this session has no turn yet")


async def test_another_session_that_does_not_exist_is_named() -> None:
    agent = Agent("coder", model=Scripted([{"text": "Hello."}]))
    async with Runtime(agent=agent) as runtime, chat_in_process(runtime) as chat:
        await chat.say("/resume lost")
        await chat.expect("error: there is no session 'lost'")
