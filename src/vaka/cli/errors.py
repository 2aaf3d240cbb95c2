"""How a command ends other than well."""

import asyncio

import click
import msgspec

from vaka.core.types.content import clean
from vaka.core.types.errors import EXIT_CODES, VakaError

OK = 0
FAILED = 1
USAGE = 2
CONFIGURATION = 3
AUTHENTICATION = 4
APPROVAL = 5
MODEL = 6
LIMIT = 7
TOOL = 8
BUSY = 75
INTERRUPTED = 130
CLOSED_PIPE = 141
TERMINATED = 143


_MORE = {"model_unavailable": BUSY, "authentication": AUTHENTICATION}
"""A model that may answer later is worth another try; a key that is refused is not the model's fault."""


class Quit(SystemExit):
    """Leave with this code; everything has been said."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.exit = code


class UsageError(click.UsageError):
    """What was typed cannot be meant."""


def exit_code(code: str) -> int:
    """Return the exit code for an error the log or an exception names."""
    return _MORE.get(code) or EXIT_CODES.get(code, FAILED)


class Told(msgspec.Struct, frozen=True):
    """An error as programs and people are told of it."""

    code: str
    message: str
    exit: int


def told(error: BaseException) -> Told:
    """Return what to say of an error, and the exit code it leads to."""
    told = _told(error)
    return Told(told.code, clean(told.message), told.exit)  # a name of a file may be no text at all


def _told(error: BaseException) -> Told:
    if isinstance(error, VakaError):
        return Told(error.code, " ".join(str(error).split()), exit_code(error.code))
    if isinstance(error, click.ClickException):
        return Told("usage", _usage(error), USAGE)
    if isinstance(error, Quit):
        return Told("terminated" if error.exit == TERMINATED else "interrupted", "stopped by a signal", error.exit)
    if isinstance(error, KeyboardInterrupt | click.Abort | asyncio.CancelledError):
        return Told("interrupted", "interrupted", INTERRUPTED)
    if isinstance(error, BrokenPipeError):
        return Told("closed_pipe", "nobody reads the output any more", CLOSED_PIPE)
    if isinstance(error, OSError):
        return Told("system", str(error), FAILED)
    return Told("internal", f"{type(error).__name__}: {error} (run again with -v to see where)", FAILED)


def _usage(error: click.ClickException) -> str:
    message = " ".join(error.format_message().split())
    context = getattr(error, "ctx", None)
    return f"{message.rstrip('.')} (see `{context.command_path} --help`)" if context is not None else message
