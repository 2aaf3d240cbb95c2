"""What a chat shows of child agents, reasoning, results and the context window."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.cli.chat.chat_in_process import chat_in_process
from vaka import Agent, Middleware, Runtime, tool
from vaka.config.options import Permissions
from vaka.core.types.context import CompactionRequest, ContextCompacted
from vaka.core.types.message import UserMessage, text_of
from vaka.middleware import ContextPolicy
from vaka.models.scripted import Scripted

CTRL_O = "\x0f"
CTRL_T = "\x14"
UP = "\x1b[A"


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
    async with (
        Runtime(agent=agent, permissions=Permissions(allow=["TodoWrite"])) as runtime,
        chat_in_process(runtime, rows=80) as chat,
    ):
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


async def test_a_queued_input_is_taken_back_and_edited() -> None:
    gate = asyncio.Event()

    @tool(effect="read")
    async def wait() -> str:
        """Wait."""
        await gate.wait()
        return "waited"

    lines: list[dict[str, Any]] = [
        {"tool_calls": [{"name": "wait", "arguments": {}}]},
        {"text": "One."},
        {"text": "Two."},
    ]
    agent: Agent[Any] = Agent("waiter", model=Scripted(lines), tools=[wait])
    async with Runtime(agent=agent) as runtime, chat_in_process(runtime, busy="queue") as chat:
        await chat.say("Wait.")
        await chat.expect("○ wait")
        await chat.say("Then sail")
        await chat.expect("queued: Then sail")
        chat.send(UP)
        await chat.expect("queued:", gone=True)
        await chat.expect("❯ Then sail")
        chat.send(" home.\r")
        await chat.expect("queued: Then sail home.")
        gate.set()
        await chat.expect("Two.")
        messages = await chat.chat.session.messages()
    assert [text_of(m.content) for m in messages if isinstance(m, UserMessage)] == ["Wait.", "Then sail home."]


async def test_older_messages_are_summarized_on_request() -> None:
    class Careful(Middleware, ContextPolicy):
        async def before_compaction(self, turn: Any, request: CompactionRequest) -> CompactionRequest:
            return msgspec.structs.replace(request, skip="Not now." if request.instructions == "never" else "")

    lines: list[dict[str, Any]] = [
        {"text": "One. " * 400},
        {"text": "Two. " * 400},
        {"agent": "summary", "text": "<summary>Sums.</summary>"},
    ]
    middleware = [Careful()]
    agent: Agent[Any] = Agent("clerk", model=Scripted(lines), middleware=middleware)
    async with Runtime(agent=agent) as runtime, chat_in_process(runtime) as chat:
        await chat.say("/compact")
        await chat.expect("there is nothing to summarize yet")
        for prompt, answer in (("First.", "One."), ("Second.", "Two.")):
            await chat.say(prompt)
            await chat.expect(answer)
            await chat.expect("Esc interrupts", gone=True)
        await chat.say("/compact never")
        await chat.expect("not compacted: Not now.")
        await chat.say("/compact Keep the sums.")
        await chat.expect("older messages summarized (")
        events = [event.data async for event in runtime.store.events.read(chat.chat.session.id)]
    [done] = [body for body in events if isinstance(body, ContextCompacted)]
    assert (done.trigger, done.instructions) == ("manual", "Keep the sums.")
