"""Rate limits: what a caller may do, what the answer says, and that tables do not grow."""

import pytest

from vaka.server.kit.principal import Principal
from vaka.server.kit.problems import Problem
from vaka.server.limits import FailedAttempts, RateLimiter, TokenBuckets
from vaka.testing.clock import FakeClock

KIM = Principal(id="kim", key="ak_1")


def test_a_caller_gets_its_burst_and_then_its_rate() -> None:
    clock = FakeClock()
    limiter = RateLimiter(clock, requests_per_minute=60, burst=10)
    assert limiter.count_request(KIM) == {
        "RateLimit-Policy": '"requests";q=60;w=60',
        "RateLimit": '"requests";r=9;t=1',
    }
    for left in range(8, -1, -1):
        assert f"r={left};" in limiter.count_request(KIM)["RateLimit"]
    with pytest.raises(Problem) as refused:
        limiter.count_request(KIM)
    problem = refused.value
    assert (problem.status, problem.code) == (429, "rate_limited")
    assert problem.headers == {
        "RateLimit-Policy": '"requests";q=60;w=60',
        "RateLimit": '"requests";r=0;t=10',
        "Retry-After": "1",
        "retry-after-ms": "1000",
    }
    assert problem.detail == "more than 60 requests per minute, or 10 at once; try again in 1 s"
    clock.advance(0.5)
    with pytest.raises(Problem) as refused:
        limiter.count_request(KIM)
    assert refused.value.headers["retry-after-ms"] == "500"
    clock.advance(0.5)
    limiter.count_request(KIM)
    clock.advance(3600)
    assert "r=9;" in limiter.count_request(KIM)["RateLimit"]


def test_callers_are_counted_apart_by_credential_and_tenant() -> None:
    limiter = RateLimiter(FakeClock(), requests_per_minute=1, burst=1)
    others = [Principal(id="kim", key="ak_2"), Principal(id="kim", key="ak_1", namespace="acme"), Principal(id="kim")]
    for principal in (KIM, *others):
        assert "r=4;" in limiter.count_request(principal)["RateLimit"]


def test_a_limit_of_the_credential_replaces_that_of_the_server() -> None:
    limiter = RateLimiter(FakeClock(), requests_per_minute=0, burst=100)
    assert limiter.count_request(KIM) == {}
    slow = Principal(id="slow", requests_per_minute=6)
    for _ in range(6):
        limiter.count_request(slow)
    with pytest.raises(Problem) as refused:
        limiter.count_request(slow)
    assert refused.value.headers["Retry-After"] == "10"


def test_many_callers_and_many_addresses_do_not_grow_the_tables() -> None:
    clock = FakeClock()
    buckets = TokenBuckets(clock, size=100)
    for number in range(1000):
        buckets.take(f"caller {number}", 1, 5)
    assert len(buckets) == 100
    assert buckets.level("caller 999", 1, 5) == 4
    failures = FailedAttempts(clock, size=100)
    for number in range(1000):
        failures.record(f"198.51.{number // 250}.{number % 250}")
    failures.record("")
    failures.check("")
    assert len(failures) == 100


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9", True),
        ("2001:db8:1:2::1", "2001:db8:1:3::1", False),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("192.0.2.1", "192.0.2.2", False),
        ("unix", "unix", True),
    ],
)
def test_an_address_is_counted_with_its_network(first: str, second: str, same: bool) -> None:
    failures = FailedAttempts(FakeClock(), per_minute=1)
    failures.record(first)
    if same:
        with pytest.raises(Problem, match="too many requests with wrong credentials came from this address"):
            failures.check(second)
    else:
        failures.check(second)
