"""Imports that only some commands and errors need, made on first use to keep start-up short."""

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
    from pathlib import Path

    from prompt_toolkit.output import Output

    from vaka.agents.react import Agent, AgentOrigin, ToolLike
    from vaka.cli.chat.conversation import Chat, ChatSettings
    from vaka.cli.chat.status_line import StatusCommand
    from vaka.cli.display.rich_markdown import TerminalMarkdown
    from vaka.cli.display.rich_renderer import RichRenderer
    from vaka.cli.display.turn_display import TurnDisplay
    from vaka.cli.turn.approval_prompt import DecisionPrompter
    from vaka.cli.turn.stream_input import StreamedRun
    from vaka.cli.turn.terminal_prompt import TerminalPrompt
    from vaka.config.claude_settings import SettingsFile
    from vaka.config.definitions.definition_set import DefinitionSet
    from vaka.config.definitions.references import DefinitionKind
    from vaka.config.project_content import ProjectSource
    from vaka.config.settings import ConfigContext, Settings
    from vaka.core.ports.store import PendingDecision, SessionInfo
    from vaka.core.types.message import Part
    from vaka.hooks.definition import ParsedHooks
    from vaka.hooks.transcript import Transcripts
    from vaka.luau.tool import LuauTool
    from vaka.mcp.definition import McpServer, ParsedServers
    from vaka.mcp.logins import LoginStore
    from vaka.models.options import ModelOptions
    from vaka.runtime.runtime import Runtime
    from vaka.runtime.scripts import LuauAgent
    from vaka.runtime.structured_output import OutputSchema


def is_definition(path: "Path") -> bool:
    from vaka.cli.definition_checks import is_definition

    return is_definition(path)


def read_model_options(options: "Mapping[str, Any]") -> "ModelOptions":
    """Return the options of a model. Raises ``BadRequest`` for a wrong one."""
    from vaka.models.options import read_options

    return read_options(options)


def check_definitions(path: "Path", *, strict: bool) -> "DefinitionSet":
    from vaka.cli.definition_checks import check_definitions

    return check_definitions(path, strict=strict)


def definition_schema(kind: "DefinitionKind | None") -> "dict[str, Any]":
    from vaka.config.definitions.json_schema import definition_schema

    return definition_schema(kind)


def log_in_at_server() -> "Callable[[McpServer, LoginStore, Callable[[str], None], float], Awaitable[str]]":
    """Return the function that lets a user log in. Raises ``ConfigError`` without the library for MCP servers."""
    from vaka.runtime.lazy import explain_missing_extra

    with explain_missing_extra():
        from vaka.mcp.login import log_in

    return log_in


def load_mcp_library() -> None:
    """Import the library for MCP servers; where it is missing, each connection says so."""
    with suppress(ImportError):
        from vaka.mcp import session as session


def servers_in_force(
    context: "ConfigContext", files: "Sequence[SettingsFile]", *, trusted: bool, **flags: Any
) -> "ParsedServers":
    from vaka.runtime.mcp_sources import ServerFlags
    from vaka.runtime.mcp_sources import servers_in_force as find

    return find(context, files, trusted=trusted, flags=ServerFlags(**flags))


def explain_missing_servers(servers: "Sequence[McpServer]") -> list[str]:
    from vaka.runtime.mcp_sources import explain_missing_servers as explain

    return explain(servers)


def remove_unused_records(*, dry_run: bool) -> int:
    """Remove the records of folders in which no command ran for long; return their number."""
    from vaka.runtime.command_records import records_folder, remove_unused_records

    return remove_unused_records(records_folder(), dry_run=dry_run)


def transcripts() -> "type[Transcripts]":
    from vaka.hooks.transcript import Transcripts

    return Transcripts


def hooks_in_force() -> "Callable[..., ParsedHooks]":
    from vaka.runtime.hook_sources import hooks_in_force

    return hooks_in_force


def follow_settings(runtime: "Runtime", settings: "Settings") -> None:
    from vaka.cli.settings_source import follow_settings

    follow_settings(runtime, settings)


def status_command(files: "Sequence[SettingsFile]") -> "StatusCommand | None":
    """Return the command of the setting ``statusLine``, if there is one."""
    from vaka.cli.chat.status_line import StatusCommand
    from vaka.config.effective_settings import effective_settings

    setting = effective_settings(files).get("statusLine")
    return StatusCommand.of_setting(setting.value) if setting is not None else None


def find_project_agent(settings: "Settings", name: str, tools: "Sequence[ToolLike]") -> "Agent":
    """Return the agent of the project or of the user with a name. Raises ``ConfigError`` with names that are near."""
    from vaka.cli.project_agents import find_project_agent as find

    return find(settings, name, tools)


def project_agent_names(settings: "Settings") -> list[str]:
    from vaka.cli.project_agents import project_agent_names as names

    return names(settings)


def describe_defined_agents(notes: list[str]) -> list[dict[str, Any]]:
    """Return the agents of definitions as ``vaka agents list`` shows them; add what is wrong to ``notes``."""
    from vaka.cli.project_agents import describe_defined_agents as describe

    return describe(notes)


