"""``vaka luau``: run a Luau script as a program, a tool or an agent, without a session."""

import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import click

from vaka.cli.build_agent import is_project_script, library_folders_of
from vaka.cli.kit import options
from vaka.cli.kit.bootstrap import current_user, model_options, script_environment, settings_from_flags
from vaka.cli.kit.errors import FAILED, Quit, UsageError, describe_error
from vaka.cli.kit.event_loop import run_loop
from vaka.cli.kit.render import as_printable, compact_json, print_json
from vaka.cli.turn.input import BadInput, StdinReader, decode_json
from vaka.config.options import NetworkAccess, Scripts
from vaka.config.settings import Settings, SettingValue
from vaka.core.ports.model import Model
from vaka.core.types.errors import Closed, ConfigError, InvalidInput, ScriptError
from vaka.core.types.ids import JSON
from vaka.core.types.message import Part, Text
from vaka.luau.program import ScriptLimits
from vaka.luau.services import make_script_services
from vaka.luau.standalone import ProfilingRunner, ScriptProfile, StandaloneScript, load_program
from vaka.net.connector import Connector
from vaka.net.rules import NetworkRules
from vaka.runtime.agent_services import HostedServices, ServiceHost
from vaka.runtime.model_registry import ModelRegistry
from vaka.runtime.open_store import open_store
from vaka.runtime.options import Environment, ModeContext, Options
from vaka.tools.function import as_tool

_EXAMPLES = options.format_examples(
    "vaka luau hello.luau",
    'vaka luau weather.luau --mode tool --input \'{"city": "Hilo"}\'',
    "printf 'hello\\nbye\\n' | vaka luau chat.luau --mode agent",
    "vaka luau sync.luau --allow-host 127.0.0.1:8080 --env API_KEY --profile",
    "vaka luau stranger.luau --untrusted --limits memory=16M,seconds=1",
)

_INTERNAL_FRAMES = ("prelude:", "main:")
"""How the frames of vaka's own Luau begin in a traceback."""
_SCRIPT_FILE: "click.Path[Path]" = click.Path(exists=True, dir_okay=False, path_type=Path)
_LIBRARY_FOLDER: "click.Path[Path]" = click.Path(exists=True, file_okay=False, path_type=Path)


class _RunLimits(NamedTuple):
    """The limits of a run; time asleep is limited only if ``seconds`` was given."""

    script: ScriptLimits
    max_sleep: float | None


class _LimitsParam(click.ParamType[_RunLimits]):
    name = "limits"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> _RunLimits:
        if isinstance(value, _RunLimits):
            return value
        try:
            limits = ScriptLimits.parse(value)
            return _RunLimits(limits, limits.seconds if "seconds" in value else None)
        except InvalidInput as error:
            self.fail(str(error), param, ctx)


