"""A request that creates a session and runs its first turn: what it reads and writes, and whose session it is."""

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import vaka
from tests.server.conftest import Serve, serve_agents
from vaka.agents.react import Agent
from vaka.core.types.ids import SessionId
from vaka.runtime.open_store import open_store
from vaka.testing import ScriptedModel, call, say

Scripted = Callable[..., Agent]

WRITES = ("append", "append_idle", "offer")


class CountedPort:
    """A port of a store that counts the calls of its methods."""

    def __init__(self, inner: Any, counts: Counter[str]) -> None:
        self._inner, self._counts = inner, counts

    def __getattr__(self, name: str) -> Any:
        if name in (*WRITES, "find", "read"):
            self._counts[name] += 1
        return getattr(self._inner, name)


@vaka.tool(effect="read")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def test_a_request_that_creates_a_session_looks_it_up_once_and_writes_four_times(tmp_path: Path) -> None:
    store = cast("Any", open_store(f"sqlite:///{tmp_path}/a.db"))
    counts: Counter[str] = Counter()
    store.events, store.sessions = CountedPort(store.events, counts), CountedPort(store.sessions, counts)
    agent = Agent("adder", model=ScriptedModel(*[call("add", a=1, b=2), say("3")] * 2), tools=[add])
    async with serve_agents([agent], store=store) as served, served.client() as client:
        for body in ({"stream": False}, {"stream": True}):
            counts.clear()
            answer = await client.post(f"/api/v1/sessions/{len(body)}{body['stream']}/turns", json=_body("Add.") | body)
            assert answer.status_code == 200
            assert counts == {"find": 1, "append": 4}
    await store.close()


async def test_the_first_event_of_a_session_names_its_owner(serve: Serve, scripted: Scripted) -> None:
    async with serve([scripted(say("Hi."))]) as served, served.client("carol") as client:
        assert (await client.post("/api/v1/sessions/s/turns", json=_body("Go.", "assistant"))).status_code == 200
        [first] = [event async for event in served.service.runtime.store.events.read(SessionId("s"), upto=1)]
        assert getattr(first.data, "owner", "") == "carol"
        assert (await client.get("/api/v1/sessions/s")).json()["owner"] == "carol"


async def test_of_two_owners_who_begin_the_same_session_at_once_one_is_refused(serve: Serve) -> None:
    agent = Agent("assistant", model=ScriptedModel(*[say("Hi.")] * 5))
    async with (
        serve([agent]) as served,
        served.client("dave") as dave,
        served.client("carol") as carol,
        served.client() as alice,
    ):
        for id in ("a", "b", "c", "d", "e"):
            path, body = f"/api/v1/sessions/{id}/turns", _body("Go.", "assistant")
            answers = await asyncio.gather(*(each.post(path, json=body) for each in (dave, carol)))
            assert sorted(answer.status_code for answer in answers) == [200, 404]
            log = (await alice.get(f"/api/v1/sessions/{id}/events")).json()["data"]
            assert [event["type"] for event in log].count("input.added") == 1


async def test_callers_who_may_see_it_share_a_session_that_they_begin_at_once(serve: Serve) -> None:
    agent = Agent("assistant", model=ScriptedModel(say("Hi."), say("Hi.")))
    async with serve([agent]) as served, served.client() as client:
        answers = await asyncio.gather(
            *(client.post("/api/v1/sessions/s/turns", json=_body(text, "assistant")) for text in ("One.", "Two."))
        )
        assert [answer.status_code for answer in answers] == [200, 200]
        log = (await client.get("/api/v1/sessions/s/events")).json()["data"]
        assert sorted(event["data"]["content"][0]["text"] for event in log if event["type"] == "input.added") == [
            "One.",
            "Two.",
        ]


async def test_of_two_servers_that_begin_the_same_session_for_two_owners_one_refuses(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    agents = [Agent("assistant", model=ScriptedModel(*[say("Hi.")] * 5)) for _ in range(2)]
    async with (
        serve_agents(agents[:1], store=url) as one,
        serve_agents(agents[1:], store=url) as other,
        one.client("dave") as dave,
        other.client("carol") as carol,
        one.client() as alice,
    ):
        for id in ("a", "b", "c", "d", "e"):
            path, body = f"/api/v1/sessions/{id}/turns", _body("Go.", "assistant")
            answers = await asyncio.gather(*(each.post(path, json=body) for each in (dave, carol)))
            codes = sorted(answer.status_code for answer in answers)
            assert codes in ([200, 403], [200, 404])
            log = (await alice.get(f"/api/v1/sessions/{id}/events")).json()["data"]
            assert [event["type"] for event in log].count("input.added") == 1


def _body(text: str, agent: str = "adder") -> dict[str, Any]:
    return {"input": text, "agent": agent}
