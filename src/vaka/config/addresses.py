"""Addresses of servers, as people write them."""

import re
from ipaddress import ip_address
from urllib.parse import urlsplit

EXPECTED = "expected an address such as https://api.example.com/v1, without a query ('?…') or a fragment ('#…')"


def is_address(url: str) -> bool:
    """Whether a text can be dialed, and a path be put behind it."""
    try:
        parts = urlsplit(url)
        right = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return right and "?" not in url and "#" not in url


def without_user(url: str) -> str:
    """Return an address as it may be shown: without who asks there, and their password."""
    return re.sub(r"//[^/]*@", "//***@", url)


def on_loopback(url: str) -> bool:
    """Whether an address is this machine's own."""
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
