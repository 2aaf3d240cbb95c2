"""Pages of other origins: those that the settings allow may read the answers, with a token and without cookies."""

from collections.abc import Callable

from tests.server.conftest import Serve
from vaka.agents.react import Agent
from vaka.server.settings import ServerSettings
from vaka.testing import say

Scripted = Callable[..., Agent]

PAGE = {"Origin": "https://app.example"}
PREFLIGHT = {
    **PAGE,
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "authorization, content-type, X-Vaka-Console",
}


async def test_a_page_of_an_allowed_origin_reads_answers_and_errors(serve: Serve, scripted: Scripted) -> None:
    settings = ServerSettings(origins=("https://app.example",))
    async with serve([scripted(say("Hello."))], settings=settings) as served, served.client() as client:
        allowed = await client.options("/agui/assistant", headers=PREFLIGHT)
        assert allowed.status_code == 204
        assert allowed.headers["access-control-allow-origin"] == "https://app.example"
        assert allowed.headers["access-control-allow-headers"] == "authorization, content-type"
        assert "POST" in allowed.headers["access-control-allow-methods"]
        assert "access-control-allow-credentials" not in allowed.headers
        body = {"threadId": "t", "runId": "r", "messages": [{"id": "m", "role": "user", "content": "Hi."}]}
        for answer in (
            await client.post("/agui/assistant", json=body, headers=PAGE),
            await client.post("/agui/none", json=body, headers=PAGE),
            await client.post("/agui/assistant", json=body, headers=PAGE | {"Authorization": "Bearer wrong"}),
        ):
            assert answer.headers["access-control-allow-origin"] == "https://app.example"
            assert answer.headers["vary"] == "origin"


async def test_other_pages_get_neither_answers_nor_permissions(serve: Serve, scripted: Scripted) -> None:
    settings = ServerSettings(origins=("https://app.example",))
    async with serve([scripted(say("Hello."))], settings=settings) as served, served.client() as client:
        for headers in (PREFLIGHT | {"Origin": "https://evil.example"}, PREFLIGHT | {"Origin": "null"}):
            refused = await client.options("/agui/assistant", headers=headers)
            assert refused.status_code == 403
            assert "access-control-allow-origin" not in refused.headers
        own = await client.get("/healthz", headers={"Origin": served.url})
        assert "access-control-allow-origin" not in own.headers
        asked = await client.options("/agui/assistant", headers=PAGE)
        assert asked.status_code == 405


async def test_all_origins_may_be_allowed_and_none_are_by_default(serve: Serve, scripted: Scripted) -> None:
    settings = ServerSettings(origins=("*",))
    async with serve([scripted(say("Hello."))], settings=settings) as served, served.client() as client:
        answer = await client.get("/healthz", headers=PAGE)
        assert answer.headers["access-control-allow-origin"] == "https://app.example"
    async with serve([scripted(say("Hello."))]) as served, served.client() as client:
        assert (await client.options("/agui/assistant", headers=PREFLIGHT)).status_code == 403