@click.command(epilog=_EXAMPLES)
@click.argument("file", type=_SCRIPT_FILE)
@click.option(
    "--mode",
    type=click.Choice(["plain", "tool", "agent"]),
    default="plain",
    help="What the script is: plain (default), a tool, or an agent.",
)
@click.option(
    "--libs",
    multiple=True,
    type=_LIBRARY_FOLDER,
    metavar="DIR",
    help="A folder for require; may be repeated. Default: ../libs beside the script's folder, if there is one. What "
    "comes with vaka, such as haivivi, is always there.",
)
@click.option(
    "--async",
    "-a",
    "_",
    is_flag=True,
    help="Accepted for compatibility and ignored: a call always suspends only the coroutine that made it.",
)
@click.option(
    "--input",
    "said",
    metavar="JSON",
    help="The arguments of a tool, `...` of a plain script; for an agent the text of its one input.",
)
@click.option(
    "--limits",
    type=_LimitsParam(),
    metavar="LIMITS",
    default=_RunLimits(ScriptLimits(), None),
    show_default=False,
    help="memory=64M,seconds=5,coroutines=10K,depth=100 are the defaults; also instructions=10M; none lifts one.",
)
@click.option("--profile", is_flag=True, help="Print timings on stderr.")
@options.flag_of("model", help='The model called "default" in the script, such as scripted:FILE.')
@options.flags_of(NetworkAccess)
@click.option(
    "--trusted/--untrusted",
    default=None,
    help="Run it here, or in a separate, confined process: the default for files of other projects.",
)
@options.flags_of(Scripts)
@options.verbose_option
def luau(file: Path, **flags: Any) -> None:
    """Run a Luau script, without a session: what it keeps is gone when it ends.

    plain: what it prints goes to stdout. tool: its arguments come from --input or stdin, its result goes to stdout as
    JSON, and nothing else does; when it asks for more it gets the next JSON value of stdin. agent: each line of stdin
    is something it hears, what it says goes to stdout; without any line it hears one empty text.

    A script that fails says `script error: file:line: message` on stderr, and the exit code is 1.
    """
    profile = ScriptProfile()
    try:
        run_loop(_run_script(file, flags, settings_from_flags(flags), profile))
    except ScriptError as error:
        click.echo(f"script error: {as_printable(describe_error(error).message, lines=False)}", err=True)
        frames = [line for line in error.traceback.splitlines() if not line.startswith(_INTERNAL_FRAMES)]
        if flags["verbose"] and frames:
            click.echo(as_printable("\n".join(frames)), err=True)
        raise Quit(FAILED) from error
    finally:
        if flags["profile"]:
            click.echo("\n".join(profile.format_lines()), err=True)


async def _run_script(file: Path, flags: dict[str, Any], settings: Settings, profile: ScriptProfile) -> None:
    trusted: bool | None = flags["trusted"]
    limits: _RunLimits = flags["limits"]
    if trusted is None:
        trusted = is_project_script(file)
    began = time.perf_counter()
    program = await load_program(
        file, libs=flags["libs"] or library_folders_of(file), limits=limits.script, trusted=trusted
    )
    compiled = time.perf_counter()
    profile.compile_seconds = compiled - began
    async with AsyncExitStack() as stack:
        network = await stack.enter_async_context(_open_network(settings.values["allow_host"]))
        runner = ProfilingRunner(profile)
        stack.push_async_callback(runner.close)
        environment = Environment(mode=ModeContext(cli={"user": current_user()}))
        scripts = Scripts(env=script_environment(settings))
        given = Options(network=NetworkAccess(client=network), scripts=scripts, environment=environment)
        host = ServiceHost(given, open_store("memory:"))
        models = ModelRegistry(Options(**model_options(settings)).build_model_config())
        stack.push_async_callback(models.close)
        find_model = _model_finder(models, settings["model"], trusted=trusted)
        services = make_script_services(
            HostedServices(host, find_model, lambda name, config: None, as_tool, models.embedder)
        )
        output = _ScriptOutput(flags["mode"], verbose=flags["verbose"])
        script = StandaloneScript(
            program=program,
            services=replace(services, runner=runner),
            name=file.stem,
            model=settings["model"] or "",
            print_line=output.print_line,
            log=output.print_log,
            max_sleep=limits.max_sleep,
        )
        try:
            await _MODES[flags["mode"]](script, flags["said"], output)
        except (ScriptError, Closed):
            if output.write_error is not None:
                raise output.write_error from None
            raise
        finally:
            profile.run_seconds = time.perf_counter() - compiled


async def _run_plain(script: StandaloneScript, input_text: str | None, output: "_ScriptOutput") -> None:
    await script.run_plain(*([] if input_text is None else [_parse_input(input_text)]))


