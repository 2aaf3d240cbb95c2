"""The path of a request in the access log: it has no secrets, and a long one costs little."""

import msgspec
import pytest
from starlette.types import Message, Receive, Scope, Send

from vaka.server.access_log import MAX_PATH_LENGTH, MAX_REDACTED_LENGTH, AccessLog
from vaka.testing.clock import FakeClock

SECRET = "canary-" + "5" * 40


async def answer_nothing(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 401, "headers": []})
    await send({"type": "http.response.body", "body": b""})


class PathReader:
    """Sends requests and returns the path of each line; counts the characters that were searched for secrets."""

    def __init__(self) -> None:
        self.searched = 0
        self._lines: list[bytes] = []
        self._log = AccessLog(answer_nothing, self._lines.append, FakeClock(), self._redact)

    def _redact(self, text: str) -> str:
        self.searched += len(text)
        return text.replace(SECRET, "[redacted]")

    async def path_of(self, path: str) -> str:
        async def receive() -> Message:
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            pass

        scope: Scope = {"type": "http", "method": "GET", "path": path, "headers": [], "client": None}
        await self._log(scope, receive, send)
        return str(msgspec.json.decode(self._lines[-1])["path"])

    def refused_path(self, path: str) -> str:
        self._log.log_refusal("http", "GET", path, 431, 0, "")
        return str(msgspec.json.decode(self._lines[-1])["path"])


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/api/v1/sessions/s", "/api/v1/sessions/s"),
        (f"/api/{SECRET}/turns", "/api/[redacted]/turns"),
        ("/api/" + "x" * 60_000, "/api/…"),
        ("/" + "x" * 60_000, "/…"),
        ("/" + "sk-" * 500, ("/" + "sk-" * 500)[:MAX_PATH_LENGTH]),
        ("/a" * 30_000, "/a" * (MAX_PATH_LENGTH // 2)),
        (f"/{SECRET}" * 1000, ("/[redacted]" * 41 + "/…")),  # the secret at the cut is left out
    ],
)
async def test_a_path_is_searched_for_secrets_as_far_as_it_is_shown(path: str, shown: str) -> None:
    reader = PathReader()
    assert (await reader.path_of(path), reader.refused_path(path)) == (shown, shown)
    assert reader.searched <= 2 * (MAX_REDACTED_LENGTH + 2)
