"""What a command shares that serves agents to a program on stdin and stdout."""

import copy
import logging
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from vaka import __version__
from vaka.agents.coding_prompt import is_coding_agent
from vaka.agents.react import Agent
from vaka.cli.build_agent import apply_model_flags, load_agent_of_flags
from vaka.cli.commands.tools import tool_specs_of
from vaka.cli.kit.bootstrap import config_context, load_flag_settings, print_notes, runtime_from_settings
from vaka.cli.kit.errors import UsageError
from vaka.cli.kit.stdout import reserve_stdout
from vaka.cli.turn.approval_view import describe_decision, render_approval
from vaka.cli.turn.input import StdinReader
from vaka.cli.turn.report import decision_hint, write_line_unblocked
from vaka.cli.turn.session_record import ContinuedSession, describe_run
from vaka.config.settings import absolute_store_url
from vaka.core.ports.store import PendingDecision
from vaka.core.types.control import ApprovalRequested, RunSettings
from vaka.core.types.tool import ToolSpec
from vaka.models.given_calls import GivenCalls
from vaka.runtime.runtime import Runtime
from vaka.views.failures import make_failure


class StdioAgents:
    """The agents that the flags of a command name, and the runtime that they run in."""

    version = __version__

    def __init__(self, names: Sequence[str], flags: Mapping[str, Any]) -> None:
        """Reserve stdout for the protocol and read the agents. Prints notes. Raises ``UsageError`` without a stdin."""
        reserve_stdout()
        logging.basicConfig(level=logging.INFO if flags["verbose"] else logging.WARNING, stream=sys.stderr)
        self._settings = load_flag_settings(dict(flags))
        print_notes(self._settings.notes)
        self._flags: dict[str, Any] = {**flags, "tool_choice": None, "output_schema": None}
        self.agents: dict[str | None, Agent] = {name: self._load(name) for name in dict.fromkeys(names or (None,))}
        self.folder = str(config_context().cwd)
        self.read_line: Callable[[int], Awaitable[tuple[bytes, int] | None]] = StdinReader().read_bounded
        self.write_line = write_line_unblocked

    def _load(self, name: str | None) -> Agent:
        agent = load_agent_of_flags({**self._flags, "agent": name}, self._settings, keep_model=True)
        apply_model_flags(agent, self._flags["option"], None, None)
        return agent

    @property
    def first(self) -> Agent:
        return next(iter(self.agents.values()))

    @property
    def asks(self) -> bool:
        """Whether a flag or setting says how a person is asked."""
        return bool(self._settings["ask"])

    def open_runtime(self) -> Runtime:
        """Return the runtime of the agents, in which turns suspend themselves unless the settings say otherwise."""
        agents = self.agents.values()
        governing = next((agent for agent in agents if is_coding_agent(agent.instructions)), self.first)
        return runtime_from_settings(self._settings, governing, quiet=True, ask=self._settings["ask"] or "suspend")

    def run_settings_of(self, name: str | None) -> RunSettings:
        """Return how the sessions of an agent are run, for their logs."""
        flags = {**self._flags, "agent": name}
        return describe_run(ContinuedSession(record=None, flags=flags, settings=self._settings), self.agents[name])

    def list_tools(self) -> dict[str, ToolSpec]:
        """Return what models see of the tools of the first agent, by name."""
        return {spec.name: spec for spec in tool_specs_of(self.first)}

    def make_caller(self) -> Agent:
        """Return the first agent with the calls of the option ``calls`` in place of its model's."""
        agent = copy.copy(self.first)
        agent.model, agent.output = GivenCalls(), None
        agent.tool_choice = "auto"
        return agent

    def describe_decision(self, row: PendingDecision) -> str:
        """Return an open decision in one line, with the command that takes it."""
        decision, store = describe_decision(row), self._flags["store"]
        if self._settings["store"] == "memory:":  # no other process can see it
            return f"{decision['summary']} (only this client can decide it, by a form; or allow it with --allow)"
        return decision_hint(decision, absolute_store_url(Path.cwd(), store) if store else "")

    def describe_approval(self, body: ApprovalRequested) -> str:
        """Return the whole call that a person approves."""
        return click.unstyle(render_approval(body))

    def describe_failure(self, code: str, message: str) -> str:
        """Return the message for a turn that has failed."""
        return make_failure(code, message).message


def require_stdin(command: str, client: str) -> None:
    """Note that a command is for ``client`` if stdin is a terminal. Raises ``UsageError`` if it is closed."""
    if sys.stdin is None:
        raise UsageError(f"{command} reads messages from stdin, which is closed")
    if sys.stdin.isatty():
        print_notes([f"{client} starts this command and writes to its stdin; to try it, enter it in one"])
