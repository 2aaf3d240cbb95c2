"""Bodies that are not what they should be: each door answers with an error of the client, and nothing is stored."""

from collections.abc import Callable

from tests.server.conftest import Serve
from vaka.agents.react import Agent
from vaka.testing import say

Scripted = Callable[..., Agent]

DOORS = (
    "/api/v1/sessions",
    "/api/v1/sessions/x/turns",
    "/v1/chat/completions",
    "/v1/responses",
    "/v1/messages",
    "/agui/assistant",
    "/ai-sdk/assistant",
    "/a2a/assistant",
    "/a2a/assistant/v1/message:send",
)
BODIES = (
    b"\xff\xfe",
    b'{"metadata": "\xff"}',
    b"{",
    b'{"a": NaN}',
    b'{"a": "\\ud800"}',
    b'{"a": 1e999}',
    b"[]",
    b'"x"',
    b'{"metadata": {"a": ' + b"[" * 500 + b"]" * 500 + b"}}",
    b"[" * 100_000,
    b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
)


async def test_every_door_refuses_what_is_not_json_of_its_kind(serve: Serve, scripted: Scripted) -> None:
    async with serve([scripted(say("Hi."))]) as served, served.client() as client:
        for path in DOORS:
            for body in BODIES:
                answer = await client.post(path, content=body, headers={"A2A-Version": "1.0"})
                refused = "error" in answer.json() if path == "/a2a/assistant" else 400 <= answer.status_code < 500
                assert refused, f"{path} {body[:40]!r}: {answer.text}"
        assert (await client.get("/api/v1/sessions")).json()["data"] == []


async def test_json_may_be_wide_and_have_brackets_in_its_texts(serve: Serve, scripted: Scripted) -> None:
    metadata = {"wide": [[]] * 1000, "text": '["[' * 1000, "deep": [[[["\\"]]]]}
    async with serve([scripted(say("Hi."))]) as served, served.client() as client:
        answer = await client.post("/api/v1/sessions", json={"metadata": metadata})
        assert answer.json()["metadata"] == metadata


async def test_a_session_id_of_any_letters_is_percent_encoded_in_headers(serve: Serve, scripted: Scripted) -> None:
    async with serve([scripted(say("Hi."), say("Ho."), say("Hu."))]) as served, served.client() as client:
        question = {"model": "assistant:сессия", "messages": [{"role": "user", "content": "Hi."}], "max_tokens": 9}
        for path in ("/v1/chat/completions", "/v1/messages"):
            answer = await client.post(path, json=question)
            assert answer.headers["x-vaka-session"] == "%D1%81%D0%B5%D1%81%D1%81%D0%B8%D1%8F"
        response = await client.post("/v1/responses", json={"model": "assistant:сессия", "input": "Hi."})
        assert response.headers["x-vaka-session"].startswith("%D1%81")
