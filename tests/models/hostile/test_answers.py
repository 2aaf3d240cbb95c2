"""Answers that are none: statuses, pages, redirects, packed zeros. Each is an error of ours, and none shows a key."""

import zlib
from typing import Any

import msgspec
import pytest

from tests.models.hostile.adapters import ADAPTERS, KEY, WIRES, Outcome, adapter, ask_once, close_model
from vaka.core.types.errors import (
    AuthenticationFailed,
    BadRequest,
    ContextTooLong,
    ModelError,
    ModelRefused,
    ModelUnavailable,
    RateLimited,
    StreamCut,
)
from vaka.models.transport.sse import StreamLimits
from vaka.testing.fake_provider import FakeProvider, Fault
from vaka.testing.models import fail, say, try_stream

pytestmark = pytest.mark.every_loop


def check_error(heard: Outcome, kind: type[ModelError], words: str = "") -> ModelError:
    chunks, error = heard
    assert chunks == []
    assert type(error) is kind, error
    assert words in str(error)
    assert KEY not in str(error)
    return error


@WIRES
@pytest.mark.parametrize(
    ("status", "words", "kind"),
    [
        (400, "messages: roles must alternate", BadRequest),
        (400, "This model's maximum context length is 8192 tokens", ContextTooLong),
        (400, "The input token count (9) exceeds the maximum number of tokens allowed (8).", ContextTooLong),
        (401, "invalid x-api-key", AuthenticationFailed),
        (403, "not for you", AuthenticationFailed),
        (404, "no such model", BadRequest),
        (413, "too large a request", BadRequest),
        (408, "too slow", ModelUnavailable),
        (409, "in the way", ModelUnavailable),
        (429, "slow down", RateLimited),
        (500, "oops", ModelUnavailable),
        (503, "try later", ModelUnavailable),
        (529, "overloaded", ModelUnavailable),
    ],
)
async def test_a_status_is_the_error_it_stands_for(wire: str, status: int, words: str, kind: type[ModelError]) -> None:
    error: Any = check_error(await ask_once(wire, answer=fail(status, words)), kind, words)
    assert error.status == status


@WIRES
@pytest.mark.parametrize(
    ("fault", "kind", "words"),
    [
        (Fault(html=True), ModelUnavailable, "an HTML page"),
        (Fault(html=True, status=403), AuthenticationFailed, "an HTML page"),
        (Fault(status=500, body=b""), ModelUnavailable, "an empty body"),
        (Fault(status=500, body=b"\x00\xff" * 500), ModelUnavailable, "binary data"),
        (Fault(status=529, body=b'{"error": ' * 100_000), ModelUnavailable, "a JSON object"),
        (Fault(status=429, body=b"{}", headers={"retry-after": "soon"}), RateLimited, ""),
        (Fault(status=202, body=b""), BadRequest, ""),
        (Fault(body=b""), StreamCut, ""),
        (Fault(body=b"OK"), StreamCut, "plain text: 'OK'"),
        (Fault(body=b"<html>Sign in</html>", headers={"content-type": "text/html"}), StreamCut, "an HTML page"),
        (Fault(body=b'{"ok": true}', headers={"content-type": "application/json"}), StreamCut, "a JSON object"),
        (Fault(body=b'[{"candidates": []}]', headers={"content-type": "application/json"}), StreamCut, "a JSON array"),
        (
            Fault(
                body=b'{"error": {"message": "overloaded", "type": "overloaded_error"}}',
                headers={"content-type": "application/json"},
            ),
            ModelUnavailable,
            "overloaded",
        ),
    ],
)
async def test_a_body_that_is_not_an_answer_is_described(
    wire: str, fault: Fault, kind: type[ModelError], words: str
) -> None:
    check_error(await ask_once(wire, fault), kind, words)


@WIRES
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed_so_that_no_key_goes_elsewhere(wire: str, status: int) -> None:
    async with FakeProvider(say("Give me your key.")) as elsewhere:
        fault = Fault(redirect_to=elsewhere.url + "/v1/chat/completions", status=status)
        check_error(await ask_once(wire, fault), ModelRefused, "redirects are not followed")
    assert elsewhere.requests == []


@WIRES
async def test_a_provider_that_repeats_the_key_does_not_put_it_into_an_error(wire: str) -> None:
    words = f"Incorrect API key provided: {KEY}"
    check_error(await ask_once(wire, answer=fail(401, words)), AuthenticationFailed, "Incorrect API key provided")
    check_error(await ask_once(wire, Fault(body=f"no such key: {KEY}".encode())), StreamCut)
    check_error(await ask_once(wire, Fault(status=500, body=f"no such key: {KEY}".encode())), ModelUnavailable)
    event = f'data: {{"type": "error", "error": {{"message": "I know {KEY}", "type": "x"}}}}\n\n'
    check_error(await ask_once(wire, Fault(body=event.encode())), BadRequest, "I know [redacted]")


@WIRES
async def test_the_key_is_sent_and_shown_nowhere(wire: str) -> None:
    async with FakeProvider(say("Hi.")) as provider:
        model = adapter(wire, provider.url)
        await try_stream(model)
        await close_model(model)
    [request] = provider.requests
    assert [name for name, value in request.headers.items() if KEY in value] == [
        {"anthropic": "x-api-key", "gemini": "x-goog-api-key"}.get(wire, "authorization")
    ]
    assert KEY not in request.path + request.query + request.raw.decode() + repr(model) + repr(vars(model))


class TestPacked:
    """What is unpacked counts, not what is sent."""

    LIMITS = StreamLimits(total_bytes=1_000_000)

    @WIRES
    async def test_a_decompression_bomb_is_too_large(self, wire: str) -> None:
        bomb = b"data: " + b"0" * 50_000_000
        check_error(await ask_once(wire, Fault(body=bomb, gzip=True), limits=self.LIMITS), StreamCut, "1000000 bytes")

    @WIRES
    async def test_a_decompression_bomb_with_an_error_status_is_an_error(self, wire: str) -> None:
        bomb = Fault(status=500, body=b"0" * 50_000_000, gzip=True)
        check_error(await ask_once(wire, bomb, limits=self.LIMITS), ModelUnavailable)

    @WIRES
    @pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd"])
    async def test_a_body_that_cannot_be_decompressed_is_an_error(self, wire: str, coding: str) -> None:
        chunks, error = await ask_once(wire, Fault(headers={"content-encoding": coding}, body=b"\xff" * 100))
        assert (chunks, type(error)) == ([], StreamCut)

    @WIRES
    async def test_an_unknown_content_encoding_is_an_error(self, wire: str) -> None:
        packed = zlib.compress(b"data: {}\n\n")
        chunks, error = await ask_once(wire, Fault(headers={"content-encoding": "secret"}, body=packed))
        assert (chunks, type(error)) == ([], StreamCut)


@pytest.mark.parametrize("wire", ADAPTERS)
async def test_the_retry_delay_of_a_provider_is_in_the_error(wire: str) -> None:
    _, error = await ask_once(wire, answer=fail(429, "slow down", retry_after=12.5))
    assert isinstance(error, RateLimited)
    assert error.retry_after == 12.5
    _, error = await ask_once(wire, Fault(status=503, body=b"{}", headers={"retry-after-ms": "1500"}))
    assert isinstance(error, ModelUnavailable)
    assert error.retry_after == 1.5
    body = msgspec.json.encode({"error": {"message": "later", "details": [{"retryDelay": "34.5s"}]}})
    _, error = await ask_once(wire, Fault(status=429, body=body))
    assert isinstance(error, RateLimited)
    assert error.retry_after == 34.5
