"""Where requests may go, and whether an address may be dialed."""

import msgspec

from vaka.core.ports.net import NetVerdict
from vaka.core.types.errors import ConfigError, NetworkRefused
from vaka.net.address import Address, Kind, canonical, embedded, kind_of
from vaka.net.pattern import Pattern, read_pattern
from vaka.net.url import Target, parse, refuse

# Services that speak something else and can be made to act on a request sent to them.
_NOT_HTTP = frozenset(
    (
        *(1719, 1720, 1723, 2049, 2375, 2376, 2379, 2380, 3306, 3389, 3659, 4045, 4190, 5060, 5061, 5432, 5900, 6000),
        *(6379, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697, 10080, 10250, 11211, 27017),
    )
)
_LOOPBACK_NAMES = (".localhost", ".localdomain", "ip6-localhost", "ip6-loopback")
_PRIVATE_NAMES = (".local", ".internal", ".home.arpa")
_METADATA_NAMES = (
    *("metadata", "metadata.google.internal", "metadata.goog", "metadata.tencentyun.com", "metadata.packet.net"),
    *("metadata.platformequinix.com", "instance-data", "instance-data.ec2.internal", "rancher-metadata"),
)
_NAMED: tuple[tuple[Kind, tuple[Pattern, ...]], ...] = (
    ("metadata", tuple(read_pattern(name) for name in _METADATA_NAMES)),
    ("loopback", tuple(read_pattern(name) for name in _LOOPBACK_NAMES)),
    ("private", tuple(read_pattern(name) for name in _PRIVATE_NAMES)),
)
_WORDS: dict[Kind, str] = {
    "loopback": "this machine itself",
    "private": "in a private network",
    "cgnat": "in a carrier's private network",
    "link_local": "on the local link",
    "metadata": "a cloud's metadata service",
    "multicast": "many machines at once",
    "unspecified": "no particular machine",
    "reserved": "no place on the public internet",
}


class Rules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where requests may go: by default to every public address, and to no other.

    Hosts are given as patterns (``vaka.net.pattern``); a pattern that cannot be read is a ``ConfigError``.
    """

    allow_hosts: tuple[str, ...] = ()
    """If there are any, only these hosts and the trusted ones."""
    deny_hosts: tuple[str, ...] = ()
    """Never these, whatever else is said; networks also bind what names turn out to be."""
    trusted: tuple[str, ...] = ()
    """Hosts and networks that need not be public, such as ``127.0.0.1:8080``; a metadata service only by name."""
    allow_private: bool = False
    allow_loopback: bool = False
    ports: tuple[int, ...] = ()
    """Only these ports; if none are given: 80, 443 and those from 1024 on that are not known for something else."""
    allow_downgrade: bool = False
    """Follow a redirect from https to http."""

    def __post_init__(self) -> None:
        for text in (*self.allow_hosts, *self.deny_hosts, *self.trusted):
            read_pattern(text)
        for port in self.ports:
            if not 0 < port < 65536:
                raise ConfigError(f"{port!r} is not a port; expected 1 to 65535")


class Judge:
    """Applies ``Rules``: to addresses as people write them, and to the ones names turn out to have."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self._allow = tuple(read_pattern(text) for text in rules.allow_hosts)
        self._deny = tuple(read_pattern(text) for text in rules.deny_hosts)
        self._trusted = tuple(read_pattern(text) for text in rules.trusted)
        self._open: set[Kind] = {"public"}
        if rules.allow_loopback:
            self._open.add("loopback")
        if rules.allow_private:
            self._open.add("private")

    def decide(self, url: str) -> NetVerdict:
        """Say whether ``url`` may be asked; looks nothing up."""
        try:
            target = parse(url)
        except NetworkRefused as error:
            return NetVerdict(reason=error.reason, message=str(error))
        place = NetVerdict(url=target.url, host=target.host, port=target.port)
        try:
            self.check(target)
        except NetworkRefused as error:
            return msgspec.structs.replace(place, reason=error.reason, message=str(error))
        return place

    def check(self, target: Target) -> None:
        """Refuse a target by what is written in it: host lists, port, an address or a name that is known."""
        host, port, address = target.host, target.port, target.address
        self._check_denied(host, port, address)
        trusted = _first(self._trusted, host, port, address)
        if self._allow and not trusted and not _first(self._allow, host, port, address):
            refuse("not_allowed", f"{target.authority!r} is not among the allowed hosts")
        if not self._port_allowed(port) and not (trusted and trusted.port):
            refuse("port", f"port {port} of {target.host!r} is not allowed")
        if address is not None:
            self.check_address(host, port, address)
            return
        for kind, names in _NAMED:
            if _first(names, host, port):
                self._check_kind(kind, host, port, None)
                return

    def check_redirect(self, source: Target, target: Target) -> None:
        """Refuse a redirect that leads to where a request may not go, or out of the encrypted web."""
        if source.scheme == "https" and target.scheme == "http" and not self.rules.allow_downgrade:
            refuse("downgrade", f"{source.origin!r} redirects to unencrypted {target.origin!r}")
        self.check(target)

    def check_address(self, host: str, port: int, address: Address) -> None:
        """Refuse ``address``, one of those that ``host`` has, unless it may be dialed."""
        self._check_denied(host, port, address)
        self._check_kind(kind_of(address), host, port, address)

    def _check_denied(self, host: str, port: int, address: Address | None) -> None:
        inner = None if address is None else embedded(address)
        if denied := _first(self._deny, host, port, address) or _first(self._deny, host, port, inner):
            refuse("denied", f"{_shown(host, address)} is denied by the rule {denied.text!r}")

    def _check_kind(self, kind: Kind, host: str, port: int, address: Address | None) -> None:
        if kind in self._open:
            return
        if not any(_trusts(pattern, kind) and pattern.matches(host, port, address) for pattern in self._trusted):
            refuse(kind, f"{_shown(host, address)} is {_WORDS[kind]}; only trusted hosts may be")

    def _port_allowed(self, port: int) -> bool:
        if self.rules.ports:
            return port in self.rules.ports
        return port in (80, 443) or (port >= 1024 and port not in _NOT_HTTP)


def _first(patterns: tuple[Pattern, ...], host: str, port: int, address: Address | None = None) -> Pattern | None:
    return next((pattern for pattern in patterns if pattern.matches(host, port, address)), None)


def _trusts(pattern: Pattern, kind: Kind) -> bool:
    # Who trusts a network or a name of their own did not mean the one address that hands out credentials.
    return kind != "metadata" or (pattern.exact and (pattern.network is not None or pattern.name in _METADATA_NAMES))


def _shown(host: str, address: Address | None) -> str:
    if address is None or str(canonical(address)) == host:
        return repr(host)
    return f"{host!r} has the address {str(address)!r}, which"