def project_origin(settings: "Settings", tools: "Sequence[ToolLike]") -> "AgentOrigin":
    """Return the origin of an agent of a file, by which its scripts find agents of definitions."""
    from vaka.cli.project_agents import ProjectOrigin

    return ProjectOrigin(settings, tools)


def convert_definitions(source: "Path", output: "Path | None") -> None:
    from vaka.cli.convert_definitions import convert_definitions as convert

    convert(source, output)


def project_source() -> "type[ProjectSource]":
    from vaka.config.project_content import ProjectSource

    return ProjectSource


def has_plugin(folder: str) -> bool:
    """Return whether a folder is a plugin or contains plugins."""
    from pathlib import Path

    from vaka.config.plugins import find_plugins

    return bool(find_plugins([Path(folder)]))


def project_commands(context: "ConfigContext", plugin_dirs: "Sequence[Path]" = ()) -> dict[str, str]:
    """Return the commands and skills that a user can call by ``/name``, with their descriptions."""
    from vaka.config.components import components_in_force

    found = components_in_force(context, plugin_dirs)
    skills = [skill for skill in found.skills if skill.user_invocable]
    return {item.name: item.description for item in reversed((*found.commands, *skills))}


def turn_display() -> "type[TurnDisplay]":
    from vaka.cli.display.turn_display import TurnDisplay

    return TurnDisplay


def keys_in_files(environ: "Mapping[str, str]") -> list[str]:
    from vaka.runtime.stored_keys import stored_keys_of

    return stored_keys_of(environ).keys_in_files()


def choose_first_model() -> str:
    from vaka.cli.commands.login import choose_first_model as choose

    return choose()


def ask_missing_key(model: str) -> None:
    from vaka.cli.commands.login import ask_missing_key as ask

    ask(model)


def cancelled_error() -> type[BaseException]:
    from asyncio import CancelledError

    return CancelledError


def redact_message(text: str) -> str:
    """Return a message for the terminal: without secrets and what could control it, and encodable as UTF-8."""
    from vaka.cli.render import as_printable
    from vaka.core.session.redaction import Secrets
    from vaka.core.types.message import replace_surrogates
    from vaka.matching.secrets import SECRET_FORMATS

    message: str = Secrets(finders=[SECRET_FORMATS]).redact_data(replace_surrogates(text))
    return as_printable(message)


def add_completers(command: click.Command, path: tuple[str, ...]) -> None:
    from vaka.cli.completion import add_completers as add

    add(command, path)


def pick_session() -> "Callable[..., Awaitable[SessionInfo | None]]":
    from vaka.runtime.lazy import explain_missing_extra

    with explain_missing_extra():
        from vaka.cli.chat.session_picker import pick_session as pick

    return pick


def chat() -> "type[Chat]":
    from vaka.cli.chat.conversation import Chat

    return Chat


def chat_settings() -> "type[ChatSettings]":
    from vaka.runtime.lazy import explain_missing_extra

    with explain_missing_extra():
        from vaka.cli.chat.conversation import ChatSettings

    return ChatSettings


def theme_of_environment() -> "Callable[[Mapping[str, str]], str]":
    from vaka.runtime.lazy import explain_missing_extra

    with explain_missing_extra():
        from vaka.cli.chat.terminal_reports import theme_of_environment as theme

    return theme


def chat_output() -> "Output":
    from vaka.cli.chat.terminal import open_output

    return open_output()


def terminal_markdown() -> "type[TerminalMarkdown]":
    from vaka.cli.display.rich_markdown import TerminalMarkdown

    return TerminalMarkdown


def decision_prompter() -> "type[DecisionPrompter]":
    from vaka.cli.turn.approval_prompt import DecisionPrompter

    return DecisionPrompter


def terminal_prompt() -> "type[TerminalPrompt]":
    from vaka.cli.turn.terminal_prompt import TerminalPrompt

    return TerminalPrompt


def streamed_run() -> "type[StreamedRun]":
    from vaka.cli.turn.stream_input import StreamedRun

    return StreamedRun


def describe_decision(pending: "PendingDecision") -> dict[str, Any]:
    from vaka.cli.turn.approval_view import describe_decision as describe

    return describe(pending)


def read_attachments(sources: "Sequence[str]") -> "tuple[Part, ...]":
    from vaka.cli.turn.attachments import read_attachments as read

    return read(sources)


def rich_renderer() -> "type[RichRenderer] | None":
    """Return the renderer with colours, ``None`` where its library is not installed."""
    try:
        from vaka.cli.display.rich_renderer import RichRenderer
    except ImportError:
        return None
    return RichRenderer


def luau_tool() -> "type[LuauTool]":
    from vaka.luau.tool import LuauTool

    return LuauTool


def luau_agent() -> "type[LuauAgent]":
    from vaka.runtime.scripts import LuauAgent

    return LuauAgent


def run_on_server() -> "Callable[..., int]":
    from vaka.cli.remote.run_turn import run_on_server as run

    return run


def converse_on_server() -> "Callable[..., Coroutine[Any, Any, int]]":
    from vaka.cli.remote.chat import converse_on_server as converse

    return converse


def output_schema() -> "type[OutputSchema]":
    from vaka.runtime.structured_output import OutputSchema

    return OutputSchema
