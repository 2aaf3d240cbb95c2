"""Tickets, links and logins: once or for a while, in every process, and for nothing else."""

import asyncio
from pathlib import Path

import pytest

from vaka.core.types.errors import Corrupt
from vaka.server.auth.errors import CredentialRefused
from vaka.server.auth.pepper import Pepper
from vaka.server.auth.tickets import LINK_SECONDS, LOGIN_SECONDS, MAX_PURGED, Tickets, login_cookie
from vaka.server.kit.principal import Principal
from vaka.stores.memory import MemoryStore
from vaka.stores.sqlite import SqliteStore
from vaka.testing.clock import FakeClock

KIM = Principal(
    id="kim",
    namespace="acme",
    scopes=frozenset({"runs:read"}),
    key="ak_00000000",
    own_sessions_only=True,
    requests_per_minute=9,
)
PAGE = "https://app.example"


async def test_a_ticket_works_once_and_names_the_caller_it_was_issued_to(tickets: Tickets) -> None:
    ticket = await tickets.issue_ticket(KIM, PAGE)
    assert await tickets.redeem_ticket(ticket, PAGE) == KIM
    with pytest.raises(CredentialRefused, match="the ticket has been used; ask for a new one"):
        await tickets.redeem_ticket(ticket, PAGE)


async def test_a_ticket_of_another_origin_is_refused_and_used_up(tickets: Tickets) -> None:
    ticket = await tickets.issue_ticket(KIM, PAGE)
    with pytest.raises(CredentialRefused, match="the ticket was issued to a page of another origin"):
        await tickets.redeem_ticket(ticket, "https://evil.example")
    with pytest.raises(CredentialRefused, match="has been used"):
        await tickets.redeem_ticket(ticket, PAGE)
    with pytest.raises(CredentialRefused, match="another origin"):
        await tickets.redeem_ticket(await tickets.issue_ticket(KIM, PAGE), "")


async def test_a_late_ticket_is_refused(tickets: Tickets, clock: FakeClock) -> None:
    ticket, late = await tickets.issue_ticket(KIM, PAGE), await tickets.issue_ticket(KIM, PAGE)
    clock.advance(29.9)
    assert await tickets.redeem_ticket(ticket, PAGE) == KIM
    clock.advance(0.1)
    with pytest.raises(CredentialRefused, match="the ticket has expired"):
        await tickets.redeem_ticket(late, PAGE)


async def test_a_text_that_is_not_a_ticket_is_refused_and_uses_nothing_up(tickets: Tickets) -> None:
    ticket, other = await tickets.issue_ticket(KIM, PAGE), await tickets.issue_ticket(KIM, PAGE)
    for cut in (
        "",
        ticket[:-1],
        f"{ticket}\n",
        ticket.replace("vkt", "vks"),
        await tickets.issue_link(KIM),
        "x" * 9999,
    ):
        with pytest.raises(CredentialRefused, match="the ticket is cut off or is not one"):
            await tickets.redeem_ticket(cut, PAGE)
    for wrong in (ticket[:-43] + other[-43:], ticket.replace(ticket[4:20], "0" * 16)):
        with pytest.raises(CredentialRefused, match="the ticket is not valid"):
            await tickets.redeem_ticket(wrong, PAGE)
    assert await tickets.redeem_ticket(ticket, PAGE) == KIM


async def test_of_several_processes_one_redeems_a_ticket(tmp_path: Path, pepper: Pepper, clock: FakeClock) -> None:
    stores = [SqliteStore(tmp_path / "vaka.db", durability="process") for _ in range(2)]
    first, second = (Tickets(store.values, pepper, clock) for store in stores)
    ticket = await first.issue_ticket(KIM, PAGE)
    outcomes = await asyncio.gather(
        *(process.redeem_ticket(ticket, PAGE) for process in [first, second] * 4), return_exceptions=True
    )
    assert [outcome for outcome in outcomes if not isinstance(outcome, CredentialRefused)] == [KIM]
    for store in stores:
        await store.close()


async def test_a_link_is_exchanged_once_for_a_login_that_a_later_server_accepts(
    tickets: Tickets, store: MemoryStore, pepper: Pepper, clock: FakeClock
) -> None:
    link = await tickets.issue_link(KIM)
    login = await tickets.redeem_link(link)
    with pytest.raises(CredentialRefused, match="the link to the console has been used; `vaka keys link`"):
        await tickets.redeem_link(link)
    later = Tickets(store.values, pepper, clock)
    assert [await later.find_login(login), await later.find_login(login)] == [KIM, KIM]
    clock.advance(LOGIN_SECONDS)
    with pytest.raises(CredentialRefused, match="the console login has expired; open the link"):
        await later.find_login(login)
    late = await later.issue_link(KIM)
    clock.advance(LINK_SECONDS)
    with pytest.raises(CredentialRefused, match="the link to the console has expired"):
        await later.redeem_link(late)


async def test_a_login_that_ended_is_refused_by_every_process_within_two_seconds(
    tickets: Tickets, store: MemoryStore, pepper: Pepper, clock: FakeClock
) -> None:
    login = await tickets.redeem_link(await tickets.issue_link(KIM))
    other = Tickets(store.values, pepper, clock)
    await other.find_login(login)
    await tickets.end_login(login)
    with pytest.raises(CredentialRefused, match="the console login is not valid"):
        await tickets.find_login(login)
    clock.advance(2)
    with pytest.raises(CredentialRefused, match="the console login is not valid"):
        await other.find_login(login)
    await tickets.end_login(login)
    await tickets.end_login("not a login")


async def test_the_store_has_no_secret_and_loses_what_has_expired(
    tickets: Tickets, store: MemoryStore, pepper: Pepper, clock: FakeClock
) -> None:
    issued = [await tickets.issue_ticket(KIM, PAGE) for _ in range(MAX_PURGED + 1)]
    await tickets.redeem_ticket(issued[0], PAGE)
    stored = [str(await store.values.get(name)) for name in await store.values.keys()]
    assert not any(ticket[-43:] in text for ticket in issued for text in stored)
    clock.advance(32)
    await Tickets(store.values, pepper, clock).issue_ticket(KIM, PAGE)  # another process, which issued none of them
    assert len(await store.values.keys()) == 3
    for _ in range(3):
        await tickets.issue_ticket(KIM, PAGE)
    assert len(await store.values.keys()) == 4  # those that have not expired


async def test_a_damaged_ticket_is_reported(tickets: Tickets, store: MemoryStore) -> None:
    ticket = await tickets.issue_ticket(KIM, PAGE)
    (name,) = await store.values.keys()
    await store.values.put(name, {"digest": 1})
    with pytest.raises(Corrupt, match="is damaged"):
        await tickets.redeem_ticket(ticket, PAGE)


def test_the_cookie_of_a_login_is_for_this_site_and_not_for_scripts() -> None:
    assert login_cookie("vaka_console_8321", "vks_x", secure=True) == (
        "vaka_console_8321=vks_x; Path=/; Max-Age=604800; HttpOnly; SameSite=Strict; Secure"
    )
    assert (
        login_cookie("vaka_console", "", secure=False) == "vaka_console=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict"
    )
