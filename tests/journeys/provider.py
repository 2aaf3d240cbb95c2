"""A model provider: an HTTP server of the standard library that speaks four APIs and records what it receives."""

import contextlib
import json
import socket
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from tests.journeys.answers import PATIENCE, Answer, Failure, Pause
from tests.journeys.wires import WIRES

MODELS = {
    "chat": "openai-chat/tide-1",
    "responses": "openai/tide-1",
    "anthropic": "anthropic/tide-1",
    "gemini": "gemini/tide-1",
}
"""A name of a model for each API."""


@dataclass(frozen=True)
class Received:
    """A request as it arrived."""

    path: str
    headers: dict[str, str]
    raw: bytes

    @property
    def body(self) -> dict[str, Any]:
        return dict(json.loads(self.raw))

    @property
    def text(self) -> str:
        """The whole body as text, without escapes for characters that are not ASCII."""
        return json.dumps(self.body, ensure_ascii=False)


class Script:
    """The answers for the requests that contain a phrase, in order, and these requests."""

    def __init__(self, phrase: str, answers: tuple[Answer | Failure, ...]) -> None:
        self.phrase = phrase
        self.requests: list[Received] = []
        self._answers = answers
        self._arrived = threading.Condition()

    def take(self, request: Received) -> Answer | Failure:
        """Record a request and return its answer."""
        with self._arrived:
            self.requests.append(request)
            self._arrived.notify_all()
            number = len(self.requests)
        if number > len(self._answers):
            return Failure(400, f"the script of {self.phrase!r} has no answer {number}")
        return self._answers[number - 1]

    def wait_for(self, count: int) -> None:
        """Wait until so many requests have arrived."""
        with self._arrived:
            arrived = self._arrived.wait_for(lambda: len(self.requests) >= count, PATIENCE)
        assert arrived, f"{len(self.requests)} of {count} requests arrived for {self.phrase!r}"

    def release(self) -> None:
        """Open all pauses of the answers."""
        for answer in self._answers:
            for piece in answer.pieces if isinstance(answer, Answer) else ():
                if isinstance(piece, Pause):
                    piece.open()


class Provider:
    """The server. A request gets the next answer of the first script with a phrase that it contains."""

    def __init__(self) -> None:
        self.scripts: list[Script] = []
        self.unexpected: list[Received] = []
        """Requests that no script answers."""
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self.port: int = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for script in self.scripts:
            script.release()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def environment(self) -> dict[str, str]:
        """The variables that lead vaka to this provider, with keys that it must send."""
        return {
            "OPENAI_BASE_URL": f"{self.url}/v1",
            "OPENAI_API_KEY": "journey-openai-key",
            "ANTHROPIC_BASE_URL": self.url,
            "ANTHROPIC_API_KEY": "journey-anthropic-key",
            "GEMINI_BASE_URL": self.url,
            "GEMINI_API_KEY": "journey-gemini-key",
        }

    def script(self, phrase: str, *answers: Answer | Failure) -> Script:
        """Answer the requests that contain a phrase."""
        made = Script(phrase, answers)
        self.scripts.append(made)
        return made

    def answer(self, request: Received) -> Answer | Failure:
        """Record a request and return its answer."""
        text = request.text
        for script in self.scripts:
            if script.phrase in text:
                return script.take(request)
        self.unexpected.append(request)
        return Failure(400, "no script has a phrase of this request")


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, provider: Provider) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.provider = provider


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):  # a client that was killed resets its connections
            super().handle()

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers["content-length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Received(self.path, headers, raw)
        path = urlsplit(self.path).path
        wire = next((wire for end, wire in WIRES.items() if path.endswith(end)), None)
        if wire is None:
            self._send_json(404, {"error": {"message": f"there is no {path}"}}, {})
            return
        stream, error = wire
        assert isinstance(self.server, _Server)
        answer = self.server.provider.answer(request)
        if isinstance(answer, Failure):
            self._send_json(answer.status, error(answer), dict(answer.headers))
            return
        with contextlib.suppress(OSError):  # a client that was killed reads no more
            self._send_stream(stream(answer, {"model": "", **request.body}), answer)

    def _send_json(self, status: int, body: Any, headers: dict[str, str]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"content-type": "application/json", **headers}.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _send_stream(self, stream: Any, answer: Answer) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for part in stream:
            if isinstance(part, Pause):
                part.hold()
            else:
                self.wfile.write(b"%x\r\n%b\r\n" % (len(part), part))
        if answer.cut:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
        else:
            self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *args: object) -> None:
        """Write no log: the scripts have the requests."""
