"""Requests to a server with the standard library: JSON, and streams of server-sent events."""

import http.client
import json
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from tests.journeys.answers import PATIENCE


@dataclass(frozen=True)
class Reply:
    """A response that was read to its end."""

    status: int
    headers: dict[str, str]
    raw: bytes

    @property
    def body(self) -> Any:
        return json.loads(self.raw)

    @property
    def text(self) -> str:
        return self.raw.decode()


@dataclass(frozen=True)
class ServerSentEvent:
    """A frame of a stream. ``data`` is its text."""

    kind: str
    data: str
    id: str = ""

    @property
    def body(self) -> Any:
        return json.loads(self.data)


class Web:
    """A server and a key for it."""

    def __init__(self, url: str, key: str = "") -> None:
        self.url, self.key = url, key

    def with_key(self, key: str) -> "Web":
        """Return the same server for another caller."""
        return Web(self.url, key)

    def request(self, method: str, path: str, body: Any = None, **headers: str) -> Reply:
        """Send a request; underscores in the names of headers become hyphens."""
        with self._exchange(method, path, body, headers) as response:
            return Reply(response.status, _headers_of(response), response.read())

    def post(self, path: str, body: Any, **headers: str) -> Any:
        """Send JSON and return the JSON of a success."""
        reply = self.request("POST", path, body, **headers)
        assert reply.status < 300, f"{path}: {reply.status} {reply.text}"
        return reply.body if reply.raw else None

    def get(self, path: str, **headers: str) -> Any:
        reply = self.request("GET", path, **headers)
        assert reply.status < 300, f"{path}: {reply.status} {reply.text}"
        return reply.body

    @contextmanager
    def stream(self, method: str, path: str, body: Any = None, **headers: str) -> Generator[Iterator[ServerSentEvent]]:
        """Open a stream of server-sent events."""
        accept = {"accept": "text/event-stream", **headers}
        with self._exchange(method, path, body, accept) as response:
            assert response.status == 200, f"{path}: {response.status} {response.read().decode()}"
            yield _read_events(response)

    @contextmanager
    def _exchange(
        self, method: str, path: str, body: Any, headers: Mapping[str, str]
    ) -> Generator[http.client.HTTPResponse]:
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=PATIENCE)
        sent = {
            "content-type": "application/json",
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        if self.key:
            sent.setdefault("authorization", f"Bearer {self.key}")
        try:
            connection.request(method, path, None if body is None else json.dumps(body), sent)
            with connection.getresponse() as response:
                yield response
        finally:
            connection.close()


def _headers_of(response: http.client.HTTPResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in response.getheaders()}


def _read_events(response: http.client.HTTPResponse) -> Iterator[ServerSentEvent]:
    fields: dict[str, list[str]] = {}
    for line in response:
        text = line.decode().rstrip("\r\n")
        if text:
            name, _, value = text.partition(":")
            fields.setdefault(name, []).append(value.removeprefix(" "))
        else:
            if "data" in fields:
                kind, id = fields.get("event", ["message"])[-1], fields.get("id", [""])[-1]
                yield ServerSentEvent(kind, "\n".join(fields["data"]), id)
            fields = {}
