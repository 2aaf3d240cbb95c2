"""How much of everything a connector grants."""

import msgspec

from vaka.core.types.errors import ConfigError


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The most that any request gets; where a request asks for less, it gets less."""

    connect: float = 10.0
    """Seconds to look a name up and reach one of its addresses, and again for the encryption."""
    read: float = 30.0
    """Seconds without a byte, either way."""
    total: float = 600.0
    max_bytes: int = 256 * 1024 * 1024
    redirects: int = 20
    headers: int = 128
    """Header fields of an answer."""
    header_bytes: int = 64 * 1024
    """Bytes of all names and values; the head as a whole ends at about 100 KiB in any case."""
    connections: int = 64
    idle_connections: int = 16
    idle: float = 15.0
    """Seconds that an unused connection is kept."""

    def __post_init__(self) -> None:
        for field in self.__struct_fields__:
            value = getattr(self, field)
            smallest = 0 if field in ("redirects", "idle_connections", "idle") else 1e-3
            if not value >= smallest:
                raise ConfigError(f"the limit {field} is {value!r}; expected at least {smallest}")
