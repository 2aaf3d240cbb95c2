"""OpenAI's own clients in Python and JavaScript against a server: Chat Completions and Responses."""

import json
from pathlib import Path
from typing import Any

import openai
import pydantic
import pytest

from tests.blackbox.blackbox_agents import make_agents, run_guide
from tests.blackbox.js.node import needs_clients, run_script, write_example
from tests.server.conftest import Served, serve_agents
from vaka.config.options import Permissions
from vaka.core.ports.store import SessionQuery

PICK: dict[str, Any] = {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]}


class Trip(pydantic.BaseModel):
    city: str
    days: int


def connect(served: Served, token: str = "alice") -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key=token, max_retries=0)


async def test_the_python_client_has_chats() -> None:
    async with (
        serve_agents(make_agents(), permissions=Permissions(confirm=["deploy"])) as served,
        connect(served) as client,
    ):
        chat = client.chat.completions
        assert "talker" in [model.id async for model in client.models.list()]
        assert (await client.models.retrieve("talker")).id == "talker"
        messages: list[Any] = [{"role": "user", "content": "Hi"}]
        async with chat.stream(model="talker", messages=messages, stream_options={"include_usage": True}) as stream:
            kinds = [event.type async for event in stream]
            final = await stream.get_final_completion()
        assert "content.delta" in kinds
        assert final.usage is not None
        assert final.choices[0].message.content == "Hello, ✓."
        messages += [final.choices[0].message, {"role": "user", "content": "And?"}]
        assert (await chat.create(model="talker", messages=messages)).choices[0].message.content == "That is all."

        messages = [{"role": "user", "content": "Weather?"}]
        assert (await chat.create(model="guide", messages=messages)).choices[0].message.content == "It is sunny."
        parsed = await chat.parse(model="clerk", messages=messages, response_format=Trip)
        assert parsed.choices[0].message.parsed == Trip(city="Hilo", days=3)

        tools: list[Any] = [{"type": "function", "function": {"name": "pick_color", "parameters": PICK}}]
        async with chat.stream(model="painter", messages=messages, tools=tools) as stream:
            [made] = (await stream.get_final_completion()).choices[0].message.tool_calls or []
        assert json.loads(made.function.arguments) == {"title": "Wall"}
        messages += [
            {"role": "assistant", "tool_calls": [made.to_dict()]},
            {"role": "tool", "tool_call_id": made.id, "content": "blue"},
        ]
        assert (await chat.create(model="painter", messages=messages, tools=tools)).choices[0].message.content == (
            "Blue it is."
        )

        messages = [{"role": "user", "content": "Deploy"}]
        asked = (await chat.create(model="deployer", messages=messages)).choices[0].message
        assert "Reply 'approve" in (asked.content or "")
        messages += [asked, {"role": "user", "content": "approve"}]
        assert (await chat.create(model="deployer", messages=messages)).choices[0].message.content == "Done."

        with pytest.raises(openai.NotFoundError, match="there is no model 'unknown'") as error:
            await chat.create(model="unknown", messages=messages)
        assert error.value.code == "model_not_found"
        async with connect(served, "wrong") as stranger:
            with pytest.raises(openai.AuthenticationError):
                await stranger.models.list()


async def test_the_python_client_has_responses() -> None:
    async with (
        serve_agents(make_agents(), permissions=Permissions(confirm=["deploy"])) as served,
        connect(served) as client,
    ):
        responses = client.responses
        first = await responses.create(model="talker", input="Hi")
        assert first.output_text == "Hello, ✓."
        async with responses.stream(model="talker", input="And?", previous_response_id=first.id) as stream:
            events = [event async for event in stream]
            second = await stream.get_final_response()
        assert second.output_text == "That is all."
        after = next(event.sequence_number for event in events if event.type == "response.in_progress")
        rest = [event async for event in await responses.retrieve(second.id, stream=True, starting_after=after)]
        assert rest[0].sequence_number > after
        assert rest[-1].type == "response.completed"
        assert (await responses.retrieve(second.id)).output_text == "That is all."
        items = [item async for item in await responses.input_items.list(second.id)]
        assert [item.type for item in items] == ["message"]
        await responses.delete(second.id)
        with pytest.raises(openai.NotFoundError):
            await responses.retrieve(second.id)

        seen = (await responses.create(model="guide", input="Weather?")).output
        assert [item.type for item in seen] == ["mcp_call", "message"]
        trip = await responses.parse(model="clerk", input="Plan", text_format=Trip)
        assert trip.output_parsed == Trip(city="Hilo", days=3)

        tools: list[Any] = [{"type": "function", "name": "pick_color", "parameters": PICK, "strict": False}]
        asked = await responses.create(model="painter", input="Paint", tools=tools)
        [made] = asked.output
        assert made.type == "function_call"
        output: Any = {"type": "function_call_output", "call_id": made.call_id, "output": "blue"}
        painted = await responses.create(model="painter", input=[output], tools=tools, previous_response_id=asked.id)
        assert painted.output_text == "Blue it is."

        waiting = await responses.create(model="deployer", input="Deploy")
        [request] = waiting.output
        assert request.type == "mcp_approval_request"
        reply: Any = {"type": "mcp_approval_response", "approval_request_id": request.id, "approve": True}
        done = await responses.create(model="deployer", input=[reply], previous_response_id=waiting.id)
        assert done.output_text == "Done."

        endless = await responses.create(model="waiter", input="Wait", background=True)
        assert endless.status in ("queued", "in_progress")
        assert (await responses.cancel(endless.id)).status == "cancelled"


@needs_clients
async def test_the_javascript_client_has_chats_and_responses(tmp_path: Path) -> None:
    async with serve_agents(make_agents(), permissions=Permissions(confirm=["deploy"])) as served:
        printed = await run_script(Path(__file__).parent / "openai.mjs", served.url, "alice")
        found = json.loads(printed)
        assert found == {
            "models": True,
            "text": ["Hello, ✓.", "That is all."],
            "painted": "Blue it is.",
            "deployed": "Done.",
            "response": "Hello, ✓.",
            "resumed": "response.completed",
            "approved": "Done.",
            "cancelled": "cancelled",
            "error": {"status": 404, "code": "model_not_found"},
        }
        env = {"VAKA_URL": served.url, "VAKA_API_KEY": "alice"}
        assert await run_script(write_example("openai", tmp_path), env=env) == "Hello, ✓.\n"


@needs_clients
async def test_the_models_of_the_ai_sdk_run_agents() -> None:
    async with serve_agents(make_agents()) as served:
        printed = await run_script(Path(__file__).parent / "aisdk_models.mjs", served.url, "alice")
        answers = ["Hello, ✓.", "Blue it is.", "blue for Wall"]
        assert json.loads(printed) == {
            "openai": answers,
            "responses": answers,
            "chat": answers,
            "compatible": answers,
            "sketches": ["Blue it is.", "Blue it is.", 2, True],
        }
        sketches = (await served.service.runtime.store.sessions.list(SessionQuery(agent="sketcher"))).sessions
        assert len(sketches) == 2


async def test_the_examples_of_the_guide_run(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serve_agents(make_agents(), permissions=Permissions(confirm=["deploy"])) as served:
        assert (await run_guide("openai", served.url, monkeypatch)).splitlines() == [
            "Hello, ✓.",
            'Deploy to {"place":"here"}? yes',
            "Done.",
            "Blue it is.",
        ]
