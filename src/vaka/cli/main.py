"""``vaka``: finds the command, runs it, and turns what went wrong into one line and an exit code."""

import importlib
import os
import signal
import sys
import traceback
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, NoReturn, TextIO

import click

from vaka import __version__
from vaka.cli.errors import CLOSED_PIPE, TERMINATED, USAGE, Quit, told
from vaka.cli.options import examples
from vaka.core.types.errors import VakaError

COMMANDS = {
    "run": ("vaka.cli.run:run", "Run one turn: the result on stdout, progress on stderr."),
    "sessions": ("vaka.cli.sessions:sessions", "List, show, export, fork, rewind, check and remove sessions."),
    "approvals": ("vaka.cli.approvals:approvals", "What waits for a person: list it, decide it, answer it."),
    "luau": ("vaka.cli.luau:luau", "Run a Luau script, or try a tool or an agent that is one."),
    "models": ("vaka.cli.models:models", "List models and keys, try one, or serve the one on this machine."),
    "tools": ("vaka.cli.tools:tools", "List tools, or make one governed call."),
    "permissions": ("vaka.cli.permissions:permissions", "What the rules say of a call, and which rules there are."),
    "trust": ("vaka.cli.trust:trust", "Let the settings of a folder count, or not."),
    "config": ("vaka.cli.config:config", "Settings, and where each comes from."),
    "doctor": ("vaka.cli.doctor:doctor", "Look whether everything is in place."),
    "completion": ("vaka.cli.completion:completion", "Print the completion script of a shell."),
    "version": ("vaka.cli.version:version", "Print versions."),
}


class _Lazy(click.Group):
    """A group whose commands are imported when they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        found: click.Command = getattr(importlib.import_module(module), name)
        return found

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise Quit(CLOSED_PIPE) from None  # click itself would make it a failure

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


_EXAMPLES = examples(
    'vaka run "Say hello." --model scripted:hello.jsonl',
    'git diff | vaka run "Review this." --session review',
    "vaka sessions list",
    "vaka approvals list",
)


@click.group(
    cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]}, invoke_without_command=True, epilog=_EXAMPLES
)
@click.version_option(__version__, message="vaka %(version)s")
@click.pass_context
def cli(context: click.Context) -> None:
    """Durable agents: every step is kept, nothing is done twice, a person is asked when it must be."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help(), err=not sys.stdout.isatty())
        raise Quit(USAGE)


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line and leave with its exit code."""
    _prepare()
    given = sys.argv[1:] if arguments is None else arguments
    name = "agentctl" if sys.argv[0].endswith("agentctl") else "vaka"
    sys.exit(_leave(_run(given, name)))


def _run(arguments: list[str], name: str) -> int:
    loud = any(text in ("-v", "--verbose") for text in arguments)
    sys.excepthook = lambda kind, error, trace: _complain(error, trace, loud=loud)
    try:
        cli.main(arguments, prog_name=name, standalone_mode=False, color=_colour())
    except Quit as quitting:
        return quitting.exit
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except (click.Abort, KeyboardInterrupt) as quiet:
        return told(quiet).exit
    except (click.ClickException, VakaError, OSError) as error:
        _complain(error, error.__traceback__, loud=loud)
        return told(error).exit
    return 0


def _prepare() -> None:
    """Write UTF-8 whatever the locale says, into nothing when a stream is closed; leave in order when told to."""
    sys.stdout = sys.stdout or _nowhere()
    sys.stderr = sys.stderr or _nowhere()
    for stream in (sys.stdout, sys.stderr):
        reconfigure: Any = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(encoding="utf-8", errors="replace")

    def terminate(number: int, frame: FrameType | None) -> None:
        raise Quit(TERMINATED)

    signal.signal(signal.SIGTERM, terminate)


def _colour() -> bool | None:
    """``False`` when colours are not wanted; otherwise each stream decides for itself."""
    return False if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" else None


def _nowhere() -> TextIO:
    return Path(os.devnull).open("w", encoding="utf-8")


def _leave(code: int) -> int:
    """Flush what is left; when it cannot be written, keep the interpreter from saying so once more."""
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return told(error).exit
    return code


def _complain(error: BaseException, trace: TracebackType | None, *, loud: bool) -> None:
    """Say what went wrong in one line; with ``-v`` also where."""
    if loud:
        traceback.print_exception(type(error), error, trace)
    click.echo(f"error: {told(error).message}", err=True)
