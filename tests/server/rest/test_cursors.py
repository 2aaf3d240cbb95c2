"""Cursors that are not of the log: of the future, of another epoch, or not cursors at all."""

import base64
from collections.abc import Callable

from tests.server.conftest import Serve
from vaka.agents.react import Agent
from vaka.testing import say

Scripted = Callable[..., Agent]

API = "/api/v1/sessions/s"
STREAM = {"Accept": "text/event-stream"}
FOREIGN = ("999999999999999999", "1.999999999999999999", "7.1", "99")
NOT_CURSORS = ("-1", "1.-1", "abc", "1.1.1", "9" * 30, "٣", "1e5", "\0", "0x1", " 1.2", "NaN")


async def test_a_cursor_that_is_not_of_the_log_is_refused_or_answered_with_a_reset(
    serve: Serve, scripted: Scripted
) -> None:
    async with serve([scripted(say("Hi."))]) as served, served.client() as client:
        turn = (await client.post(f"{API}/turns", json={"input": "Hi.", "agent": "assistant"})).json()
        for cursor in FOREIGN:
            for path in ("turns?", "messages?", "messages?order=desc&", "messages/search?q=hi&"):
                page = await client.get(f"{API}/{path}cursor={cursor}")
                assert (path, cursor, page.status_code) == (path, cursor, 410)
            first = (await client.get(f"{API}/events", params={"after": cursor})).json()["data"][0]
            assert (first["type"], first["session"]) == ("stream.reset", "s")
            assert first["data"]["reason"].startswith("no event "), "it says what was not found"
            for path in ("events", f"turns/{turn['id']}"):
                headers = {**STREAM, "Last-Event-ID": cursor}
                async with client.stream("GET", f"{API}/{path}", headers=headers) as stream:
                    kind = await anext(line async for line in stream.aiter_lines() if line.startswith("event: "))
                assert kind in ("event: stream.reset", "event: input.added", "event: turn.started")
        for cursor in NOT_CURSORS:
            for path, name in (("events", "after"), ("turns", "cursor"), ("messages", "cursor")):
                page = await client.get(f"{API}/{path}", params={name: cursor})
                assert (path, cursor, page.status_code) == (path, cursor, 400)


async def test_a_page_token_of_a2a_that_was_made_up_ends(serve: Serve, scripted: Scripted) -> None:
    async with serve([scripted(say("Hi."))]) as served, served.client() as client:
        await client.post(f"{API}/turns", json={"input": "Hi.", "agent": "assistant"})
        for made_up in (b'{"session": "s", "before": 999999999999999999}', b"{", b'{"before": "x"}', b"\xff"):
            token = base64.urlsafe_b64encode(made_up).decode()
            answer = await client.get(
                "/a2a/assistant/v1/tasks", params={"pageToken": token}, headers={"A2A-Version": "1.0"}
            )
            assert answer.status_code in (200, 400)
