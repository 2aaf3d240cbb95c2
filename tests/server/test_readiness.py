"""Readiness with a database that is down or does not answer, and what a caller without credentials learns of it."""

import asyncio
import logging
import socket
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager

import httpx2
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from vaka.agents.react import Agent
from vaka.runtime.options import Environment
from vaka.runtime.runtime import Runtime
from vaka.server.app import open_service
from vaka.server.health import READY_SECONDS, StoreProbe
from vaka.server.kit.principal import LOCAL_PRINCIPAL
from vaka.server.listen import StoppableServer, open_socket
from vaka.stores.postgres import PostgresStore
from vaka.testing import say
from vaka.testing.clock import FakeClock

Scripted = Callable[..., Agent]
KEY = f"ak_abcdefgh_{'x' * 43}"
HIDDEN = "the caller cannot be authenticated now; the log of the server has the reason"
DSN = "postgresql://dbuser:dbpassword@127.0.0.1:{port}/dbname"  # not a secret


@pytest.fixture
def silent_port() -> Generator[int]:
    """Return the port of a database that accepts connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@asynccontextmanager
async def serve_on(dsn: str, agent: Agent) -> AsyncGenerator[httpx2.AsyncClient]:
    listener = open_socket("127.0.0.1", 0)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    store = PostgresStore(dsn, patience=0.1)
    async with Runtime(store=store) as runtime:
        server = StoppableServer(await open_service(runtime, [agent]))
        serving = asyncio.create_task(server.serve([listener]))
        try:
            async with httpx2.AsyncClient(base_url=url, timeout=60) as client:
                yield client
        finally:
            server.should_exit = True
            await serving
            await store.close()


async def close_reason(url: str, headers: dict[str, str]) -> str:
    """Return why a server closes a WebSocket."""
    async with connect(url, subprotocols=[Subprotocol("agent.v1+json")], additional_headers=headers) as connection:
        with pytest.raises(ConnectionClosed) as closed:
            await connection.recv()
    assert closed.value.rcvd is not None
    return closed.value.rcvd.reason


async def test_a_probe_does_not_wait_longer_than_its_limit_for_a_silent_database(silent_port: int) -> None:
    clock = FakeClock()
    async with Runtime(store=DSN.format(port=silent_port), environment=Environment(clock=clock)) as runtime:
        probe = StoreProbe(runtime)
        async with probe.run():
            probes = [asyncio.create_task(probe.find_problem()) for _ in range(3)]
            await clock.wait_for_sleeps(3)
            clock.advance(READY_SECONDS - 0.1)
            await asyncio.sleep(0)
            assert not any(task.done() for task in probes)
            clock.advance(0.1)
            assert await asyncio.gather(*probes) == ["timeout"] * 3
            assert clock.sleep_count == 0


async def test_a_probe_that_is_answered_later_is_ready(tmp_path: object) -> None:
    clock = FakeClock()
    async with Runtime(store=f"sqlite:///{tmp_path}/vaka.db", environment=Environment(clock=clock)) as runtime:
        probe = StoreProbe(runtime)
        async with probe.run():
            assert [await probe.find_problem(), await probe.find_problem()] == ["", ""]


async def test_callers_without_credentials_learn_nothing_of_a_database_that_is_down(
    scripted: Scripted, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]  # nothing listens there after this block
    monkeypatch.setenv("VAKA_SERVER_PEPPER", "p" * 32)  # no pepper is read from the database
    caplog.set_level(logging.DEBUG)
    async with serve_on(DSN.format(port=port), scripted(say("Hi."))) as client:
        bearer, key = {"Authorization": f"Bearer {KEY}"}, {"X-Api-Key": KEY}
        ticket = f"/console/login?ticket=vkl_{'0' * 16}_{'x' * 43}"
        asked: list[tuple[str, dict[str, str]]] = [
            ("/readyz", {}),
            ("/healthz", {}),
            ("/api/v1/sessions", bearer),
            ("/v1/models", bearer),
        ]
        asked += [("/api/v1/me", key), (ticket, {})]
        reading = asyncio.gather(*(client.get(path, headers=headers) for path, headers in asked))
        address = str(client.base_url).rstrip("/").replace("http", "ws", 1)
        reason = await close_reason(f"{address}/api/v1/ws", bearer)
        answers = await reading
        texts = [answer.text for answer in answers] + [reason]
    assert [answer.status_code for answer in answers] == [503, 200, 503, 503, 503, 503]
    assert (answers[0].json()["status"], reason) == ("unavailable", HIDDEN)
    for secret in ("dbuser", "dbname", "dbpassword", str(port)):
        assert not [text for text in texts if secret in text], secret
    assert "dbpassword" not in caplog.text
    assert "dbname" in caplog.text  # the operator reads in the log which database is down


def test_the_local_principal_is_an_operator() -> None:
    assert LOCAL_PRINCIPAL.may("operator")
