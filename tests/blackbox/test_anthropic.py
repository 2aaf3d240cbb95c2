"""Anthropic's own client against a server: messages, streams, tools of the client, approvals and errors."""

import json
from pathlib import Path
from typing import Any

import anthropic
import pytest

import vaka
from tests.blackbox.blackbox_agents import make_agents, run_guide
from tests.blackbox.js.node import needs_clients, run_script
from tests.server.conftest import Served, serve_agents
from vaka.core.ports.store import SessionQuery
from vaka.testing import ScriptedModel, call, say

PICK: Any = {"name": "pick_color", "input_schema": {"type": "object", "properties": {"title": {"type": "string"}}}}


def connect(served: Served, token: str = "alice") -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(base_url=served.url, api_key=token, max_retries=0)


def text_of(message: Any) -> str:
    return "".join(block.text for block in message.content if block.type == "text")


async def test_the_python_client_has_conversations() -> None:
    async with (
        serve_agents(make_agents(), permissions=vaka.Permissions(confirm=["deploy"])) as served,
        connect(served) as client,
    ):
        assert "talker" in [model.id async for model in client.models.list()]
        messages: list[Any] = [{"role": "user", "content": "Hi"}]
        thinking: Any = {"type": "enabled", "budget_tokens": 1024}
        async with client.messages.stream(
            model="talker", max_tokens=2000, messages=messages, thinking=thinking
        ) as stream:
            texts = [text async for text in stream.text_stream]
            first = await stream.get_final_message()
        assert "".join(texts) == text_of(first) == "Hello, ✓."
        assert [block.type for block in first.content] == ["thinking", "text"]
        assert (first.stop_reason, first.role) == ("end_turn", "assistant")
        assert first.usage.output_tokens > 0
        messages += [{"role": "assistant", "content": first.content}, {"role": "user", "content": "And?"}]
        assert text_of(await client.messages.create(model="talker", max_tokens=99, messages=messages)) == "That is all."
        counted = await client.messages.count_tokens(model="talker", messages=messages)
        assert counted.input_tokens > 0

        messages = [{"role": "user", "content": "Weather?"}]
        assert text_of(await client.messages.create(model="guide", max_tokens=99, messages=messages)) == "It is sunny."

        async with client.messages.stream(model="painter", max_tokens=99, messages=messages, tools=[PICK]) as stream:
            asked = await stream.get_final_message()
        [use] = asked.content
        assert use.type == "tool_use"
        assert (use.name, use.input, asked.stop_reason) == ("pick_color", {"title": "Wall"}, "tool_use")
        result = {"type": "tool_result", "tool_use_id": use.id, "content": "blue"}
        messages += [{"role": "assistant", "content": asked.content}, {"role": "user", "content": [result]}]
        painted = await client.messages.create(model="painter", max_tokens=99, messages=messages, tools=[PICK])
        assert text_of(painted) == "Blue it is."

        messages = [{"role": "user", "content": "Deploy"}]
        waiting = await client.messages.create(model="deployer", max_tokens=99, messages=messages)
        assert "Reply 'approve" in text_of(waiting)
        messages += [{"role": "assistant", "content": waiting.content}, {"role": "user", "content": "approve"}]
        assert text_of(await client.messages.create(model="deployer", max_tokens=99, messages=messages)) == "Done."

        with pytest.raises(anthropic.NotFoundError, match="there is no model 'unknown'"):
            await client.messages.create(model="unknown", max_tokens=99, messages=messages)
        async with connect(served, "wrong") as stranger:
            with pytest.raises(anthropic.AuthenticationError):
                await stranger.models.list()


@pytest.mark.parametrize("stream", [False, True])
async def test_the_tool_runner_of_the_python_client_runs_tools_until_the_answer(stream: bool) -> None:
    @anthropic.beta_async_tool
    async def pick_color(title: str) -> str:
        """Pick a color."""
        return f"blue for {title}"

    agent = vaka.Agent("painter", model=ScriptedModel(call("pick_color", title="Wall"), say("Blue it is.")))
    async with serve_agents([agent]) as served, connect(served) as client:
        messages: list[Any] = [{"role": "user", "content": "Paint"}]
        fields: dict[str, Any] = {"system": "Be brief.", "stream": True} if stream else {"system": "Be brief."}
        runner = client.beta.messages.tool_runner(
            model="painter", max_tokens=99, tools=[pick_color], messages=messages, **fields
        )
        assert text_of(await runner.until_done()) == "Blue it is."
        assert len((await served.service.runtime.store.sessions.list(SessionQuery())).sessions) == 1


@needs_clients
async def test_the_javascript_client_has_conversations() -> None:
    async with serve_agents(make_agents(), permissions=vaka.Permissions(confirm=["deploy"])) as served:
        printed = await run_script(Path(__file__).parent / "anthropic.mjs", served.url, "alice")
        assert json.loads(printed) == {
            "streamed": "Hello, ✓.",
            "call": [{"name": "pick_color", "input": {"title": "Wall"}}],
            "painted": "Blue it is.",
            "deployed": "Done.",
            "ran": ["Blue it is.", "Blue it is."],
            "error": [404, "not_found_error"],
        }


async def test_a_turn_that_fails_within_a_stream_is_raised() -> None:
    async with serve_agents(make_agents()) as served, connect(served) as client:
        messages: list[Any] = [{"role": "user", "content": "Hi"}]
        for text in ("Again", "And again"):
            message = await client.messages.create(model="talker:one", max_tokens=99, messages=messages)
            messages += [{"role": "assistant", "content": message.content}, {"role": "user", "content": text}]
        with pytest.raises(anthropic.APIStatusError):
            async with client.messages.stream(model="talker:one", max_tokens=99, messages=messages) as stream:
                await stream.get_final_message()  # the script has no further line


async def test_the_examples_of_the_guide_run(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serve_agents(make_agents()) as served:
        printed = await run_guide("anthropic", served.url, monkeypatch)
        assert printed.splitlines() == ["Hello, ✓.", "Blue it is."]
