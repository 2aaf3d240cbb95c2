"""A server process that streams answers of given lengths: ``python -m bench.http_delta_server``.

It prints its port. ``/w10000-b20/v1/…`` asks for ten thousand words with twenty events in a segment, segments far
enough apart not to arrive as one; ``/w10000-b1-fast/…`` for one event in a segment as fast as they can be sent;
``/tick-w50-p20/…`` for fifty words, one every twenty milliseconds, each the time at which it was sent. The bytes are
those of ``vaka.testing.wires``, made before anything is sent."""

import heapq
import itertools
import re
import socket
import threading
import time
from functools import cache

from vaka.testing.wires import WIRE_FORMATS, parse_answer

WORD = " a word"
SECONDS_BETWEEN_SEGMENTS = {1: 0.00012, 20: 0.0008}
"""Seconds between two segments, by their number of events: a fast reader receives each separately."""
BODY = {"model": "m", "stream": True, "stream_options": {"include_usage": True}}
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
TIME_PLACEHOLDER = "0000000000000000"


def encode_chunk(data: bytes) -> bytes:
    """Return a chunk of an HTTP body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


@cache
def segments_of(end: str, words: int, burst: int) -> list[bytes]:
    """Return the segments of an answer."""
    events = WIRE_FORMATS[end].render(parse_answer({"chunks": [WORD] * words}), BODY)
    return [encode_chunk(b"".join(events[at : at + burst])) for at in range(0, len(events), burst)]


@cache
def timed_events_of(end: str, words: int) -> list[bytes]:
    """Return the events of an answer whose words are placeholders for the time."""
    return WIRE_FORMATS[end].render(parse_answer({"chunks": [TIME_PLACEHOLDER] * words}), BODY)


def send_segments(line: socket.socket, end: str, words: int, burst: int, pace: float) -> None:
    """Send an answer segment by segment."""
    due = time.perf_counter()
    for segment in segments_of(end, words, burst):
        line.sendall(segment)
        due = max(due, time.perf_counter() - pace) + pace
        while time.perf_counter() < due:
            pass
    line.sendall(b"0\r\n\r\n")


class Ticker(threading.Thread):
    """Sends the words of all timed answers when they are due, in one thread."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._due: list[tuple[float, int, TimedAnswer]] = []
        self._more = threading.Condition()
        self._count = itertools.count()

    def add(self, answer: "TimedAnswer") -> None:
        with self._more:
            heapq.heappush(self._due, (time.monotonic() + answer.pause, next(self._count), answer))
            self._more.notify()

    def run(self) -> None:
        while True:
            with self._more:
                while not self._due or self._due[0][0] > time.monotonic():
                    self._more.wait(self._due[0][0] - time.monotonic() if self._due else None)
                due, _, answer = heapq.heappop(self._due)
            if answer.send():
                with self._more:
                    heapq.heappush(self._due, (due + answer.pause, next(self._count), answer))


class TimedAnswer:
    """An answer that is sent word by word, each word the time of sending."""

    def __init__(self, line: socket.socket, end: str, words: int, pause: float) -> None:
        self.pause, self._line = pause, line
        self._left = iter(timed_events_of(end, words))
        self.finished_event = threading.Event()

    def send(self) -> bool:
        """Send the next word with the bytes before it; return whether there are more."""
        mark = TIME_PLACEHOLDER.encode()
        try:
            for event in self._left:
                self._line.sendall(encode_chunk(event.replace(mark, b"%016d" % time.monotonic_ns())))
                if mark in event:
                    return True
            self._line.sendall(b"0\r\n\r\n")
        except OSError:
            pass
        self.finished_event.set()
        return False


TICKER = Ticker()


def serve(line: socket.socket) -> None:
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    data = b""
    with line:
        while True:
            while b"\r\n\r\n" not in data:
                more = line.recv(65536)
                if not more:
                    return
                data += more
            head, _, data = data.partition(b"\r\n\r\n")
            length = re.search(rb"(?i)content-length: *(\d+)", head)
            wanted = int(length[1]) if length else 0
            while len(data) < wanted:
                data += line.recv(65536)
            data = data[wanted:]
            send_answer(line, head.split(b" ", 2)[1].decode())


def send_answer(line: socket.socket, path: str) -> None:
    end = next(end for end in WIRE_FORMATS if end in path)
    line.sendall(HEAD)
    asked = re.match(r"/tick-w(\d+)-p(\d+)/", path)
    if asked:
        ticking_answer = TimedAnswer(line, end, int(asked[1]), int(asked[2]) / 1000)
        TICKER.add(ticking_answer)
        ticking_answer.finished_event.wait()
        return
    asked = re.match(r"/w(\d+)-b(\d+)(-fast)?/", path)
    assert asked is not None
    words, burst = int(asked[1]), int(asked[2])
    send_segments(line, end, words, burst, 0.0 if asked[3] else SECONDS_BETWEEN_SEGMENTS[burst])


def serve_until_closed(line: socket.socket) -> None:
    """Serve a connection until the client closes it."""
    try:
        serve(line)
    except OSError:
        return


def main() -> None:
    TICKER.start()
    with socket.create_server(("127.0.0.1", 0), backlog=256) as server:
        print(server.getsockname()[1], flush=True)
        while True:
            line, _ = server.accept()
            threading.Thread(target=serve_until_closed, args=(line,), daemon=True).start()


if __name__ == "__main__":
    main()
