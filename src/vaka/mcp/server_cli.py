"""``vaka mcp-server``: serve agents to MCP clients on stdin and stdout."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from vaka.cli.kit.arguments import hint_of_names
from vaka.cli.kit.errors import UsageError
from vaka.cli.kit.event_loop import run_loop
from vaka.cli.kit.stdio_agents import StdioAgents, require_stdin
from vaka.mcp.elicitation import DecisionForms
from vaka.mcp.served_agents import INSTRUCTIONS, ServedAgent, ServedToolCall, ServedTurns
from vaka.mcp.server import ServedTool, ToolServer, serve_lines
from vaka.mcp.serving import ServableAgent
from vaka.mcp.transcripts import TranscriptResources


def serve_stdio(agents: Sequence[str], expose: Sequence[str], flags: Mapping[str, Any]) -> None:
    """Serve the agents of a command until stdin ends. Raises ``UsageError``."""
    require_stdin("vaka mcp-server", "an MCP client")
    run_loop(_serve(StdioAgents(agents, flags), expose))


async def _serve(served: StdioAgents, expose: Sequence[str]) -> None:
    async with served.open_runtime() as runtime:
        turns = ServedTurns(runtime, served.describe_decision, served.describe_failure)
        tools: list[ServedTool] = []
        for name, agent in served.agents.items():
            about = agent.description
            servable = ServableAgent(name=agent.name, description=about, open=partial(runtime.open, agent))
            tools.append(ServedAgent(turns, servable, served.run_settings_of(name)))
        specs = served.list_tools() if expose else {}
        caller = served.make_caller()
        servable = ServableAgent(name=caller.name, description="", open=partial(runtime.open, caller))
        for name in dict.fromkeys(expose):
            if name not in specs:
                hint = hint_of_names(name, specs)
                raise UsageError(f"--expose {name}: agent {caller.name!r} has no such tool{hint}")
            tools.append(ServedToolCall(turns, servable, specs[name]))
        forms = DecisionForms(describe=served.describe_approval, hint=served.describe_decision, enabled=not served.asks)
        transcripts = TranscriptResources(runtime.store, served.folder)
        server = ToolServer(tools, runtime, transcripts, forms).build("vaka", served.version, INSTRUCTIONS)
        try:
            await serve_lines(server, served.read_line, served.write_line)
        finally:
            await turns.close()
