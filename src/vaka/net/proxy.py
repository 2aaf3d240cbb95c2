"""The address of a proxy, as somebody configured it."""

from urllib.parse import unquote, urlsplit

import msgspec

from vaka.core.types.errors import ConfigError


class Proxy(msgspec.Struct, frozen=True, kw_only=True):
    """A proxy that requests go through."""

    scheme: str
    host: str
    port: int
    user: str = ""
    password: str = ""


def read_proxy(text: str) -> Proxy:
    """Read ``http://[user:password@]host[:port]``; ``ConfigError`` says what is wrong without quoting the password."""
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ConfigError(f"the proxy's address cannot be read: {error}") from error
    defaults = {"http": 80, "https": 443}
    if parts.scheme not in defaults or not host:
        raise ConfigError(f"the proxy has the scheme {parts.scheme!r} and the host {host!r}; expected http://host:port")
    return Proxy(
        scheme=parts.scheme,
        host=host,
        port=port or defaults[parts.scheme],
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
    )
