"""OpenAI's Agents SDK against a server, with both of its models: text, tools of both sides, approvals, sessions."""

from typing import Any

import agents
import openai
import pytest

from tests.blackbox.blackbox_agents import make_agents
from tests.server.conftest import Served, serve_agents
from vaka.config.options import Permissions
from vaka.core.ports.store import SessionQuery

KINDS = {"chat": agents.OpenAIChatCompletionsModel, "responses": agents.OpenAIResponsesModel}


@agents.function_tool
def pick_color(title: str) -> str:
    """Pick a colour."""
    return f"blue for {title}"


def connect(served: Served) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key="alice", max_retries=0)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_runner_talks_and_runs_its_own_tools(kind: str) -> None:
    settings = agents.RunConfig(tracing_disabled=True)
    async with serve_agents(make_agents()) as served, connect(served) as client:

        def make(name: str, **options: Any) -> agents.Agent[Any]:
            return agents.Agent(name="local", model=KINDS[kind](model=name, openai_client=client), **options)

        talker = make("talker")
        first = await agents.Runner.run(talker, "Hi", run_config=settings)
        assert first.final_output == "Hello, ✓."
        again: list[Any] = [*first.to_input_list(), {"role": "user", "content": "And?"}]
        assert (await agents.Runner.run(talker, again, run_config=settings)).final_output == "That is all."
        assert (await agents.Runner.run(make("guide"), "Weather?", run_config=settings)).final_output == "It is sunny."

        painter = make("painter", tools=[pick_color], instructions="Paint.")
        streamed = agents.Runner.run_streamed(painter, "The wall", run_config=settings)
        kinds = [event.type async for event in streamed.stream_events()]
        assert "raw_response_event" in kinds
        assert streamed.final_output == "Blue it is."
        results = [item.output for item in streamed.new_items if item.type == "tool_call_output_item"]
        assert results == ["blue for Wall"]
        page = await served.service.runtime.store.sessions.list(SessionQuery())
        assert sorted(info.agent for info in page.sessions) == ["guide", "painter", "talker"]


async def test_a_runner_decides_the_approvals_of_the_agent() -> None:
    asked: list[str] = []

    def decide(request: agents.MCPToolApprovalRequest) -> agents.MCPToolApprovalFunctionResult:
        asked.append(request.data.name)
        return {"approve": True}

    own = agents.HostedMCPTool(tool_config={"type": "mcp", "server_label": "vaka"}, on_approval_request=decide)
    async with (
        serve_agents(make_agents(), permissions=Permissions(confirm=["deploy"])) as served,
        connect(served) as client,
    ):
        model = agents.OpenAIResponsesModel(model="deployer", openai_client=client)
        deployer = agents.Agent(name="local", model=model, tools=[own])
        done = await agents.Runner.run(deployer, "Deploy", run_config=agents.RunConfig(tracing_disabled=True))
        assert done.final_output == "Done."
        assert asked == ["deploy"]
