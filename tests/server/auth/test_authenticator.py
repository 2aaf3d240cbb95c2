"""The authenticator: which credential is accepted where, and what a wrong one costs."""

import re

import pytest

from vaka.server.auth.api_keys import KeyOptions
from vaka.server.auth.authenticator import CredentialAuthenticator, open_authenticator
from vaka.server.kit.guard import Credentials
from vaka.server.kit.principal import SCOPES, Principal
from vaka.server.kit.problems import Problem
from vaka.server.limits import FAILURES_PER_MINUTE
from vaka.stores.memory import MemoryStore
from vaka.testing.clock import FakeClock

OPERATOR = Principal(id="kim", key="console", scopes=frozenset(SCOPES))
PAGE = "https://app.example"


async def problem_of(authenticator: CredentialAuthenticator, credentials: Credentials) -> Problem:
    with pytest.raises(Problem) as refused:
        await authenticator.authenticate(credentials)
    return refused.value


async def test_a_request_without_credentials_is_401_and_says_how_to_get_some(
    authenticator: CredentialAuthenticator,
) -> None:
    problems = [
        await problem_of(authenticator, credentials)
        for credentials in (Credentials(), Credentials(kind="bearer"), Credentials(token="x"))
    ]
    assert [(one.status, one.code, one.headers) for one in problems] == [
        (401, "unauthorized", {"WWW-Authenticate": 'Bearer realm="vaka"'})
    ] * 3
    assert "`vaka keys create` makes one" in problems[0].detail


async def test_a_server_without_authentication_knows_one_caller_but_still_checks_credentials(
    store: MemoryStore, clock: FakeClock
) -> None:
    authenticator = await open_authenticator(store.values, {}, clock, anonymous=OPERATOR)
    assert await authenticator.authenticate(Credentials()) == OPERATOR
    assert (await problem_of(authenticator, Credentials(kind="bearer", token="ak_wrong"))).status == 401
    assert await authenticator.is_valid(OPERATOR)


async def test_a_key_is_accepted_as_a_bearer_token_and_not_as_a_cookie_or_ticket(
    authenticator: CredentialAuthenticator,
) -> None:
    key, text = await authenticator.keys.create(KeyOptions(namespace="acme"))
    principal = await authenticator.authenticate(Credentials(kind="bearer", token=text))
    assert principal == key.principal
    for kind in ("cookie", "ticket"):
        assert (await problem_of(authenticator, Credentials(kind=kind, token=text))).status == 401
    assert await authenticator.is_valid(principal)
    await authenticator.keys.revoke(key.id)
    assert not await authenticator.is_valid(principal)


async def test_a_token_that_is_not_a_key_is_refused_where_jwts_are_not_configured(
    authenticator: CredentialAuthenticator,
) -> None:
    for token in ("eyJhbGciOiJub25lIn0.e30.", "Bearer", "x" * 20_000):
        problem = await problem_of(authenticator, Credentials(kind="bearer", token=token))
        assert (problem.status, token in problem.detail) == (401, False)


async def test_the_cookie_needs_the_header_of_the_console_to_change_something(
    authenticator: CredentialAuthenticator,
) -> None:
    login = await authenticator.tickets.redeem_link(await authenticator.tickets.issue_link(OPERATOR))
    reads, changes = (Credentials(kind="cookie", token=login, changes=changes) for changes in (False, True))
    assert await authenticator.authenticate(reads) == OPERATOR
    problem = await problem_of(authenticator, changes)
    assert (problem.status, problem.code) == (403, "console_header_missing")
    with_header = Credentials(kind="cookie", token=login, changes=True, console_header=True)
    assert await authenticator.authenticate(with_header) == OPERATOR
    assert (await problem_of(authenticator, Credentials(kind="bearer", token=login))).status == 401


async def test_a_ticket_of_a_key_that_was_revoked_is_refused(authenticator: CredentialAuthenticator) -> None:
    key, _ = await authenticator.keys.create(KeyOptions())
    first, second = [await authenticator.tickets.issue_ticket(key.principal, PAGE) for _ in range(2)]
    credentials = Credentials(kind="ticket", token=first, origin=PAGE)
    assert await authenticator.authenticate(credentials) == key.principal
    assert (await problem_of(authenticator, credentials)).detail.startswith("the ticket has been used")
    await authenticator.keys.revoke(key.id)
    problem = await problem_of(authenticator, Credentials(kind="ticket", token=second, origin=PAGE))
    assert (problem.status, problem.detail) == (401, "the API key that the ticket was issued for is not valid any more")


async def test_an_address_with_many_wrong_tokens_has_to_wait_but_right_ones_work(
    authenticator: CredentialAuthenticator, clock: FakeClock
) -> None:
    _, text = await authenticator.keys.create(KeyOptions())
    wrong = Credentials(kind="bearer", token="ak_wrong", address="203.0.113.9")
    right = Credentials(kind="bearer", token=text, address="203.0.113.9")
    assert [(await problem_of(authenticator, wrong)).status for _ in range(FAILURES_PER_MINUTE)] == [401] * 30
    problem = await problem_of(authenticator, wrong)
    assert (problem.status, problem.code) == (429, "too_many_failures")
    assert problem.headers == {"Retry-After": "2", "retry-after-ms": "2000"}
    await authenticator.authenticate(right)  # a proxy has one address for all its clients
    assert (await problem_of(authenticator, Credentials(address="203.0.113.9"))).status == 401
    clock.advance(2)
    assert (await problem_of(authenticator, wrong)).status == 401


async def test_no_refusal_quotes_a_credential(authenticator: CredentialAuthenticator) -> None:
    _, text = await authenticator.keys.create(KeyOptions())
    for kind in ("bearer", "cookie", "ticket"):
        problem = await problem_of(authenticator, Credentials(kind=kind, token=text[:-1]))
        assert not re.search(r"[A-Za-z0-9_-]{20}", problem.detail)
