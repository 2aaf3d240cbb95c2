"""Limits of callers: requests per minute, and failed attempts to authenticate."""

import math
from collections import OrderedDict
from collections.abc import Mapping
from ipaddress import IPv6Address, ip_address

from vaka.core.ports.env import Clock
from vaka.server.kit.principal import Principal
from vaka.server.kit.problems import Problem

MAX_CALLERS = 10_000
"""The most entries of a table. A new entry replaces the least recently used entry."""
FAILURES_PER_MINUTE = 30
MIN_BURST = 5
"""The smallest burst, also of a credential with a small rate limit."""


class TokenBuckets:
    """One token bucket for each name, in a table of bounded size; a bucket that is not in it is full."""

    def __init__(self, clock: Clock, *, size: int = MAX_CALLERS) -> None:
        self._clock, self._size = clock, size
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """The number of tokens at a monotonic time, by name; the first was used the longest time ago."""

    def __len__(self) -> int:
        return len(self._buckets)

    def level(self, name: str, rate: float, burst: float) -> float:
        """Return the number of tokens of a bucket that gets ``rate`` per second and holds ``burst``."""
        tokens, since = self._buckets.get(name, (burst, 0.0))
        return min(burst, tokens + (self._clock.monotonic() - since) * rate)

    def take(self, name: str, rate: float, burst: float) -> float:
        """Take a token if there is one; return the number before that."""
        tokens = self.level(name, rate, burst)
        if tokens >= 1:
            self._buckets[name] = (tokens - 1, self._clock.monotonic())
            self._buckets.move_to_end(name)
            while len(self._buckets) > self._size:
                self._buckets.popitem(last=False)
        return tokens


class RateLimiter:
    """Limits the requests of each credential."""

    def __init__(self, clock: Clock, *, requests_per_minute: int, burst: int, size: int = MAX_CALLERS) -> None:
        """``requests_per_minute``: of credentials without a limit of their own; 0: no limit."""
        self._limit, self._burst = requests_per_minute, burst
        self._buckets = TokenBuckets(clock, size=size)

    def count_request(self, principal: Principal) -> Mapping[str, str]:
        """Count one request; return the headers that describe the limit. Raises ``Problem`` (429) for too many."""
        limit = principal.requests_per_minute or self._limit
        if not limit:
            return {}
        burst = max(min(limit, self._burst), MIN_BURST)
        rate = limit / 60
        tokens = self._buckets.take(credential_of(principal), rate, burst)
        left = max(tokens - 1, 0.0)
        headers = {
            "RateLimit-Policy": f'"requests";q={limit};w=60',
            "RateLimit": f'"requests";r={int(left)};t={math.ceil((burst - left) / rate)}',
        }
        if tokens < 1:
            text = f"more than {limit} requests per minute, or {burst} at once"
            raise too_many_requests("rate_limited", text, (1 - tokens) / rate, headers)
        return headers


class FailedAttempts:
    """Limits how often one address may fail to authenticate."""

    def __init__(self, clock: Clock, *, per_minute: int = FAILURES_PER_MINUTE, size: int = MAX_CALLERS) -> None:
        self._per_minute = per_minute
        self._buckets = TokenBuckets(clock, size=size)

    def __len__(self) -> int:
        return len(self._buckets)

    def check(self, address: str) -> None:
        """Raise ``Problem`` (429) for an address with too many failures."""
        rate = self._per_minute / 60
        tokens = self._buckets.level(_network_of(address), rate, self._per_minute)
        if address and tokens < 1:
            text = "too many requests with wrong credentials came from this address"
            raise too_many_requests("too_many_failures", text, (1 - tokens) / rate)

    def record(self, address: str) -> None:
        """Count a failure."""
        if address:
            self._buckets.take(_network_of(address), self._per_minute / 60, self._per_minute)


def too_many_requests(code: str, detail: str, seconds: float, headers: Mapping[str, str] | None = None) -> Problem:
    """Return a 429 that says after how many seconds to try again."""
    milliseconds = max(math.ceil(seconds * 1000), 1)
    retry = {"Retry-After": str(math.ceil(milliseconds / 1000)), "retry-after-ms": str(milliseconds)}
    return Problem(429, code, f"{detail}; try again in {retry['Retry-After']} s", headers={**(headers or {}), **retry})


def credential_of(principal: Principal) -> str:
    """Return the name under which a credential is counted."""
    return f"{principal.namespace}\n{principal.key or principal.id}"


def _network_of(address: str) -> str:
    """Return an address, of IPv6 its network of 64 bits: one client may have all addresses of that."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address[:64]
    if not isinstance(parsed, IPv6Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return (parsed.packed[:8]).hex()
