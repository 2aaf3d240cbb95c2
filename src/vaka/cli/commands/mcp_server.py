"""``vaka mcp-server``: serve agents to MCP clients on stdin and stdout."""

import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from vaka import __version__
from vaka.agents.coding_prompt import is_coding_agent
from vaka.agents.react import Agent
from vaka.cli.build_agent import apply_model_flags, load_agent_of_flags
from vaka.cli.commands.tools import tool_specs_of
from vaka.cli.kit import options
from vaka.cli.kit.bootstrap import config_context, load_flag_settings, print_notes, runtime_from_settings
from vaka.cli.kit.errors import UsageError
from vaka.cli.kit.event_loop import run_loop
from vaka.cli.kit.stdout import reserve_stdout
from vaka.cli.turn.approval_view import describe_decision, render_approval
from vaka.cli.turn.input import StdinReader
from vaka.cli.turn.report import decision_hint, write_line_unblocked
from vaka.cli.turn.session_record import ContinuedSession, describe_run
from vaka.config.documents import suggest
from vaka.config.settings import Settings, absolute_store_url
from vaka.core.ports.store import PendingDecision
from vaka.core.types.control import ApprovalRequested
from vaka.mcp.elicitation import DecisionForms
from vaka.mcp.server import ServedTool, ToolServer, serve_lines
from vaka.mcp.transcripts import TranscriptResources
from vaka.runtime.runtime import Runtime
from vaka.runtime.served_agents import ServedAgent, ServedToolCall, ServedTurns

_INSTRUCTIONS = (
    "Each tool ask_NAME gives a prompt to an agent and returns its answer and a session_id; give the session_id to the "
    "next call to continue that conversation. Transcripts are the resources session://ID/transcript."
)

_agents_option = click.option(
    "--agent",
    "agents",
    multiple=True,
    metavar="NAME|FILE.py[:OBJECT]|FILE.luau|FILE.yaml",
    help="An agent to serve: one of the project or of yours (`vaka agents list`), a Python file that makes a "
    "vaka.Agent, a Luau script that is one, or a file that defines one; may be repeated.",
)


@click.command(
    "mcp-server",
    epilog=options.format_examples(
        "vaka mcp-server --model anthropic/claude-sonnet-5-5",
        "vaka mcp-server --agent review.py --agent docs.py:writer",
        "vaka mcp-server --cwd ~/project --permission-mode plan",
        "vaka mcp-server --expose Read --expose Grep",
    ),
)
@_agents_option
@options.tool_options
@click.option(
    "--expose",
    multiple=True,
    metavar="NAME",
    help="A tool of the first agent to offer beside the agents, under the same permission rules; may be repeated.",
)
@options.served_agent_options
def mcp_server(agents: tuple[str, ...], expose: tuple[str, ...], **flags: Any) -> None:
    """Serve agents to MCP clients: stdin and stdout carry the protocol, stderr the rest.

    Each agent is a tool ask_NAME. When a person must decide, the client is asked to show a form, if it can; with
    --ask suspend the result says how to decide instead. The end of stdin ends the process.
    """
    if sys.stdin is None:
        raise UsageError("vaka mcp-server reads messages from stdin, which is closed")
    if sys.stdin.isatty():
        print_notes(["an MCP client starts this command and writes to its stdin; to try it, enter it in one"])
    reserve_stdout()
    logging.basicConfig(level=logging.INFO if flags["verbose"] else logging.WARNING, stream=sys.stderr)
    settings = load_flag_settings(flags)
    print_notes(settings.notes)
    flags |= {"tool_choice": None, "output_schema": None}
    loaded = {name: _load(name, flags, settings) for name in dict.fromkeys(agents or (None,))}
    run_loop(_serve(loaded, expose, flags, settings))


def _load(name: str | None, flags: Mapping[str, Any], settings: Settings) -> Agent:
    agent = load_agent_of_flags({**flags, "agent": name}, settings, keep_model=True)
    apply_model_flags(agent, flags["option"], None, None)
    return agent


async def _serve(
    agents: Mapping[str | None, Agent], expose: Sequence[str], flags: Mapping[str, Any], settings: Settings
) -> None:
    governing = next((agent for agent in agents.values() if is_coding_agent(agent.instructions)), None)
    first = next(iter(agents.values()))
    ask, hint = settings["ask"] or "suspend", _hint_for(settings, flags["store"])
    async with runtime_from_settings(settings, governing or first, quiet=True, ask=ask) as runtime:
        turns = ServedTurns(runtime, hint)
        tools: list[ServedTool] = []
        for name, agent in agents.items():
            run = ContinuedSession(record=None, flags={**flags, "agent": name}, settings=settings)
            tools.append(ServedAgent(turns, agent, describe_run(run, agent)))
        tools += _exposed_tools(turns, first, expose)
        elicitation = DecisionForms(describe=_describe_approval, hint=hint, enabled=not settings["ask"])
        served = ToolServer(tools, runtime, _transcripts_of(runtime), elicitation)
        server = served.build("vaka", __version__, _INSTRUCTIONS)
        try:
            await serve_lines(server, StdinReader().read_bounded, write_line_unblocked)
        finally:
            await turns.close()


def _hint_for(settings: Settings, store: str | None) -> Callable[[PendingDecision], str]:
    """Return the function that describes an open decision in one line, with the command that takes it."""
    place = absolute_store_url(Path.cwd(), store) if store else ""

    def describe(row: PendingDecision) -> str:
        decision = describe_decision(row)
        if settings["store"] == "memory:":  # no other process can see it
            return f"{decision['summary']} (only this client can decide it, by a form; or allow it with --allow)"
        return decision_hint(decision, place)

    return describe


def _exposed_tools(turns: ServedTurns, agent: Agent, names: Sequence[str]) -> list[ServedToolCall]:
    specs = {spec.name: spec for spec in tool_specs_of(agent)} if names else {}
    for name in names:
        if name not in specs:
            raise UsageError(f"--expose {name}: agent {agent.name!r} has no such tool; {suggest(name, list(specs))}")
    return [ServedToolCall(turns, agent, specs[name]) for name in dict.fromkeys(names)]


def _transcripts_of(runtime: Runtime) -> TranscriptResources:
    return TranscriptResources(runtime.store, str(config_context().cwd))


def _describe_approval(body: ApprovalRequested) -> str:
    return click.unstyle(render_approval(body))
