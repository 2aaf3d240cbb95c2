"""``vaka tools``: list tools, and make one call under the permission rules."""

from typing import TYPE_CHECKING, Any

import click
import msgspec

from vaka.agents.react import Agent
from vaka.cli.build_agent import load_agent, load_tools
from vaka.cli.kit import options
from vaka.cli.kit.bootstrap import load_flag_settings, print_notes, settings_from_flags
from vaka.cli.kit.errors import APPROVAL, OK, TOOL, USAGE, Quit, UsageError
from vaka.cli.kit.event_loop import run_loop
from vaka.cli.kit.render import print_json, print_table, shorten, typed_command
from vaka.cli.turn.report import Report
from vaka.cli.turn.run_turn import RunTarget, run_turn
from vaka.cli.turn.session_record import continue_session, find_record
from vaka.config.documents import suggest
from vaka.config.settings import Settings
from vaka.core.types import progress
from vaka.core.types.errors import InvalidInput
from vaka.core.types.event import Event
from vaka.core.types.message import ToolResult
from vaka.core.types.tool import ToolSpec
from vaka.models.given_calls import GivenCall, GivenCalls
from vaka.runtime.agent_builder import AgentBuilder
from vaka.runtime.open_store import open_store
from vaka.runtime.options import Options
from vaka.tools.schema.openai_strict import strict_schema

if TYPE_CHECKING:
    from vaka.runtime.agent_services import ServiceHost

_EXIT_CODES = {"denied": APPROVAL, "expired": APPROVAL, "unknown_tool": USAGE, "invalid_arguments": USAGE}
_NO_TOOLS = "no tools; give --tools FILE.py, or --agent FILE.py"


@click.group()
def tools() -> None:
    """List tools, or make one governed call."""


@tools.command(
    "list",
    epilog=options.format_examples(
        "vaka tools list --tools review.py", "vaka tools list --tools review.py --json --strict"
    ),
)
@options.agent_options
@options.world_options
@click.option("--strict", is_flag=True, help="With --json: schemas in OpenAI's strict dialect.")
@options.json_option
@options.store_options
def list_(strict: bool, as_json: bool, **flags: Any) -> None:
    """List the tools of files and of an agent."""
    specs = tool_specs_of(_load_agent(flags, settings_from_flags(flags)))
    if as_json:
        print_json({"tools": [_spec_fields(spec, strict=strict) for spec in specs]})
        return
    rows = [(spec.name, spec.effect, "strict" if spec.strict else "", shorten(spec.description)) for spec in specs]
    print_table(("NAME", "EFFECT", "STRICT", "WHAT IT DOES"), rows)


@tools.command(
    epilog=options.format_examples(
        'vaka tools call add \'{"a": 1, "b": 2}\' --tools sums.py', 'vaka tools call mcp__db__query \'{"sql": "…"}\''
    )
)
@click.argument("name")
@click.argument("arguments", metavar="JSON", default="{}")
@options.agent_options
@click.option("--session", default="", metavar="ID", help="Make the call in this session.")
@options.world_options
@options.server_options
@options.policy_options
@options.store_options
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
def call(name: str, arguments: str, **flags: Any) -> None:
    """Call one tool as an agent would: parsed, checked, judged by the rules, logged in a session. Prints JSON.

    Exit codes: 8 when the tool failed, 5 when the call was refused or waits for a person, 2 when the tool or its
    arguments are not valid.
    """
    settings, store = load_flag_settings(flags), flags["store"] or ""
    record = find_record(settings, flags["session"]) if flags["session"] else None
    if record is not None and record.unfinished:  # its agent must answer it, not the model that makes this call
        command = typed_command("run", "--session", record.id, "--resume", store=store)
        raise InvalidInput(
            f"session {record.id!r} has an unfinished turn or a queued input; finish it first: {command}"
        )
    if record is not None:  # the call is made in its folder, but with the flags of this command alone
        record = msgspec.structs.replace(record, run=None)
    continued = continue_session(record, flags, settings)
    flags, settings = continued.flags, continued.settings
    print_notes(settings.notes)
    agent = _load_agent(flags, settings)
    names = [spec.name for spec in tool_specs_of(agent)]
    settings.wants_servers = name.startswith("mcp__")
    if name not in names and not settings.wants_servers:  # a server lists its tools when it runs
        raise UsageError(f"there is no tool {name!r}; {suggest(name, names)}" if names else _NO_TOOLS)
    agent.model = GivenCalls([GivenCall(name=name, arguments=_check_json_object(arguments))])
    report = _CallReport(quiet=flags["quiet"])
    report.store = store
    for note in continued.notes:
        report.print_note(note)
    target = RunTarget(session=flags["session"], prompt="vaka tools call", ask=continued.ask)
    code = run_loop(run_turn(target, settings, agent, report))
    print_json(report.result_fields(name))
    raise Quit(report.exit_code(code))


