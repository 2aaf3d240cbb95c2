"""How a command ends other than well."""

import asyncio

import click
import msgspec

from vaka.core.types.errors import VakaError
from vaka.core.types.exit_codes import EXIT_CODES
from vaka.core.types.message import replace_surrogates

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


_EXIT_CODE_OVERRIDES = {"model_unavailable": BUSY, "authentication": AUTHENTICATION}
"""A model that may answer later is worth another try; a key that is refused is not the model's fault."""


class Quit(SystemExit):
    """Leave with this code; everything has been said."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.exit = code


class UsageError(click.UsageError):
    """What was typed cannot be meant."""


def exit_code_of(code: str) -> int:
    """Return the exit code for an error the log or an exception names."""
    return _EXIT_CODE_OVERRIDES.get(code) or EXIT_CODES.get(code, FAILED)


class ErrorDescription(msgspec.Struct, frozen=True):
    """An error as programs and people are told of it."""

    code: str
    message: str
    exit: int


def describe_error(error: BaseException) -> ErrorDescription:
    """Return what to say of an error, and the exit code it leads to."""
    told = _describe(error)
    return ErrorDescription(
        told.code, replace_surrogates(told.message), told.exit
    )  # a name of a file may be no text at all


def _describe(error: BaseException) -> ErrorDescription:
    if isinstance(error, VakaError):
        return ErrorDescription(error.code, " ".join(str(error).split()), exit_code_of(error.code))
    if isinstance(error, click.ClickException):
        return ErrorDescription("usage", _usage_message(error), USAGE)
    if isinstance(error, Quit):
        return ErrorDescription(
            "terminated" if error.exit == TERMINATED else "interrupted", "stopped by a signal", error.exit
        )
    if isinstance(error, KeyboardInterrupt | click.Abort | asyncio.CancelledError):
        return ErrorDescription("interrupted", "interrupted", INTERRUPTED)
    if isinstance(error, BrokenPipeError):
        return ErrorDescription("closed_pipe", "nobody reads the output any more", CLOSED_PIPE)
    if isinstance(error, OSError):
        return ErrorDescription("system", str(error), FAILED)
    return ErrorDescription("internal", f"{type(error).__name__}: {error} (run again with -v to see where)", FAILED)


def _usage_message(error: click.ClickException) -> str:
    message = " ".join(error.format_message().split())
    context = getattr(error, "ctx", None)
    return f"{message.rstrip('.')} (see `{context.command_path} --help`)" if context is not None else message
