"""The events of a session: pages of the log, and streams that begin at a cursor."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.server.conftest import Serve
from tests.server.rest.test_turns import API, deploy, read_frames, start
from vaka.agents.react import Agent
from vaka.config.options import Permissions
from vaka.testing import call, say

Scripted = Callable[..., Agent]
SSE = {"Accept": "text/event-stream"}


class LiveFrames:
    """The frames of an open event stream, one after the other."""

    def __init__(self, response: httpx2.Response) -> None:
        self._text, self._chunks = "", response.aiter_text()

    async def next(self) -> dict[str, Any]:
        while True:
            while "\n\n" in self._text:
                block, _, self._text = self._text.partition("\n\n")
                if frames := read_frames(block):
                    return frames[0]
            self._text += await anext(self._chunks)

    async def read_until(self, type: str) -> list[dict[str, Any]]:
        frames = [await self.next()]
        while frames[-1]["_name"] != type:
            frames.append(await self.next())
        return frames


@asynccontextmanager
async def follow(
    client: httpx2.AsyncClient, session: str = "s", headers: dict[str, str] | None = None, **query: Any
) -> AsyncGenerator[LiveFrames]:
    path = f"{API}/sessions/{session}/events"
    async with client.stream("GET", path, params=query, headers={**SSE, **(headers or {})}) as response:
        assert response.status_code == 200
        yield LiveFrames(response)


async def test_the_log_is_read_in_pages_of_stored_bytes(serve: Serve, scripted: Scripted) -> None:
    async with serve([scripted(say("Hi."))]) as served, served.client() as client:
        await start(client)
        whole = (await client.get(f"{API}/sessions/s/events")).json()
        assert [event["seq"] for event in whole["data"]] == list(range(1, len(whole["data"]) + 1))
        assert (whole["has_more"], whole["head"]) == (False, whole["data"][-1]["id"])
        data: list[Any] = []
        page: dict[str, Any] = {"next_cursor": "", "has_more": True}
        while page["has_more"]:
            query = {"limit": 3, "after": page["next_cursor"]}
            page = (await client.get(f"{API}/sessions/s/events", params=query)).json()
            data += page["data"]
        assert data == whole["data"]
        assert (await client.get(f"{API}/sessions/s/events?after=now")).json()["data"] == []
        lines = (await client.get(f"{API}/sessions/s/export")).text.splitlines()
        assert len(lines) == len(data)
        bad = await client.get(f"{API}/sessions/s/events?after=yesterday")
        assert (bad.status_code, bad.json()["code"]) == (400, "invalid_input")
        assert (await client.get(f"{API}/sessions/s/events?limit=0")).status_code == 422


async def test_events_are_selected_by_channel_type_and_agent(serve: Serve, scripted: Scripted) -> None:
    async with serve([scripted(call("deploy"), say("Hi."), tools=[deploy])]) as served, served.client() as client:
        await start(client)

        async def types(**query: Any) -> list[str]:
            page = (await client.get(f"{API}/sessions/s/events", params=query)).json()
            return [event["type"] for event in page["data"]]

        assert set(await types(types="tool.completed,turn.completed")) == {"tool.completed", "turn.completed"}
        assert "tool.completed" not in await types(channels="control")
        assert await types(path="agent-9") == []
        one = (await client.get(f"{API}/sessions/s/events", params={"types": "turn.completed", "limit": 1})).json()
        assert one["next_cursor"] == one["data"][0]["id"]
        async with follow(client, types="turn.started,turn.completed") as frames:
            assert [frame["type"] for frame in await frames.read_until("turn.completed")] == [
                "turn.started",
                "turn.completed",
            ]


async def test_a_follower_gets_stored_events_then_new_ones_and_goes_on_at_its_cursor(
    serve: Serve, scripted: Scripted
) -> None:
    async with serve([scripted(say("One."), say("Two."), say("Three."))]) as served, served.client() as client:
        await start(client)
        async with follow(client) as frames:
            first = await frames.read_until("turn.completed")
            assert [frame["_id"] for frame in first] == [f"1.{seq}" for seq in range(1, len(first) + 1)]
            turn = asyncio.create_task(start(client))
            second = await frames.read_until("turn.completed")
            assert "".join(frame["data"]["text"] for frame in second if frame["type"] == "text.delta") == "Two."
            await turn
        await start(client)
        last = second[-1]["_id"]
        async with follow(client, headers={"Last-Event-ID": last}, after="1.1") as frames:
            third = await frames.read_until("turn.completed")
            assert int(third[0]["_id"].partition(".")[2]) == int(last.partition(".")[2]) + 1
        async with follow(client, after="now") as frames:
            turn = asyncio.create_task(start(client, input="Four?"))
            assert (await frames.next())["type"] in ("input.added", "turn.started")
            await turn


async def test_a_cursor_of_another_log_resets_the_reader(serve: Serve, scripted: Scripted) -> None:
    async with serve([scripted(say("One."), say("Two."))]) as served, served.client() as client:
        await start(client, "s")
        await start(client, "other")
        for cursor in ("1.900", "7.2"):
            page = (await client.get(f"{API}/sessions/s/events", params={"after": cursor})).json()
            assert page["data"][0]["type"] == "stream.reset"
            assert page["data"][1]["seq"] == 1
            async with follow(client, headers={"Last-Event-ID": cursor}) as frames:
                assert (await frames.next())["type"] == "stream.reset"
                assert (await frames.next())["seq"] == 1
        async with follow(client, headers={"Last-Event-ID": "1.2"}) as frames:
            assert {frame["session"] for frame in await frames.read_until("turn.completed")} == {"s"}


async def test_followers_end_when_the_server_drains(serve: Serve, scripted: Scripted) -> None:
    async with serve([scripted(say("One."))]) as served, served.client() as client:
        await start(client)
        async with client.stream("GET", f"{API}/sessions/s/events", headers=SSE) as response:
            frames = LiveFrames(response)
            await frames.read_until("turn.completed")
            served.service.drain()
            last = await frames.next()
            assert (last["type"], last["data"]) == ("stream.end", {"reason": "draining"})
            with pytest.raises(StopAsyncIteration):
                await frames.next()
        refused = await start(client)
        assert (refused.status_code, refused.json()["code"]) == (503, "draining")


async def test_a_follower_that_comes_while_the_server_stops_is_sent_on(serve: Serve, scripted: Scripted) -> None:
    """Its connection was kept open, so the port that is closed already does not keep it away."""
    async with serve([scripted(say("One."))]) as served, served.client() as client:
        await start(client)
        served.service.drain()
        async with asyncio.timeout(60):
            ended = await client.get(f"{API}/sessions/s/events", headers=SSE)
            feed = await client.get(f"{API}/approvals", headers=SSE)
        events = [line for line in ended.text.splitlines() if line.startswith("event: ")]
        assert (events, '"draining"' in ended.text) == (["event: stream.end"], True)
        assert (feed.status_code, "event:" in feed.text) == (200, False)
        assert len(served.service.streams) == 0


async def test_followers_of_a_deleted_session_end(serve: Serve, scripted: Scripted) -> None:
    async with serve([scripted(say("One."))]) as served, served.client() as client:
        await start(client)
        async with follow(client) as frames:
            await frames.read_until("turn.completed")
            assert (await client.delete(f"{API}/sessions/s")).status_code == 204
            last = await frames.next()
            assert (last["type"], last["data"]) == ("stream.end", {"reason": "deleted"})


async def test_a_session_is_followed_and_decided_at_another_process(
    serve: Serve, scripted: Scripted, tmp_path: Path
) -> None:
    store = f"sqlite:///{tmp_path}/vaka.db"
    agent = scripted(call("deploy"), say("Done."), tools=[deploy])
    async with (
        serve([agent], store=store, permissions=Permissions(confirm=["deploy"])) as one,
        serve([scripted(tools=[deploy])], store=store, permissions=Permissions(confirm=["deploy"])) as other,
        one.client() as here,
        other.client() as there,
    ):
        turn = (await start(here)).json()
        async with follow(there) as frames:
            asked = (await frames.read_until("approval.requested"))[-1]
            path = f"{API}/approvals/{asked['data']['approval']}/resolve"
            assert (await there.post(path, json={"decision": "approve"})).status_code == 200
            ended = (await frames.read_until("turn.completed"))[-1]
            assert ended["data"]["text"] == "Done."
        assert (await there.post(f"{API}/sessions/s/turns/{turn['id']}/wait")).json()["text"] == "Done."
        assert (await there.get(f"{API}/sessions/s/turns")).json()["data"][0]["status"] == "completed"


async def test_the_head_of_a_stream_has_no_body(serve: Serve, scripted: Scripted) -> None:
    async with serve([scripted(say("Hi."))]) as served, served.client() as client:
        await client.post(f"{API}/sessions", json={"id": "s"})
        head = await client.head(f"{API}/sessions/s/events", headers={"Accept": "text/event-stream"})
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["content-type"].startswith("text/event-stream")
        assert len(served.service.streams) == 0
