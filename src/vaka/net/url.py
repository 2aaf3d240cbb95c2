"""One strict parser for URLs and proxy addresses: what is checked is what is dialed, nothing parses it again."""

import re
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import NoReturn
from urllib.parse import quote, unquote, urljoin, urlsplit

import msgspec

from vaka.core.types.errors import ConfigError, NetworkRefused
from vaka.matching.hosts import AMBIGUOUS_CHARACTERS, NUMERIC_LABEL, IPAddress, unmap_ipv4

MAX_URL_LENGTH = 16 * 1024

DEFAULT_PORTS = {"http": 80, "https": 443}

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)(/[^?#]*)?(\?[^#]*)?(#.*)?", re.DOTALL)

_AUTHORITY = re.compile(r"(\[[^\]]*\]|[^:\[\]]*)(?::([0-9]{0,5}))?")

_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")

_SAFE_CHARACTERS = "!$%&'()*+,-./:;=?@_~[]|"


class ParsedURL(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed URL: ``host`` is an ASCII name in lower case or an IP address without brackets."""

    scheme: str
    host: str
    port: int
    path: str
    """Path and query, as sent."""
    address: IPAddress | None = None
    """The host, if it is an IP address."""

    @property
    def authority(self) -> str:
        """The ``Host`` header: brackets around IPv6, no default port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def origin(self) -> str:
        """Scheme, host and port; credentials are valid for one origin."""
        return f"{self.scheme}://{self.authority}"

    @property
    def url(self) -> str:
        """The whole URL, normalised."""
        return self.origin + self.path


def parse_url(url: str) -> ParsedURL:
    """Parse ``url``. Raises ``NetworkRefused``, whose message never quotes parts that may be secret."""
    if len(url) > MAX_URL_LENGTH:
        refuse("url", f"the URL has {len(url)} characters, at most {MAX_URL_LENGTH} are allowed")
    if match := AMBIGUOUS_CHARACTERS.search(url):
        refuse("url", f"the URL contains {match[0]!r}; blanks, controls and backslashes must be percent-encoded")
    match = _URL.fullmatch(url)
    if match is None:
        refuse("url", "the URL is not absolute; expected http://host/path or https://host/path")
    scheme = match[1].lower()
    if scheme not in DEFAULT_PORTS:
        refuse("scheme", f"the scheme {scheme!r} is not allowed; expected 'http' or 'https'")
    if "@" in match[2]:
        refuse("userinfo", "the URL carries a user name or password; send an Authorization header instead")
    host, port, address = _parse_authority(match[2], DEFAULT_PORTS[scheme])
    path = _percent_encode((match[3] or "/") + (match[4] or ""))
    return ParsedURL(scheme=scheme, host=host, port=port, path=path, address=address)


def join_url(base: ParsedURL, location: str) -> ParsedURL:
    """Parse the location of a redirect from ``base``. Raises ``NetworkRefused``."""
    if match := AMBIGUOUS_CHARACTERS.search(location):
        refuse("url", f"the redirect's target contains {match[0]!r}")
    try:
        joined = urljoin(base.url, location)
    except ValueError as error:
        raise NetworkRefused(f"the redirect's target is not a URL: {error}", reason="url") from error
    return parse_url(joined)


def refuse(reason: str, message: str) -> NoReturn:
    raise NetworkRefused(message, reason=reason)


def parse_host(text: str) -> tuple[str, IPAddress | None]:
    """Parse a host as it is written in a URL: ``(name or address, address)``. Raises ``NetworkRefused``."""
    if text.startswith("["):
        try:
            address = unmap_ipv4(IPv6Address(text[1:-1]))
        except AddressValueError:
            refuse("host", f"{text!r} is not an IPv6 address")
        if isinstance(address, IPv6Address) and address.scope_id is not None:
            refuse("host", f"{text!r} names a network interface; an address may not")
        return str(address), address
    name = normalize_host_name(text)
    if not NUMERIC_LABEL.fullmatch(name.rpartition(".")[2]):
        return name, None
    try:
        address = IPv4Address(name)
    except AddressValueError:
        refuse("host", f"{text!r} looks like a number; write an IPv4 address as four decimal numbers")
    return name, address


def normalize_host_name(text: str) -> str:
    """Return a host name in ASCII and lower case, without a final dot. Raises ``NetworkRefused``."""
    name = (text if text.isascii() else _encode_idna(text)).lower().removesuffix(".")
    if not name or len(name) > 253 or not all(_LABEL.fullmatch(label) for label in name.split(".")):
        refuse("host", f"{text!r} is not a host name")
    return name


def _encode_idna(text: str) -> str:
    # httpx2 applies the strict rules: characters that look like ASCII are errors.
    import httpx2  # noqa: PLC0415 - slow to load, and most names are ASCII

    try:
        return httpx2.URL(scheme="http", host=text).raw_host.decode("ascii")
    except (httpx2.InvalidURL, UnicodeError):
        refuse("host", f"{text!r} is not an internationalised host name")


def _parse_authority(text: str, default: int) -> tuple[str, int, IPAddress | None]:
    match = _AUTHORITY.fullmatch(text)
    if match is None or not match[1]:
        refuse("host", f"{text!r} is not a host with an optional port")
    host, address = parse_host(match[1])
    port = int(match[2]) if match[2] else default
    if not 0 < port < 65536:
        refuse("port", f"{port} is not a port; expected 1 to 65535")
    return host, port, address


def _percent_encode(path: str) -> str:
    try:
        return quote(path, safe=_SAFE_CHARACTERS)
    except UnicodeEncodeError:
        refuse("url", "the URL contains half of a surrogate pair")


class ProxyAddress(msgspec.Struct, frozen=True, kw_only=True):
    scheme: str
    host: str
    port: int
    user: str = ""
    password: str = ""


def parse_proxy_url(text: str) -> ProxyAddress:
    """Parse ``http://[user:password@]host[:port]``. Raises ``ConfigError``, whose message never quotes the password."""
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ConfigError(f"the proxy's address cannot be read: {error}") from error
    if parts.scheme not in DEFAULT_PORTS or not host:
        raise ConfigError(f"the proxy has the scheme {parts.scheme!r} and the host {host!r}; expected http://host:port")
    port = port or DEFAULT_PORTS[parts.scheme]
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    return ProxyAddress(scheme=parts.scheme, host=host, port=port, user=user, password=password)
