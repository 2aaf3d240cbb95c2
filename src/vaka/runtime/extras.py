"""The extras of the package ``vaka``: which one installs an optional library."""

from collections.abc import Generator
from contextlib import contextmanager

from vaka.core.types.errors import ConfigError

_EXTRAS = {
    "asyncpg": "postgres",
    "prompt_toolkit": "tui",
    "rich": "tui",
    "httptools": "server",
    "jwt": "server",
    "starlette": "server",
    "uvicorn": "server",
    "websockets": "server",
}


@contextmanager
def explain_missing_extra() -> Generator[None]:
    """Turn the ``ModuleNotFoundError`` of an optional library into a ``ConfigError`` that names the extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get(error.name or "")
        if extra is None:
            raise
        raise ConfigError(f"{error.name} is not installed; add it with: pip install 'vaka[{extra}]'") from error
