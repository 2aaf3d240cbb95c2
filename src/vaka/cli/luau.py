"""``vaka luau``: run a script, or try a tool or an agent that is one, without a session."""

import os
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from vaka.cli import options
from vaka.cli.errors import FAILED, Quit, UsageError, told
from vaka.cli.lines import BadInput, Lines, decoded
from vaka.cli.load import libs_of
from vaka.cli.render import compact, printable
from vaka.cli.report import print_json
from vaka.cli.start import model_options, run_loop, settings_of
from vaka.config.layers import Settings
from vaka.core.ports.model import Model
from vaka.core.types.content import Part, Text
from vaka.core.types.errors import Closed, ConfigError, InvalidInput, ScriptError
from vaka.core.types.ids import JSON
from vaka.luau.alone import Alone, Home, load
from vaka.luau.limits import ScriptLimits
from vaka.luau.profile import Profile
from vaka.net.connector import Connector
from vaka.net.rules import Rules
from vaka.runtime import registry
from vaka.runtime.models import Models
from vaka.runtime.options import Options
from vaka.runtime.scripts import Scripts

_EXAMPLES = options.examples(
    "vaka luau hello.luau",
    'vaka luau weather.luau --mode tool --input \'{"city": "Hilo"}\'',
    "printf 'hello\\nbye\\n' | vaka luau chat.luau --mode agent",
    "vaka luau sync.luau --allow-host 127.0.0.1:8080 --env API_KEY --profile",
    "vaka luau stranger.luau --untrusted --limits memory=16M,seconds=1",
)

_OURS = ("prelude:", "main:")
"""How frames of a traceback begin that are no script's."""
_FILE: "click.Path[Path]" = click.Path(exists=True, dir_okay=False, path_type=Path)
_FOLDER: "click.Path[Path]" = click.Path(exists=True, file_okay=False, path_type=Path)


class _Limits(click.ParamType[ScriptLimits]):
    """Limits as people type them."""

    name = "limits"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> ScriptLimits:
        """Return the limits."""
        try:
            return value if isinstance(value, ScriptLimits) else ScriptLimits.parse(value)
        except InvalidInput as error:
            self.fail(str(error), param, ctx)


@click.command(epilog=_EXAMPLES)
@click.argument("file", type=_FILE)
@click.option(
    "--mode", type=click.Choice(["plain", "tool", "agent"]), default="plain",
    help="What the script is: plain (default), a tool, or an agent.",
)  # fmt: skip
@click.option(
    "--libs", multiple=True, type=_FOLDER, metavar="DIR",
    help="A folder for require; may be repeated. Default: ../libs beside the script's folder, if there is one. What "
    "comes with vaka, such as haivivi, is always there.",
)  # fmt: skip
@click.option(
    "--async", "-a", "_", is_flag=True,
    help="Taken for scripts from elsewhere, and changes nothing: a call always suspends only the coroutine that made "
    "it, and the text of a script is the same either way.",
)  # fmt: skip
@click.option(
    "--input", "said", metavar="JSON",
    help="The arguments of a tool, `...` of a plain script; for an agent the text of its one input.",
)  # fmt: skip
@click.option(
    "--limits", type=_Limits(), metavar="LIMITS",
    help="memory=64M,seconds=5,coroutines=10K,depth=100 are the defaults; also instructions=10M; none lifts one.",
)  # fmt: skip
@click.option("--profile", is_flag=True, help="Say on stderr where the time went.")
@click.option("--model", metavar="NAME", help='The model called "default" in the script, such as scripted:FILE.')
@click.option(
    "--allow-host", "hosts", multiple=True, metavar="HOST[:PORT]",
    help="A host the script may reach though it is not public; may be repeated.",
)  # fmt: skip
@click.option("--untrusted", is_flag=True, help="Run it in a process of its own that may do nothing else.")
@click.option("--env", multiple=True, metavar="NAME", help="A variable of the environment it may see; may be repeated.")
@click.option("-v", "--verbose", is_flag=True, help="Say more; show where an error came from.")
def luau(file: Path, **given: Any) -> None:
    """Run a Luau script, without a session: what it keeps is gone when it ends.

    plain: what it prints goes to stdout. tool: its arguments come from --input or stdin, its result goes to stdout as
    JSON, and nothing else does; when it asks for more it gets the next JSON value of stdin. agent: each line of stdin
    is something it hears, what it says goes to stdout; without any line it hears one empty text.

    A script that fails says `script error: file:line: message` on stderr, and the exit code is 1.
    """
    profile = Profile()
    try:
        run_loop(_run(file, given, settings_of(given), profile))
    except ScriptError as error:
        click.echo(f"script error: {printable(told(error).message, lines=False)}", err=True)
        frames = [line for line in error.traceback.splitlines() if not line.startswith(_OURS)]
        if given["verbose"] and frames:
            click.echo(printable("\n".join(frames)), err=True)
        raise Quit(FAILED) from error
    finally:
        if given["profile"]:
            click.echo("\n".join(profile.lines()), err=True)


