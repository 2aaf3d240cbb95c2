"""JSON-RPC on lines: whatever a peer sends, each request has one response and the connection goes on."""

import asyncio
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from vaka.server import json_rpc
from vaka.server.json_rpc import JsonObject, JsonRpcConnection, JsonRpcError, RpcReply

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
messages = st.dictionaries(st.sampled_from(["jsonrpc", "id", "method", "params", "result", "error", "x"]), values)
lines = st.one_of(
    st.binary(max_size=40), values.map(json.dumps).map(str.encode), messages.map(json.dumps).map(str.encode)
)


class Peer:
    """Sends lines and keeps what comes back."""

    def __init__(self, *sent: bytes) -> None:
        self._lines = [*sent]
        self.received: list[Any] = []
        self.done = asyncio.Event()

    async def read(self, limit: int) -> tuple[bytes, int] | None:
        if not self._lines:
            await self.done.wait()
            return None
        line = self._lines.pop(0)
        return line[:limit], len(line)

    async def write(self, line: bytes) -> None:
        message = json.loads(line)
        self.received.append(message)
        if message.get("id") == "last":
            self.done.set()


async def handle(method: str, params: JsonObject) -> RpcReply | None:
    if method == "last":
        return RpcReply({"params": params}, (("after", {}),))
    if method == "fail":
        raise JsonRpcError(1, "no", {"why": "asked"})
    raise JsonRpcError(json_rpc.METHOD_NOT_FOUND, f"there is no method {method!r}")


async def converse(*sent: bytes) -> list[Any]:
    """Return what comes back for some lines and a last request."""
    peer = Peer(*(line for each in sent for line in each.splitlines()), b'{"id": "last", "method": "last"}')
    await asyncio.wait_for(JsonRpcConnection(peer.read, peer.write, handle).serve(), 30)
    return peer.received


@given(st.lists(lines, max_size=5))
def test_no_line_ends_the_connection(sent: list[bytes]) -> None:
    received = asyncio.run(converse(*sent))
    (last,) = [message for message in received if message.get("id") == "last" and "result" in message]
    assert last["result"] == {"params": {}}
    assert all(message["jsonrpc"] == "2.0" for message in received)
    assert all("error" in message for message in received if message is not last and message.get("method") != "after")


async def test_each_request_has_one_response_and_a_notification_none() -> None:
    requests = [b'{"id": %d, "method": "fail"}' % number for number in range(5)]
    received = await converse(*requests, b'{"method": "fail"}', b'{"method": "unknown"}')
    answered = {message["id"]: message["error"] for message in received if "error" in message}
    assert answered == {id: {"code": 1, "message": "no", "data": {"why": "asked"}} for id in range(5)}


async def test_a_request_beyond_the_limit_is_refused() -> None:
    hanging = asyncio.Event()

    async def wait(method: str, params: JsonObject) -> None:
        await hanging.wait()

    count = json_rpc.MAX_RUNNING
    peer = Peer(*(b'{"id": %d, "method": "m"}' % number for number in range(count)), b'{"id": "last", "method": "m"}')
    await asyncio.wait_for(JsonRpcConnection(peer.read, peer.write, wait).serve(), 30)
    (refused,) = peer.received
    assert refused["error"] == {
        "code": -32603,
        "message": "1000 requests are handled already; wait for a result",
    }