class _CallReport(Report):
    """Records the result of the call instead of printing the turn."""

    def __init__(self, *, quiet: bool) -> None:
        super().__init__("none", quiet=quiet)
        self.tool_result: ToolResult | None = None

    async def write_event(self, event: Event) -> None:
        await super().write_event(event)
        if isinstance(event.data, progress.ToolCompleted | progress.ToolFailed):
            self.tool_result = event.data.result

    def result_fields(self, name: str) -> dict[str, Any]:
        result, turn = self.tool_result, self.final_result
        facts = {"tool": name, "session_id": turn.session_id if turn else None}
        if result is None:
            waits = {"decisions": turn.decisions, "error": turn.error} if turn else {}
            return {**facts, "status": turn.status if turn else "failed", "result": None, **waits}
        refused = result.reason in ("denied", "expired")
        status = "denied" if refused else "failed" if result.failed else "completed"
        value = result.text if result.value is None else result.value
        text = {} if _is_same_value(result.text, value) else {"text": result.text}
        return {
            **facts,
            "status": status,
            "call": result.call,
            "result": value,
            **text,
            "reason": result.reason or None,
        }

    def exit_code(self, turn: int) -> int:
        """Return the exit code of the call, or of the turn if there is no result."""
        if self.tool_result is None or (turn and self.tool_result.reason in ("interrupted", "cancelled")):
            return turn
        return _EXIT_CODES.get(self.tool_result.reason, TOOL) if self.tool_result.failed else OK


def _is_same_value(text: str, value: Any) -> bool:
    """Return whether a text is only the JSON of a value, so that it need not be printed as well."""
    if text == value:
        return True
    try:
        return bool(msgspec.json.decode(text) == value)
    except (msgspec.MsgspecError, RecursionError):
        return False


def _load_agent(flags: dict[str, Any], settings: Settings) -> Agent:
    untrusted = bool(flags["untrusted"])
    tools = load_tools(flags["tools"], settings, untrusted=untrusted)
    return load_agent(flags["agent"], tools, settings, untrusted=untrusted)


def tool_specs_of(agent: Agent) -> list[ToolSpec]:
    """Return what models see of the tools of an agent."""

    def make_service_host() -> "ServiceHost":  # for the specs of scripts; none is run
        from vaka.runtime.agent_services import ServiceHost

        return ServiceHost(Options(), open_store("memory:"))

    recipe = AgentBuilder(GivenCalls(), make_service_host).build_recipe(agent)
    return [tool.spec for tool in recipe.tools.values()]


def _check_json_object(text: str) -> str:
    """Return the arguments unchanged. Raises ``UsageError`` unless they are a JSON object."""
    try:
        msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise UsageError(f"the arguments are not a JSON object: {error}") from error
    return text


def _spec_fields(spec: ToolSpec, *, strict: bool) -> dict[str, Any]:
    fields = msgspec.structs.asdict(spec)
    return fields | ({"parameters": strict_schema(spec.parameters).schema} if strict else {})
