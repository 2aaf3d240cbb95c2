"""Threads through the native API: messages without a turn, search, counts, states and owners."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import vaka
from tests.server.conftest import Serve
from tests.server.rest.test_turns import API, start
from vaka.agents.react import Agent
from vaka.errors import Suspended
from vaka.testing import call, say

Scripted = Callable[..., Agent]
MESSAGES = [
    {"role": "user", "content": "My pump is broken.", "id": "u1", "metadata": {"channel": "mail"}},
    {"role": "assistant", "content": "Which one?", "id": "a1"},
    {"role": "user", "content": "Die blaue, viele Grüße.", "id": "u2", "ts": "2026-01-31T12:00:00Z"},
]


def text_of(message: dict[str, Any]) -> str:
    return "".join(part.get("text", "") for part in message["content"])


async def test_messages_are_added_once_listed_counted_and_found(serve: Serve, scripted: Scripted) -> None:
    async with serve([scripted(say("Done."))]) as served, served.client() as client:
        created = await client.post(f"{API}/threads", json={"id": "t", "metadata": {"topic": "water"}})
        assert (created.status_code, created.json()["state"]) == (201, "active")
        added = await client.post(f"{API}/threads/t/messages", json={"messages": MESSAGES})
        assert (added.status_code, [each["id"] for each in added.json()["data"]]) == (201, ["u1", "a1", "u2"])
        again = await client.post(f"{API}/sessions/t/messages", json={"messages": MESSAGES})
        assert [each["added"] for each in again.json()["data"]] == [False] * 3
        await start(client, session="t", input="What now?")

        async def texts(**query: Any) -> list[str]:
            page = await client.get(f"{API}/threads/t/messages", params=query)
            assert page.status_code == 200, page.text
            return [text_of(each) for each in page.json()["data"]]

        spoken = ["My pump is broken.", "Which one?", "Die blaue, viele Grüße.", "What now?", "Done."]
        assert await texts() == spoken
        assert await texts(role="assistant") == ["Which one?", "Done."]
        assert await texts(keyword="PUMP,grüße") == [spoken[0], spoken[2]]
        assert await texts(metadata='{"channel":"mail"}') == [spoken[0]]
        assert await texts(until="2026-02-01T00:00:00Z", since="2026-01-01T00:00:00Z") == [spoken[2]]
        assert await texts(role="user", order="desc", limit=2) == ["What now?", spoken[2]]
        assert await texts(include_content="false") == [""] * 5
        page = (await client.get(f"{API}/threads/t/messages?role=user&limit=1")).json()
        assert page["has_more"]
        assert page["data"][0]["metadata"] == {"channel": "mail"}
        assert await texts(role="user", limit=1, cursor=page["next_cursor"]) == [spoken[2]]
        stats = (await client.get(f"{API}/threads/t/messages/stats")).json()
        assert (stats["message_count"], stats["user_message_count"]) == (5, 3)
        hits = (await client.get(f"{API}/threads/search", params={"q": "grusse"})).json()["data"]
        assert [(hit["session"], hit["id"], hit["role"]) for hit in hits] == [("t", "u2", "user")]
        start_at, end_at = hits[0]["matches"][0]
        assert hits[0]["snippet"][start_at:end_at] == "Grüße"
        gone = await client.request("DELETE", f"{API}/threads/t/messages", json={"ids": ["a1", "none"]})
        assert (gone.status_code, gone.json()["affected_count"], gone.json()["success"]) == (200, 1, False)
        del spoken[1]
        for query in ({}, {"until": "2100-01-01T00:00:00Z"}):
            assert await texts(**query) == spoken
        assert await texts(order="desc") == spoken[::-1]
        assert (await client.get(f"{API}/threads/t/messages/search?q=which")).json()["data"] == []
        found = await client.get(f"{API}/sessions", params={"metadata": '{"topic":"water"}', "state": "active"})
        assert [each["id"] for each in found.json()["data"]] == ["t"]


async def test_a_message_beside_an_unfinished_turn_is_busy(serve: Serve, scripted: Scripted, tmp_path: Path) -> None:
    @vaka.tool
    def pay(amount: int) -> str:
        """Pay an amount."""
        return f"paid {amount}"

    store = f"sqlite:///{tmp_path}/log.db"
    payer = scripted(call("pay", amount=1), say("Paid."), name="payer", tools=[pay])
    async with vaka.Runtime(store=store, permissions=vaka.Permissions(ask="suspend", confirm=["pay"])) as runtime:
        with pytest.raises(Suspended):
            await (await runtime.open(payer, id="t")).run("Pay.")
    async with serve([scripted(say("Done."))], store=store) as served, served.client() as client:
        refused = await client.post(f"{API}/threads/t/messages", json={"messages": MESSAGES})
        assert (refused.status_code, refused.json()["code"]) == (409, "busy")
        assert "unfinished turn" in refused.json()["detail"]
        stats = (await client.get(f"{API}/threads/t/messages/stats")).json()
        assert stats["user_message_count"] == 1


async def test_the_state_and_the_version_of_a_thread_are_checked(serve: Serve, scripted: Scripted) -> None:
    async with serve([scripted(say("Done."))]) as served, served.client() as client:
        made = (await client.post(f"{API}/threads", json={"id": "t"})).json()
        paused = await client.post(f"{API}/threads/t/state", json={"state": "paused", "version": made["version"]})
        assert (paused.status_code, paused.json()["state"]) == (200, "paused")
        old = await client.post(f"{API}/threads/t/state", json={"state": "active", "version": made["version"]})
        assert (old.status_code, old.json()["code"]) == (409, "head_moved")
        wrong = await client.post(f"{API}/threads/t/state", json={"state": "archived"})
        assert (wrong.status_code, wrong.json()["code"]) == (409, "state")
        assert (await client.post(f"{API}/threads/t/state", json={"state": "gone"})).status_code == 422
        refused = await client.post(f"{API}/threads/t/messages", json={"messages": MESSAGES})
        assert (refused.status_code, "takes no messages" in refused.json()["detail"]) == (400, True)
        late = await client.patch(f"{API}/threads/t", json={"title": "New", "version": made["version"]})
        assert late.status_code == 409
        now = await client.patch(f"{API}/threads/t", json={"title": "New", "version": paused.json()["version"]})
        assert (now.status_code, now.json()["title"]) == (200, "New")


async def test_threads_of_other_owners_do_not_exist(serve: Serve, scripted: Scripted) -> None:
    async with serve([scripted(say("Done."))]) as served, served.client() as client:
        made = await client.post(f"{API}/threads", json={"id": "kims", "resource_id": "kim"})
        assert made.json()["owner"] == "kim"
        await client.post(f"{API}/threads/kims/messages", json={"messages": MESSAGES})
        for path in ("", "/messages", "/messages/stats", "/messages/search?q=pump"):
            sign = "&" if "?" in path else "?"
            assert (await client.get(f"{API}/threads/kims{path}{sign}resource_id=kim")).status_code == 200
            denied = await client.get(f"{API}/threads/kims{path}{sign}resource_id=lee")
            assert (denied.status_code, denied.json()["code"]) == (404, "not_found")
        denied = await client.post(f"{API}/threads/kims/messages?resource_id=lee", json={"messages": MESSAGES})
        assert denied.status_code == 404
        listed = await client.get(f"{API}/threads", params={"resource_id": "kim"})
        assert [each["id"] for each in listed.json()["data"]] == ["kims"]
        assert (await client.get(f"{API}/threads?resource_id=kim&owner=lee")).json()["data"] == []

        async def hits(token: str, query: str = "") -> int:
            async with served.client(token) as caller:
                return len((await caller.get(f"{API}/threads/search?q=pump{query}")).json()["data"])

        assert [await hits("alice"), await hits("alice", "&resource_id=kim"), await hits("alice", "&owner=lee")] == [
            1,
            1,
            0,
        ]
        assert [await hits("bob"), await hits("carol"), await hits("carol", "&owner=kim")] == [0, 0, 0]
        async with served.client("carol") as carol:
            assert (await carol.post(f"{API}/threads", json={"resource_id": "kim"})).status_code == 403
            assert (await carol.get(f"{API}/threads/kims/messages")).status_code == 404
            assert (await carol.post(f"{API}/threads/kims/state", json={"state": "paused"})).status_code == 404


async def test_bad_requests_about_threads_say_what_is_wrong(serve: Serve, scripted: Scripted) -> None:
    async with serve([scripted(say("Done."))]) as served, served.client() as client:
        await client.post(f"{API}/threads", json={"id": "t"})
        for path, status in (
            ("/threads/search", 422),
            ("/threads/search?q=%20", 422),
            ("/threads/search?q=x&limit=0", 422),
            ("/threads/search?q=x&cursor=%00%27", 400),
            ("/threads/t/messages?metadata=[", 422),
            ("/threads/t/messages?role=king", 422),
            ("/threads?metadata=nope", 422),
            ("/threads?state=gone", 422),
            ("/threads/missing/messages/stats", 404),
            (f"/threads/search?q={'x' * 1001}", 400),
        ):
            response = await client.get(f"{API}{path}")
            assert response.status_code == status, (path, response.text)
        for body in ({}, {"messages": [{"role": "king"}]}, {"messages": "x"}):
            assert (await client.post(f"{API}/threads/t/messages", json=body)).status_code == 422
        king = await client.post(f"{API}/threads/t/messages", json={"messages": [{"role": "king"}]})
        assert king.json()["errors"][0]["message"] == "Invalid enum value 'king'; expected user, assistant, tool"
        king = await client.get(f"{API}/threads/t/messages?role=king")
        assert king.json()["detail"].endswith("; expected user, assistant, tool")
        orphan = {"messages": [{"role": "tool", "content": "x", "tool_call_id": "c"}]}
        assert (await client.post(f"{API}/threads/t/messages", json=orphan)).status_code == 400
        assert (await client.post(f"{API}/threads", json={"id": "search"})).status_code == 422
        assert (await client.get(f"{API}/threads/t/messages/stats")).json()["message_count"] == 0
