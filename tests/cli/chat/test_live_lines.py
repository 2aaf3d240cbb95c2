"""What a chat shows of child agents, reasoning, results and the context window."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.cli.chat.chat_in_process import chat_in_process
from vaka import Agent, Runtime, tool
from vaka.models.scripted import Scripted

CTRL_O, CTRL_T = "\x0f", "\x14"


async def test_child_agents_reasoning_todos_results_and_context_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    gate = asyncio.Event()

    @tool(effect="read")
    async def search(word: str) -> str:
        """Search for a word."""
        await gate.wait()
        return "\n".join(f"{word} {number}" for number in range(30))

    todos = [
        {"content": "Look around", "status": "completed", "activeForm": "Looking around"},
        {"content": "Build it", "status": "in_progress", "activeForm": "Building it"},
    ]
    lines: list[dict[str, Any]] = [
        {"tool_calls": [{"name": "TodoWrite", "arguments": {"todos": todos}}]},
        {"tool_calls": [{"name": "scout", "arguments": {"prompt": "Find boats."}}]},
        {"reasoning": "Canoes are boats, of course.", "text": "Found.", "usage": {"input": 900, "output": 100}},
        {"agent": "scout", "tool_calls": [{"name": "search", "arguments": {"word": "canoe"}}]},
        {"agent": "scout", "text": "There is a canoe."},
    ]
    model = Scripted(lines)
    scout: Agent[Any] = Agent("scout", model=model, tools=[search])
    agent: Agent[Any] = Agent("captain", model=model, tools=[scout, "TodoWrite"])
    async with Runtime(agent=agent, allow=["TodoWrite"]) as runtime, chat_in_process(runtime, rows=80) as chat:
        await chat.say("Find boats.")
        await chat.expect("  ⇒ scout: search ")
        assert "→ Building it" in chat.visible
        gate.set()
        await chat.expect("Found.")
        await chat.expect("Esc interrupts", gone=True)
        assert "reasoned for 0s (Ctrl-T shows it)" in chat.text
        assert "of course" not in chat.text
        assert "→ Building it" in chat.visible
        chat.send(CTRL_T)
        await chat.expect("Canoes are boats, of course.")
        assert "canoe 29" not in chat.text
        chat.send(CTRL_O)
        await chat.expect("of course.\n\n● scout Find boats.")
        chat.send(CTRL_O)
        await chat.expect("canoe 29")
        await chat.say("/context")
        await chat.expect("1.0k tokens in the last request")
        await chat.expect("█ tools ")
