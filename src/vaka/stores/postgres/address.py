"""Where the database is, and how to say so without its password."""

import re
from urllib.parse import parse_qsl, urlencode, urlsplit

from vaka.core.types.errors import ConfigError

_SECRETS = {"password", "sslpassword"}
_HOSTS = re.compile(r"([^\[\]:,]*|\[[^\[\]]*\])(:\d*)?(,([^\[\]:,]*|\[[^\[\]]*\])(:\d*)?)*")
_WRITE = "write it as postgresql://user:password@host:5432/database, special characters in a part as %XX"


def public(dsn: str) -> str:
    """Return the address without what must not be shown; ``ConfigError`` for what is no address of a PostgreSQL.

    What is wrong is not quoted: a password that was not escaped may be anywhere.
    """
    try:
        parts = urlsplit(dsn)
        options = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        raise ConfigError(f"the address of the PostgreSQL store cannot be read: {_WRITE}") from None
    if parts.scheme not in {"postgresql", "postgres"}:
        raise ConfigError(f"the address of a PostgreSQL store begins with postgresql://: {_WRITE}")
    user, at, hosts = parts.netloc.rpartition("@")
    named = all(name.isascii() and name.isidentifier() for name, _ in options)
    if parts.fragment or "@" in parts.path or not named or not _HOSTS.fullmatch(hosts):
        raise ConfigError(f"the address of the PostgreSQL store has a part that cannot be read: {_WRITE}")
    shown = urlencode([option for option in options if option[0] not in _SECRETS], safe="/:,")
    return f"{parts.scheme}://{user.partition(':')[0]}{at}{hosts}{parts.path}{'?' if shown else ''}{shown}"
