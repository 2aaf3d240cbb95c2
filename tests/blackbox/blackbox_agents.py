"""The agents that the clients of OpenAI and Anthropic talk to, and the examples of their guides."""

import asyncio
import contextlib
import io
import os
import re
from pathlib import Path
from typing import Any

import pytest

import vaka
from vaka.testing import ScriptedModel, call, say

GUIDES = Path(__file__).parents[2] / "docs" / "guides"


@vaka.tool
def deploy(place: str) -> str:
    """Deploy it."""
    return f"deployed to {place}"


@vaka.tool
def look(place: str) -> str:
    """Look."""
    return f"sunny in {place}"


@vaka.tool
async def wait() -> str:
    """Wait."""
    await asyncio.Event().wait()
    return ""


def make_agents() -> list[vaka.Agent[Any]]:
    """Return agents for text, tools, approvals, tools of the client, data, and turns that do not end."""
    return [
        vaka.Agent("talker", model=ScriptedModel(say("Hello, ✓.", reasoning="Who?"), say("That is all."))),
        vaka.Agent("guide", model=ScriptedModel(call("look", place="Hilo"), say("It is sunny.")), tools=[look]),
        vaka.Agent("deployer", model=ScriptedModel(call("deploy", place="here"), say("Done.")), tools=[deploy]),
        vaka.Agent("painter", model=ScriptedModel(call("pick_color", title="Wall"), say("Blue it is."))),
        vaka.Agent(
            "sketcher",
            model=ScriptedModel(
                say("I pick.", reasoning="Which?", **call("pick_color", title="Wall")), say("Blue it is.")
            ),
        ),
        vaka.Agent("clerk", model=ScriptedModel(say('{"city": "Hilo", "days": 3}'))),
        vaka.Agent("waiter", model=ScriptedModel(call("wait"), say("Never.")), tools=[wait]),
    ]


async def run_guide(name: str, url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run the ``py`` blocks of a guide in a thread, as one program; return what they print."""
    text = (GUIDES / f"{name}.md").read_text(encoding="utf-8")
    program = "\n".join(re.findall(r"^```py\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    monkeypatch.setitem(os.environ, "VAKA_URL", url)
    monkeypatch.setitem(os.environ, "VAKA_API_KEY", "alice")
    printed, names = io.StringIO(), dict[str, Any]()
    with contextlib.redirect_stdout(printed):
        await asyncio.to_thread(exec, compile(program, f"{name}.md", "exec"), names)
    names["client"].close()
    return printed.getvalue()
