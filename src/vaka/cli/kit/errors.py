"""Exit codes, and the code and message of every error."""

import os
from typing import NamedTuple

import click

from vaka.core.types.errors import EXIT_CODES, ConfigError, VakaError

OK = 0
FAILED = 1
USAGE = 2  # 3 is ConfigError's
AUTHENTICATION = 4
APPROVAL = 5
MODEL = 6
LIMIT = 7
TOOL = 8
BUSY = 75
HUNG_UP = 129
INTERRUPTED = 130
CLOSED_PIPE = 141
TERMINATED = 143

_EXIT_CODE_OVERRIDES = {"model_unavailable": BUSY, "authentication": AUTHENTICATION}
"""Codes that differ from the exception's own: an unavailable model is worth a retry, a refused key is not."""


class Quit(SystemExit):
    """Exit with this code and print nothing more."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.exit = code


class UsageError(click.UsageError):
    """A command line that is not valid; exit code 2."""


def exit_code_of(code: str) -> int:
    """Return the exit code for the ``code`` of an exception or of a failed turn."""
    return _EXIT_CODE_OVERRIDES.get(code) or EXIT_CODES.get(code, FAILED)


class ErrorDescription(NamedTuple):
    code: str
    message: str
    exit: int


def describe_error(error: BaseException) -> ErrorDescription:
    """Return the code, the message and the exit code of an error; the message is UTF-8 and shows no secrets."""
    described = _describe(error)
    return described._replace(message=redact_message(described.message))


def redact_message(text: str) -> str:
    """Return a message for the terminal: without secrets and what could control it, and encodable as UTF-8."""
    from vaka.cli.kit.render import as_printable
    from vaka.core.session.redaction import Secrets
    from vaka.core.types.message import replace_surrogates
    from vaka.matching.secrets import SECRET_FORMATS

    message: str = Secrets(finders=[SECRET_FORMATS]).redact_data(replace_surrogates(text))
    return as_printable(message)


def _describe(error: BaseException) -> ErrorDescription:
    if isinstance(error, VakaError):
        return ErrorDescription(error.code, " ".join(str(error).split()), exit_code_of(error.code))
    if isinstance(error, click.ClickException):
        return ErrorDescription("usage", _usage_message(error), USAGE)
    if isinstance(error, Quit):
        code = "terminated" if error.exit in (HUNG_UP, TERMINATED) else "interrupted"
        return ErrorDescription(code, "stopped by a signal", error.exit)
    from asyncio import CancelledError

    if isinstance(error, (KeyboardInterrupt, click.Abort, CancelledError)):
        return ErrorDescription("interrupted", "interrupted", INTERRUPTED)
    if isinstance(error, BrokenPipeError):
        return ErrorDescription("closed_pipe", "the reader of the output has closed it", CLOSED_PIPE)
    if isinstance(error, FileNotFoundError) and not _has_current_folder():
        message = "the current folder does not exist any more; change to another one with cd"
        return ErrorDescription(ConfigError.code, message, ConfigError.exit_code)
    if isinstance(error, OSError):
        return ErrorDescription("system", str(error), FAILED)
    return _describe_defect(error)


def _describe_defect(error: BaseException) -> ErrorDescription:
    if isinstance(error, ModuleNotFoundError):
        from vaka.feature import missing_folder_of

        if folder := missing_folder_of(error):
            message = f"this needs the feature {folder!r}, and this installation has no folder vaka/{folder}"
            return ErrorDescription(ConfigError.code, message, ConfigError.exit_code)
    return ErrorDescription("internal", f"{type(error).__name__}: {error} (run again with -v to see where)", FAILED)


def _has_current_folder() -> bool:
    try:
        os.getcwd()  # noqa: PTH109  # without the import of pathlib
    except FileNotFoundError:
        return False
    return True


def _usage_message(error: click.ClickException) -> str:
    message = " ".join(error.format_message().split())
    context = getattr(error, "ctx", None)
    return f"{message.rstrip('.')} (see `{context.command_path} --help`)" if context is not None else message
