"""``vaka serve`` is killed while many turns run and is started again: no turn is lost, no effect is repeated."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.server_process import ServerProcess
from tests.unmeasured import without_coverage

KINDS = ("text", "read", "once", "ask")
AGENTS = '''
import asyncio
import os

import vaka
from vaka.testing import ScriptedModel, call, say, stall

RESTARTED = os.path.exists("restarted")


async def wait_for_restart(kind: str) -> None:
    with open("started", "a") as started:
        started.write(f"{kind}\\n")
    if not RESTARTED:
        await asyncio.Event().wait()


@vaka.tool(effect="read")
async def look() -> str:
    """Look at something, which a killed process has not finished."""
    await wait_for_restart("read")
    return "seen"


@vaka.tool(effect="once", timeout=2)
async def pay() -> str:
    """Pay, which must not happen twice."""
    with open("paid", "a") as paid:
        paid.write("x")
    await wait_for_restart("once")
    return "paid"


@vaka.tool
def sign() -> str:
    """Sign, after a person has agreed."""
    return "signed"


def make(name: str, *lines: object, **options: object) -> vaka.Agent:
    return vaka.Agent(name, model=ScriptedModel(*lines), **options)


text = make("text", say("It is done.") if RESTARTED else {"chunks": ["It ", "is "], "stall": 3600})
read = make("read", call("look"), say("It is seen."), tools=[look])
once = make("once", call("pay"), say("It is paid."), tools=[pay])
ask = make("ask", call("sign"), say("It is signed."), tools=[sign])
'''
TEXTS = {"text": "It is done.", "read": "It is seen.", "once": "It is paid.", "ask": "It is signed."}


async def read_events(client: httpx2.AsyncClient, session: str, after: str = "") -> AsyncIterator[Any]:
    """Yield the events of a session after a cursor, as a client does that connects again."""
    headers = {"Accept": "text/event-stream", **({"Last-Event-ID": after} if after else {})}
    async with client.stream("GET", f"/api/v1/sessions/{session}/events", headers=headers) as response:
        async for line in response.aiter_lines():
            if line.startswith("data: "):
                yield json.loads(line[6:])


class Follower:
    """A client that follows one session and counts on the log alone after a disconnect."""

    def __init__(self, kind: str, session: str) -> None:
        self.kind, self.session = kind, session
        self.events: list[Any] = []

    async def follow(self, client: httpx2.AsyncClient, *until: str) -> None:
        """Read events until one of some types, or until the server is gone."""
        try:
            after = next((event["id"] for event in reversed(self.events)), "")
            async for event in read_events(client, self.session, after):
                if "seq" in event:
                    self.events.append(event)
                    if event["type"] in until:
                        return
        except httpx2.TransportError:
            return

    @property
    def types(self) -> list[str]:
        return [event["type"] for event in self.events]


def start(folder: Path, store: str, port: int = 0) -> ServerProcess:
    env = without_coverage() | {"HOME": str(folder / "home"), "XDG_DATA_HOME": str(folder / "home")}
    env["VAKA_SERVER"] = json.dumps({"requests_per_minute": 0, "concurrent_turns": 0, "streams_per_credential": 0})
    agents = [word for kind in KINDS for word in ("--agent", f"agents.py:{kind}")]
    arguments = ("--insecure", "--no-ui", "--store", store, "--confirm", "sign")
    return ServerProcess(folder, env, *agents, *arguments, port=port)


async def begin_turns(client: httpx2.AsyncClient, followers: list[Follower]) -> None:
    """Start a turn in each session, and read until each hangs where the kill finds it."""

    async def begin(follower: Follower) -> None:
        body = {"input": "Go.", "agent": follower.kind, "background": True}
        answer = await client.post(f"/api/v1/sessions/{follower.session}/turns", json=body)
        assert answer.status_code == 202, answer.text
        until = {"text": "step.started", "read": "tool.started", "once": "tool.started", "ask": "approval.requested"}
        await follower.follow(client, until[follower.kind])

    await asyncio.gather(*map(begin, followers))


async def decide(client: httpx2.AsyncClient, decision: dict[str, Any]) -> None:
    """Approve what waited, and say of a payment whose outcome is unknown that it happened."""
    answer: dict[str, Any] = {"decision": "approve"}
    if decision["kind"] != "approval":
        answer = {"decision": "answer", "answer": {"happened": True, "result": "paid"}}
    done = await client.post(f"/api/v1/approvals/{decision['id']}/resolve", json=answer)
    assert done.status_code == 200, done.text


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.exhaustive)])
def store(request: pytest.FixtureRequest) -> str:
    """The URL of a store of each kind."""
    url: str = request.getfixturevalue("postgres_dsn") if request.param == "postgres" else "sqlite:///vaka.db"
    return url


@pytest.mark.parametrize(
    "count", [pytest.param(24, id="24 turns"), pytest.param(200, id="200 turns", marks=pytest.mark.exhaustive)]
)
async def test_turns_of_a_killed_server_end_after_its_restart(tmp_path: Path, store: str, count: int) -> None:
    (tmp_path / "agents.py").write_text(AGENTS)
    followers = [Follower(kind, f"{kind}-{index}") for index in range(count // len(KINDS)) for kind in KINDS]
    timeout = httpx2.Timeout(100)
    limits = httpx2.Limits(max_connections=None)
    with start(tmp_path, store) as server:
        async with httpx2.AsyncClient(base_url=server.url, timeout=timeout, limits=limits) as client:
            await begin_turns(client, followers)
            following = [asyncio.create_task(follower.follow(client)) for follower in followers]
            server.kill()
            await asyncio.gather(*following)
    (tmp_path / "restarted").touch()
    with start(tmp_path, store, server.port) as server:
        async with httpx2.AsyncClient(base_url=server.url, timeout=timeout, limits=limits) as client:
            waiting = [follower for follower in followers if follower.kind == "ask"]
            for row in (await client.get("/api/v1/approvals", params={"limit": 200})).json()["data"]:
                await decide(client, row)
            await asyncio.gather(*(follower.follow(client, "turn.completed") for follower in waiting))
            rest = [follower for follower in followers if follower.kind != "ask"]
            await asyncio.gather(
                *(
                    follower.follow(client, "turn.completed", "question.asked", "approval.requested")
                    for follower in rest
                )
            )
            for row in (await client.get("/api/v1/approvals", params={"limit": 200})).json()["data"]:
                await decide(client, row)
            await asyncio.gather(
                *(
                    follower.follow(client, "turn.completed")
                    for follower in rest
                    if follower.types[-1] != "turn.completed"
                )
            )
    for follower in followers:
        assert [event["seq"] for event in follower.events] == list(range(1, len(follower.events) + 1))
        assert follower.events[-1]["data"]["text"] == TEXTS[follower.kind]
        assert Counter(follower.types)["turn.completed"] == 1
    assert (tmp_path / "paid").stat().st_size == count // len(KINDS)