async def _run_tool(script: StandaloneScript, input_text: str | None, output: "_ScriptOutput") -> None:
    lines = StdinReader()
    arguments: JSON = {} if input_text is None else _parse_input(input_text)
    if input_text is None and not lines.is_terminal:
        try:
            value = await lines.read_json()
        except BadInput as error:
            raise UsageError(f"expected the arguments of the tool as JSON on stdin: {error}") from error
        arguments = value[0] if value else arguments

    async def read_more(before: JSON) -> JSON:
        if before is not None:
            output.print_note(before if isinstance(before, str) else compact_json(before))
        try:
            value = await lines.read_json()
        except BadInput as error:
            raise ScriptError(f"input: {error}") from error
        if value is None:
            raise ScriptError("input: stdin has ended")
        return value[0]

    print_json(await script.run_tool(arguments, read_more))


async def _run_agent(script: StandaloneScript, input_text: str | None, output: "_ScriptOutput") -> None:
    lines, count = StdinReader(), 0

    async def read_input() -> str | None:
        nonlocal count
        count += 1
        if input_text is not None:
            return input_text if count == 1 else None
        try:
            line = await lines.read_line()
        except BadInput as error:
            raise ScriptError(f"recv: {error}") from error
        return "" if line is None and count == 1 else line

    await script.run_agent(read_input, output.print_part)


_MODES = {"plain": _run_plain, "tool": _run_tool, "agent": _run_agent}


class _ScriptOutput:
    """Prints the output of a script: the result on stdout, everything else on stderr."""

    def __init__(self, mode: str, *, verbose: bool) -> None:
        self._is_plain, self._verbose = mode == "plain", verbose
        self._last_char = "\n"
        self.write_error: OSError | None = None
        """Why writing to stdout or stderr failed."""

    def print_line(self, text: str) -> None:
        """Print a line of ``print``: of a plain script it is part of the result."""
        self._write(f"{text}\n", err=not self._is_plain)

    def print_log(self, level: str, text: str) -> None:
        """Print a line of the log; level ``info`` of a plain script is part of the result."""
        if level == "info" and self._is_plain:
            self._write(f"{text}\n")
        elif level != "debug" or self._verbose:
            self.print_note(f"{level}: {text}")

    def print_note(self, text: str) -> None:
        self._write(f"{as_printable(text)}\n", err=True)

    def print_part(self, part: Part | None) -> None:
        """Print a part of an agent's message; ``None`` ends the message and its line."""
        if isinstance(part, Text):
            self._write(part.text)
            self._last_char = part.text[-1:] or self._last_char
        elif part is not None:
            self.print_note(f"({getattr(part, 'media_type', 'a part')} is not shown)")
        elif self._last_char != "\n":
            self._write("\n")
            self._last_char = "\n"

    def _write(self, text: str, *, err: bool = False) -> None:
        try:
            click.echo(text, nl=False, err=err)
        except OSError as error:
            self.write_error = error
            raise Closed("the output is closed") from error  # ends the script, which cannot catch it


def _open_network(hosts: SettingValue) -> Connector:
    try:
        return Connector(NetworkRules(trusted=hosts.value))
    except ConfigError as error:
        kind = UsageError if hosts.layer == "flag" else ConfigError
        raise kind(f"{hosts.origin}: {error}") from error


def _model_finder(models: ModelRegistry, default: str | None, *, trusted: bool) -> Callable[[str], Model]:
    """Return a function that finds models. An untrusted script gets only ``default``: a name can open a file."""

    def find(name: str) -> Model:
        wanted = default if default and name == "default" else name
        if not trusted and wanted not in ("default", default):
            raise ScriptError(
                f"generate is not available here: this script may ask the model 'default' only, not {name!r}, because "
                f"it is confined; give that model with --model {name} and ask 'default', or run the script with "
                f"--trusted"
            )
        if wanted == "default":
            raise ScriptError("generate is not available here: there is no model 'default'; give one with --model NAME")
        try:
            return models.find(wanted)
        except ConfigError as error:
            if default:
                raise
            raise ScriptError(f"generate is not available here: no --model was given, and {error}") from error

    return find


def _parse_input(text: str) -> JSON:
    try:
        return decode_json(text)
    except BadInput as error:
        raise UsageError(f"--input: {error}") from error
