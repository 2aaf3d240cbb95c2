"""Subscriptions: how they end, and what a subscription to all sessions reads."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, cast

import pytest

import vaka
from tests.server.conftest import PRINCIPALS, Serve
from tests.server.test_app import Scripted
from tests.server.ws.conftest import Connect
from vaka.core.ports.store import SessionInfo, SessionPage, SessionQuery
from vaka.core.types.errors import Unavailable
from vaka.core.types.event import Event
from vaka.core.types.ids import Cursor, SessionId
from vaka.server.event_filter import EventFilter
from vaka.server.ws.outbound import OutboundQueue
from vaka.server.ws.subscriptions import AllSessionsFeed, SessionChanges, SessionFeed
from vaka.stores.memory import MemoryStore
from vaka.testing import ScriptedModel, call, say

ALICE = PRINCIPALS["alice"]


@vaka.tool
async def colour(context: vaka.ToolContext[Any]) -> str:
    """Ask for a colour."""
    return f"colour {await context.ask('Which colour?', options=['red', 'blue'])}"


async def test_a_subscription_says_when_its_session_has_ended(
    serve: Serve, scripted: Scripted, client: Connect
) -> None:
    async with serve([scripted(say("Hi."))]) as served, client(served) as socket:
        await served.service.create_session(ALICE, id="one")
        one = await socket.request("subscribe", session="one", after="now")
        everything = await socket.request("subscribe", session="*")
        two = await served.service.create_session(ALICE, id="two")
        other = await socket.request("subscribe", session="two")
        async with served.client() as http:
            assert (await http.delete(f"/api/v1/sessions/{two.id}")).status_code == 204
        deleted = await socket.control("ended")
        assert (deleted["sub"], deleted["code"]) == (other["sub"], "deleted")
        await served.service.runtime.hub.close()
        ended = [await socket.control("ended"), await socket.control("ended")]
        assert {frame["sub"]: (frame["code"], frame["cursor"]) for frame in ended} == {
            one["sub"]: ("closed", one["cursor"]),
            everything["sub"]: ("closed", ""),
        }
        assert (await socket.refused("ack", sub=one["sub"], cursor="1.1"))["code"] == "not_found"


async def test_questions_are_answered_and_approvals_remembered(
    serve: Serve, scripted: Scripted, client: Connect
) -> None:
    agent = scripted(call("colour"), call("colour"), say("Done."), tools=[colour])
    async with serve([agent], permissions=vaka.Permissions(confirm=["colour"])) as served, client(served) as socket:
        await socket.request("turn.start", session="demo", agent="assistant", input=[{"type": "text", "text": "Go."}])
        await socket.request("subscribe", session="demo")
        asked = (await socket.until("approval.requested"))[-1]["data"]["approval"]
        remember = {"scope": "session", "rule": "colour"}
        resolved = await socket.request("approval.resolve", id=asked, decision="approve", remember=remember)
        assert resolved["event"]["data"]["scope"] == "session"
        for _ in range(2):  # the second call needs no approval
            question = (await socket.until("question.asked", "approval.requested"))[-1]["data"]["question"]
            answered = await socket.request("approval.resolve", id=question, decision="answer", answer="red")
            assert answered["event"]["data"] == {"question": question, "answer": "red", "by": "alice"}
        await socket.until("turn.completed")


class Listening:
    """The queue of a subscription to all sessions, and its task."""

    def __init__(self, runtime: vaka.Runtime, *, idle_seconds: float = 30.0) -> None:
        self.queue = OutboundQueue()
        changes = SessionChanges().of(runtime)
        self.feed = AllSessionsFeed(
            runtime.hub, changes, _may_see, "s1", EventFilter(types=("input.added",)), self.queue, idle_seconds
        )
        self.task = asyncio.create_task(self.feed.run())

    async def next_input(self) -> tuple[str, str]:
        event = json.loads(await self.queue.take())["event"]
        return event["session"], event["data"]["content"][0]["text"]

    async def close(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])


def _may_see(info: SessionInfo) -> bool:
    return not info.id.startswith("hidden")


async def test_all_sessions_are_read_from_the_time_of_the_subscription_on() -> None:
    agent = vaka.Agent("assistant", model=ScriptedModel({"text": "Yes.", "repeat": True}))
    async with vaka.Runtime(store="memory:") as runtime:
        old, hidden = await runtime.open(agent, id="old"), await runtime.open(agent, id="hidden")
        await old.run("Before.")
        for number in range(100):
            await old.checkpoint(f"mark {number}")
        await asyncio.to_thread(_pass_a_millisecond, runtime)
        listening = Listening(runtime, idle_seconds=0.01)
        for session, text in ((hidden, "Hidden."), (old, "One.")):
            await session.run(text)
        for number in range(100):
            await old.checkpoint(f"later {number}")
        assert await listening.next_input() == ("old", "One.")
        await old.run("Two.")  # perhaps after the feed of the session has ended
        assert await listening.next_input() == ("old", "Two.")
        new = await runtime.open(agent, id="new")
        await new.run("Three.")
        assert await listening.next_input() == ("new", "Three.")
        await listening.close()


def _pass_a_millisecond(runtime: vaka.Runtime) -> None:
    """Return when the clock shows another millisecond than the last event has."""
    start = int(runtime.env.clock.time() * 1000)
    while int(runtime.env.clock.time() * 1000) <= start:
        continue


async def test_a_session_that_was_deleted_and_made_again_is_followed_again() -> None:
    agent = vaka.Agent("assistant", model=ScriptedModel({"text": "Yes.", "repeat": True}))
    async with vaka.Runtime(store="memory:") as runtime:
        listening = Listening(runtime)
        for text in ("One.", "Two."):
            session = await runtime.open(agent, id="same")
            await session.run(text)
            assert await listening.next_input() == ("same", text)
            await runtime.store.sessions.delete(session.id)
            runtime.hub.end_followers(session.id)
        await listening.close()


class UnreachableIndex:
    """The index of a store that cannot be reached for one search."""

    def __init__(self, store: MemoryStore) -> None:
        self._index = store.sessions
        self.failures = 0

    async def list(self, query: SessionQuery) -> SessionPage:
        if not self.failures:
            self.failures = 1
            raise Unavailable("the store cannot be reached")
        return await self._index.list(query)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._index, name)


async def test_a_search_that_fails_is_made_again() -> None:
    store = MemoryStore()
    index = UnreachableIndex(store)
    cast("Any", store).sessions = index  # stands in for the index of a database
    agent = vaka.Agent("assistant", model=ScriptedModel(say("Yes.")))
    async with vaka.Runtime(store=store) as runtime:
        listening = Listening(runtime)
        await (await runtime.open(agent, id="one")).run("Hi.")
        assert await listening.next_input() == ("one", "Hi.")
        assert index.failures == 1
        await listening.close()


class UnreadableEvents:
    """The logs of a store that cannot be read."""

    def __init__(self, store: MemoryStore) -> None:
        self._events = store.events

    async def read(self, session: SessionId, *, after: int = 0, upto: int | None = None) -> AsyncGenerator[Event]:
        async with aclosing(self._events.read(session, after=after, upto=upto)) as events:
            async for event in events:
                if event.seq:
                    raise Unavailable("the store cannot be reached")
                yield event

    def __getattr__(self, name: str) -> Any:
        return getattr(self._events, name)


async def test_an_error_of_the_store_ends_a_feed_with_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    store, queue = MemoryStore(), OutboundQueue()
    agent = vaka.Agent("assistant", model=ScriptedModel(say("Yes."), say("Yes.")))
    async with vaka.Runtime(store=store) as runtime:
        session = await runtime.open(agent, id="one")
        await session.run("Hi.")
        await asyncio.to_thread(_pass_a_millisecond, runtime)
        cast("Any", store).events = UnreadableEvents(store)
        end = await SessionFeed(runtime.hub, session.id, Cursor(), "s1", EventFilter(), queue).run()
        assert isinstance(end, Unavailable)
        listening = Listening(runtime)  # finds the session: it has changed a moment ago
        while "cannot be followed" not in caplog.text:  # noqa: ASYNC110  # a feed of all sessions goes on
            await asyncio.sleep(0)
        assert not listening.task.done()
        await listening.close()


async def test_one_subscription_of_a_connection_replays_at_a_time(serve: Serve, scripted: Scripted) -> None:
    async with serve([scripted(say("Hi."))]) as served:
        service, alice = served.service, PRINCIPALS["alice"]
        session = await service.create_session(alice, id="s")
        for number in range(20):
            await session.update(title=f"title {number}")
        head = (await service.find_session(alice, "s")).head
        queue = OutboundQueue(max_frames=10)
        hub = service.runtime.hub
        feeds = [
            SessionFeed(hub, session.id, Cursor(), f"s{number}", EventFilter(), queue, head=head) for number in (1, 2)
        ]
        tasks = [asyncio.create_task(feed.run()) for feed in feeds]
        taken = [await queue.take()]
        assert queue.pressure
        assert feeds[1].seq == 0
        while any(feed.seq < head for feed in feeds) or len(queue):
            taken.append(await queue.take())
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        subs = [frame[:9] for frame in taken if frame.startswith(b'{"sub"')]
        assert subs == [b'{"sub":"s'] * 2 * head
