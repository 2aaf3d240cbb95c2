"""The socket of a server."""

import asyncio
import socket

import pytest

from tests.faults.asyncio_reports import cancel_after, nothing_reported
from vaka.agents.react import Agent
from vaka.config.options import Models
from vaka.core.types.errors import ConfigError, ModelUnavailable
from vaka.runtime.runtime import Runtime
from vaka.server.listen import close_in_time, open_socket
from vaka.stores.memory import MemoryStore
from vaka.testing.models import ScriptedModel, say


def test_a_connection_sends_small_answers_at_once() -> None:
    with open_socket("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        listener.setblocking(True)
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_an_address_in_use_is_named() -> None:
    with open_socket("127.0.0.1", 0) as listener, pytest.raises(ConfigError, match="choose another --port"):
        open_socket(*listener.getsockname())


class Unclosable(ScriptedModel):
    """A model whose connection cannot be closed, which takes until ``lost`` is set to find out."""

    def __init__(self) -> None:
        super().__init__(say("Hi."))
        self.lost = asyncio.Event()

    async def close(self) -> None:
        await self.lost.wait()
        raise ModelUnavailable("the connection is lost")


async def start_runtime(model: Unclosable) -> Runtime:
    runtime = Runtime(store=MemoryStore(), models=Models(factory=lambda: model))
    await (await runtime.open(Agent("captain"))).run("Go.")
    return runtime


async def test_the_error_of_closing_a_runtime_is_raised() -> None:
    model = Unclosable()
    runtime = await start_runtime(model)
    model.lost.set()
    with pytest.raises(ModelUnavailable, match="the connection is lost"):
        await close_in_time(runtime, None)


async def test_the_error_of_closing_is_not_reported_when_its_waiter_is_cancelled() -> None:
    model = Unclosable()
    async with nothing_reported():
        runtime = await start_runtime(model)
        await cancel_after(2, runtime.close())
        (closing,) = asyncio.all_tasks() - {asyncio.current_task()}
        model.lost.set()
        await asyncio.wait([closing])
        del runtime, closing
