"""Many clients of a server on raw sockets, in a process of their own: ``python -m bench.serving_clients``.

Prints one JSON object. A Python HTTP client for each stream would cost more than the server that is measured.
"""

import base64
import json
import os
import re
import selectors
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

FIRST_TEXT = re.compile(rb'"type":"(?:text\.delta|message\.snapshot)"')
"""A client that subscribes after the first piece gets a snapshot of what there is."""
LAST_EVENT = {"sse": b"event: stream.end", "ws": b'"type":"turn.completed"'}
MAX_SECONDS = 120.0

Json = dict[str, Any]


class StreamClient:
    """One stream: its request, what came back, and when."""

    def __init__(self, kind: str, port: int, session: str) -> None:
        self.kind = kind
        self.session = session
        self._port = port
        self.received = bytearray()
        self.sent = self.first = self.ended = 0.0
        self._searched = 0

    def open(self) -> socket.socket:
        """Connect, and send what the protocol begins with."""
        connection = socket.create_connection(("127.0.0.1", self._port))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.kind == "sse":
            body = json.dumps({"input": "hi", "agent": "adder", "stream": True}).encode()
            path = f"/api/v1/sessions/{self.session}/turns"
            connection.sendall(_head("POST", path, self._port, f"Content-Length: {len(body)}") + body)
            self.sent = time.perf_counter()
        else:
            key = base64.b64encode(os.urandom(16)).decode()
            upgrade = f"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n"
            upgrade += "Sec-WebSocket-Protocol: agent.v1+json"
            connection.sendall(_head("GET", "/api/v1/ws", self._port, upgrade, connection="Upgrade"))
        connection.setblocking(False)
        return connection

    def read(self, connection: socket.socket) -> bool:
        """Take what has come; return whether the stream goes on."""
        try:
            data = connection.recv(262_144)
        except BlockingIOError:
            return True
        now = time.perf_counter()
        self.received += data
        if self.kind == "ws" and not self.sent and b"\r\n\r\n" in self.received:
            del self.received[: self.received.index(b"\r\n\r\n") + 4]
            start = {"session": self.session, "agent": "adder", "input": "hi"}
            connection.sendall(_frame(1, "turn.start", start) + _frame(2, "subscribe", {"session": self.session}))
            self.sent = now
        start_at = max(0, self._searched - 40)
        if not self.first and FIRST_TEXT.search(self.received, start_at):
            self.first = now
        if self.received.find(LAST_EVENT[self.kind], start_at) >= 0:
            self.ended = now
        self._searched = len(self.received)
        return bool(data) and not self.ended

    def events(self) -> list[Json]:
        """Return the events, in the order in which they came."""
        if self.kind == "ws":
            return [frame["event"] for frame in _read_frames(bytes(self.received)) if "event" in frame]
        text = _dechunk(bytes(self.received).partition(b"\r\n\r\n")[2])
        return [json.loads(line) for line in re.findall(rb"^data: (.*)$", text, re.MULTILINE)]

    def is_complete(self, words: int) -> bool:
        """Whether every stored event came once, in order, and the answer is whole."""
        events = self.events()
        seqs = [event["seq"] for event in events if "seq" in event]
        ends = [event["data"]["text"] for event in events if event["type"] == "turn.completed"]
        first = seqs[0] if seqs else 0
        return seqs == list(range(first, first + len(seqs))) and ends == ["done" * words]


def _head(method: str, path: str, port: int, extra: str, connection: str = "keep-alive") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{port}", f"Connection: {connection}"]
    if method == "POST":
        lines += ["Content-Type: application/json", "Accept: text/event-stream"]
    return "\r\n".join([*lines, extra, "", ""]).encode()


def _frame(id: int, method: str, params: dict[str, str]) -> bytes:
    """Return a request as a masked text frame; the mask is zero."""
    data = json.dumps({"id": id, "method": method, "params": params}).encode()
    size = bytes([0x80 | len(data)]) if len(data) < 126 else bytes([0x80 | 126]) + struct.pack("!H", len(data))
    return b"\x81" + size + bytes(4) + data


def _read_frames(data: bytes) -> Iterator[Json]:
    at = 0
    while at + 2 <= len(data):
        opcode, size = data[at] & 0x0F, data[at + 1] & 0x7F
        at += 2
        if size == 126:
            size, at = struct.unpack_from("!H", data, at)[0], at + 2
        elif size == 127:
            size, at = struct.unpack_from("!Q", data, at)[0], at + 8
        if opcode == 1 and at + size <= len(data):
            yield json.loads(data[at : at + size])
        at += size


def _dechunk(data: bytes) -> bytes:
    found, at = bytearray(), 0
    while (end := data.find(b"\r\n", at)) >= 0 and (size := int(data[at:end], 16)):
        found += data[end + 2 : end + 2 + size]
        at = end + size + 4
    return bytes(found)


def run_clients(clients: list[StreamClient], ramp: float, warm_up: Callable[[], None]) -> None:
    """Open the streams evenly over ``ramp`` seconds and read them all to their ends."""
    warm_up()
    selector = selectors.DefaultSelector()
    begun = time.perf_counter()
    opened = 0
    while opened < len(clients) or selector.get_map():
        elapsed = time.perf_counter() - begun
        if elapsed > MAX_SECONDS:
            return
        due = min(len(clients), int(elapsed / ramp * len(clients)) + 1) if ramp else len(clients)
        if opened < due:
            selector.register(clients[opened].open(), selectors.EVENT_READ, clients[opened])
            opened += 1
        for key, _ in selector.select(0 if opened < due else 0.005):
            assert isinstance(key.fileobj, socket.socket)
            if not key.data.read(key.fileobj):
                selector.unregister(key.fileobj)
                key.fileobj.close()


def main() -> None:
    """Run ``count`` streams: ``serving_clients KIND PORT COUNT RAMP_SECONDS WORDS PREFIX``."""
    kind, port, count, ramp, words, prefix = sys.argv[1:7]
    clients = [StreamClient(kind, int(port), f"{prefix}-{number:05d}") for number in range(int(count))]
    warm = StreamClient(kind, int(port), f"{prefix}-warm")

    def warm_up() -> None:
        connection = warm.open()
        connection.setblocking(True)
        while warm.read(connection):
            continue
        connection.close()

    run_clients(clients, float(ramp), warm_up)
    waits = [(client.first - client.sent) * 1000 for client in clients if client.first]
    complete = sum(client.is_complete(int(words)) for client in clients)
    begun, ended = min(client.sent for client in clients), max(client.ended for client in clients)
    print(json.dumps({"waits": waits, "complete": complete, "seconds": ended - begun}))


if __name__ == "__main__":
    main()