async def _run(file: Path, given: dict[str, Any], settings: Settings, profile: Profile) -> None:
    trusted = not given["untrusted"]
    began = time.perf_counter()
    program = await load(file, libs=given["libs"] or libs_of(file), limits=given["limits"], trusted=trusted)
    compiled = time.perf_counter()
    profile.compile_seconds = compiled - began
    env = {name: os.environ[name] for name in given["env"] if name in os.environ}
    async with AsyncExitStack() as stack:
        network = await stack.enter_async_context(_network(given["hosts"]))
        home = Home(profile)
        stack.push_async_callback(home.close)
        scripts = Scripts(Options(network=network, script_env=env), registry.store("memory:"))
        models = Models(Options(**model_options(settings)).book())
        stack.push_async_callback(models.close)
        lent = scripts.lend(_models(models, settings["model"], trusted=trusted), lambda name, config: None)
        voice = _Voice(given["mode"], verbose=given["verbose"])
        alone = Alone(
            program=program, lent=replace(lent, home=home), name=file.stem, model=settings["model"] or "",
            printed=voice.line, log=voice.log,
        )  # fmt: skip
        try:
            await _MODES[given["mode"]](alone, given["said"], voice)
        except (ScriptError, Closed):
            if voice.lost is not None:
                raise voice.lost from None
            raise
        finally:
            profile.run_seconds = time.perf_counter() - compiled


async def _plain(alone: Alone, said: str | None, voice: "_Voice") -> None:
    await alone.plain(*([] if said is None else [_given(said)]))


async def _tool(alone: Alone, said: str | None, voice: "_Voice") -> None:
    lines = Lines()
    arguments: JSON = {} if said is None else _given(said)
    if said is None and not lines.terminal:
        try:
            found = await lines.value()
        except BadInput as error:
            raise UsageError(f"the arguments of the tool are not right: {error}") from error
        arguments = found[0] if found else arguments

    async def more(before: JSON) -> JSON:
        if before is not None:
            voice.note(before if isinstance(before, str) else compact(before))
        try:
            found = await lines.value()
        except BadInput as error:
            raise ScriptError(f"input: {error}") from error
        if found is None:
            raise ScriptError("input: nobody says more: stdin has ended")
        return found[0]

    print_json(await alone.tool(arguments, more))


async def _agent(alone: Alone, said: str | None, voice: "_Voice") -> None:
    lines, heard = Lines(), 0

    async def hear() -> str | None:
        nonlocal heard
        heard += 1
        if said is not None:
            return said if heard == 1 else None
        try:
            line = await lines.line()
        except BadInput as error:
            raise ScriptError(f"recv: {error}") from error
        return "" if line is None and heard == 1 else line

    await alone.agent(hear, voice.say)


_MODES = {"plain": _plain, "tool": _tool, "agent": _agent}


class _Voice:
    """Where the words of a script go: the result to stdout, everything else to stderr."""

    def __init__(self, mode: str, *, verbose: bool) -> None:
        self._plain, self._verbose = mode == "plain", verbose
        self._last = "\n"
        self.lost: OSError | None = None
        """Why nobody reads any more."""

    def line(self, text: str) -> None:
        """Show what the script printed: the result of a plain script."""
        self._write(f"{text}\n", err=not self._plain)

    def log(self, level: str, text: str) -> None:
        """Show a line of its log; what a plain script has to tell is its result."""
        if level == "info" and self._plain:
            self._write(f"{text}\n")
        elif level != "debug" or self._verbose:
            self.note(f"{level}: {text}")

    def note(self, text: str) -> None:
        """Show something to the person who watches."""
        self._write(f"{printable(text)}\n", err=True)

    def say(self, part: Part | None) -> None:
        """Show what an agent says; a message ends with its line."""
        if isinstance(part, Text):
            self._write(part.text)
            self._last = part.text[-1:] or self._last
        elif part is not None:
            self.note(f"({getattr(part, 'media_type', 'something')} is not shown)")
        elif self._last != "\n":
            self._write("\n")
            self._last = "\n"

    def _write(self, text: str, *, err: bool = False) -> None:
        try:
            click.echo(text, nl=False, err=err)
        except OSError as error:
            self.lost = error
            raise Closed("nobody reads the output any more") from error  # ends the script, which cannot catch it


def _network(hosts: tuple[str, ...]) -> Connector:
    try:
        return Connector(Rules(trusted=hosts))
    except ConfigError as error:
        raise UsageError(f"--allow-host: {error}") from error


def _models(models: Models, default: str | None, *, trusted: bool) -> Callable[[str], Model]:
    """Find models by name. A name can stand for a file, so a stranger's script has only the model it is given."""

    def find(name: str) -> Model:
        wanted = default if default and name == "default" else name
        if wanted == "default" or (not trusted and wanted != default):
            raise ScriptError(f"generate is not available here: there is no model {name!r}; give one with --model")
        try:
            return models.find(wanted)
        except ConfigError as error:
            if default:
                raise
            raise ScriptError(f"generate is not available here: no --model was given, and {error}") from error

    return find


def _given(text: str) -> JSON:
    try:
        return decoded(text)
    except BadInput as error:
        raise UsageError(f"--input: {error}") from error
