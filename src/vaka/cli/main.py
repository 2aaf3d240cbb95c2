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
from vaka.cli.errors import CLOSED_PIPE, TERMINATED, USAGE, Quit, describe_error
from vaka.cli.options import format_examples
from vaka.core.types.errors import VakaError

COMMANDS = {
    "run": ("vaka.cli.commands.run:run", "Run one turn: the result on stdout, progress on stderr."),
    "sessions": ("vaka.cli.commands.sessions:sessions", "List, show, export, fork, rewind, check and remove sessions."),
    "approvals": ("vaka.cli.commands.approvals:approvals", "What waits for a person: list it, decide it, answer it."),
    "luau": ("vaka.cli.commands.luau:luau", "Run a Luau script, or try a tool or an agent that is one."),
    "models": ("vaka.cli.commands.models:models", "List models and keys, try one, or serve the one on this machine."),
    "tools": ("vaka.cli.commands.tools:tools", "List tools, or make one governed call."),
    "permissions": (
        "vaka.cli.commands.permissions:permissions",
        "What the rules say of a call, and which rules there are.",
    ),
    "trust": ("vaka.cli.commands.trust:trust", "Let the settings of a folder count, or not."),
    "config": ("vaka.cli.commands.config:config", "Settings, and where each comes from."),
    "doctor": ("vaka.cli.commands.doctor:doctor", "Look whether everything is in place."),
    "completion": ("vaka.cli.commands.version_completion:completion", "Print the completion script of a shell."),
    "version": ("vaka.cli.commands.version_completion:version", "Print versions."),
}


class _LazyGroup(click.Group):
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


_EXAMPLES = format_examples(
    'vaka run "Say hello." --model scripted:hello.jsonl',
    'git diff | vaka run "Review this." --session review',
    "vaka sessions list",
    "vaka approvals list",
)


@click.group(
    cls=_LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    invoke_without_command=True,
    epilog=_EXAMPLES,
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
    _prepare_process()
    given = sys.argv[1:] if arguments is None else arguments
    name = "agentctl" if sys.argv[0].endswith("agentctl") else "vaka"
    sys.exit(_flush_stdout(_run_command(given, name)))


def _run_command(arguments: list[str], name: str) -> int:
    loud = any(text in ("-v", "--verbose") for text in arguments)
    sys.excepthook = lambda kind, error, trace: _print_error(error, trace, verbose=loud)
    try:
        cli.main(arguments, prog_name=name, standalone_mode=False, color=_color_flag())
    except Quit as quitting:
        return quitting.exit
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except (click.Abort, KeyboardInterrupt) as quiet:
        return describe_error(quiet).exit
    except (click.ClickException, VakaError, OSError) as error:
        _print_error(error, error.__traceback__, verbose=loud)
        return describe_error(error).exit
    return 0


def _prepare_process() -> None:
    """Write UTF-8 whatever the locale says, into nothing when a stream is closed; leave in order when told to."""
    sys.stdout = sys.stdout or _open_devnull()
    sys.stderr = sys.stderr or _open_devnull()
    for stream in (sys.stdout, sys.stderr):
        reconfigure: Any = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(encoding="utf-8", errors="replace")

    def terminate(number: int, frame: FrameType | None) -> None:
        raise Quit(TERMINATED)

    signal.signal(signal.SIGTERM, terminate)


def _color_flag() -> bool | None:
    """``False`` when colours are not wanted; otherwise each stream decides for itself."""
    return False if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" else None


def _open_devnull() -> TextIO:
    return Path(os.devnull).open("w", encoding="utf-8")


def _flush_stdout(code: int) -> int:
    """Flush what is left; when it cannot be written, keep the interpreter from saying so once more."""
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return describe_error(error).exit
    return code


def _print_error(error: BaseException, trace: TracebackType | None, *, verbose: bool) -> None:
    """Say what went wrong in one line; with ``-v`` also where."""
    if verbose:
        traceback.print_exception(type(error), error, trace)
    click.echo(f"error: {describe_error(error).message}", err=True)
