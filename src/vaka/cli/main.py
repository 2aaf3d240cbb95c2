"""``vaka``: find the command, run it, and report an error as one line and an exit code."""

import gc
import os
import signal
import sys
from types import FrameType, TracebackType
from typing import Any, NoReturn, TextIO

import click

from vaka import __version__
from vaka.cli.command_table import COMMANDS, find_command, format_examples, list_commands
from vaka.cli.kit.errors import CLOSED_PIPE, USAGE, Quit, describe_error
from vaka.cli.kit.stdout import discard_output_of_closed_terminal, flush_stdout
from vaka.core.types.errors import VakaError

GC_THRESHOLD = 50_000
"""New objects before a search for garbage. Imports make many objects and no garbage; Python's own is 700."""


_COMPLETION_VARIABLES = {"_VAKA_COMPLETE", "_AGENTCTL_COMPLETE"}
"""The variable, by name of the program, with which a shell asks for completions."""


class _LazyGroup(click.Group):
    """A group whose commands are imported when they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(list_commands())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        command = find_command(cmd_name)
        if command is not None and not _COMPLETION_VARIABLES.isdisjoint(os.environ):
            from vaka.cli.completion import add_completers

            add_completers(command, (cmd_name,))
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        """Offer the commands without importing them: the packages that one needs may be missing."""
        from click.shell_completion import CompletionItem  # only completion needs it

        found = [
            CompletionItem(name, help=text) for name, text in list_commands().items() if name.startswith(incomplete)
        ]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and name[:1] != "-" and not ctx.resilient_parsing and name not in list_commands():
            from vaka.core.types.keywords import find_near_names  # only this error needs it

            near = find_near_names(name, list_commands())
            ctx.fail(f"No such command {name!r}." + (f" Did you mean {near[0]!r}?" if near else ""))
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise Quit(CLOSED_PIPE) from None  # click itself would make it a failure

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(list_commands().items()))


@click.group(
    cls=_LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    invoke_without_command=True,
    epilog=format_examples(
        "vaka login anthropic",
        "vaka chat --model anthropic/claude-sonnet-5-5",
        'vaka run "Say hello." --model scripted:hello.jsonl',
        'git diff | vaka run "Review this." --session review',
        "vaka sessions list",
        "vaka approvals list",
    ),
)
@click.version_option(__version__, message="vaka %(version)s")
@click.pass_context
def cli(context: click.Context) -> None:
    """Durable agents: every step is recorded, nothing runs twice, and a person approves what needs approval."""
    if context.invoked_subcommand is None and sys.stdin.isatty() and sys.stdout.isatty():
        context.invoke(COMMANDS["chat"][0]())
    elif context.invoked_subcommand is None:
        click.echo(context.get_help(), err=not sys.stdout.isatty())
        raise Quit(USAGE)


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line and exit with its exit code."""
    gc.set_threshold(GC_THRESHOLD)
    _prepare_process()
    name = "agentctl" if sys.argv[0].endswith("agentctl") else "vaka"
    code = _flush_stdout(_run_command(sys.argv[1:] if arguments is None else arguments, name))
    gc.freeze()  # the interpreter would search all modules for garbage, several times, before it exits
    sys.exit(code)


def _run_command(arguments: list[str], name: str) -> int:
    verbose = any(text in ("-v", "--verbose") for text in arguments)
    color = False if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" else None
    sys.excepthook = lambda kind, error, trace: _print_error(error, trace, verbose=verbose)
    try:
        cli.main(arguments, prog_name=name, standalone_mode=False, color=color)
    except Quit as quitting:
        return quitting.exit
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except (click.Abort, KeyboardInterrupt) as interrupt:
        return describe_error(interrupt).exit
    except (click.ClickException, VakaError, OSError, ModuleNotFoundError) as error:
        _print_error(error, error.__traceback__, verbose=verbose)
        return describe_error(error).exit
    return 0


def _prepare_process() -> None:
    """Write UTF-8 in every locale, replace closed streams by /dev/null, and exit in order on SIGTERM and SIGHUP."""
    sys.stdout, sys.stderr = sys.stdout or _open_devnull(), sys.stderr or _open_devnull()
    for stream in (sys.stdout, sys.stderr):
        reconfigure: Any = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(encoding="utf-8", errors="replace")

    def terminate(number: int, frame: FrameType | None) -> None:
        discard_output_of_closed_terminal()
        if number != signal.SIGTERM:
            signal.signal(number, signal.SIG_IGN)  # the kernel and the shell may both send it
        raise Quit(128 + number)

    signal.signal(signal.SIGTERM, terminate)
    if sys.platform != "win32" and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # nohup ignores it
        signal.signal(signal.SIGHUP, terminate)


def _open_devnull() -> TextIO:
    return os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")


def _flush_stdout(code: int) -> int:
    try:
        flush_stdout()
    except OSError as error:
        return describe_error(error).exit
    return code


def _print_error(error: BaseException, trace: TracebackType | None, *, verbose: bool) -> None:
    if verbose:
        sys.__excepthook__(type(error), error, trace)
    click.echo(f"error: {describe_error(error).message}", err=True)
