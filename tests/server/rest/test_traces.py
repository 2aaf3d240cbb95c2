"""Traces over HTTP: lists that read logs from their ends, single turns, whole sessions, and OTLP."""

import vaka
from tests.server.conftest import PRINCIPALS, Serve
from tests.server.test_app import Scripted
from vaka.config.server_tables import FEATURE_NAMES
from vaka.server.kit.service import PromptInput
from vaka.server.settings import ServerSettings
from vaka.testing import call, say

ALICE = PRINCIPALS["alice"]


@vaka.tool
def look(at: str = "") -> str:
    """Look."""
    if at == "nothing":
        raise ValueError("there is nothing")
    return "there"


async def test_traces_of_sessions_turns_and_all(serve: Serve, scripted: Scripted) -> None:
    answers = [call("look", at="nothing"), say("It failed."), say("Two."), say("Three.")]
    async with serve([scripted(*answers, tools=[look])]) as served, served.client() as client:
        first, other = [await served.service.create_session(ALICE, id=id) for id in ("first", "other")]
        for session in (first, first, first, other):
            async with await served.service.start_turn(ALICE, session, PromptInput(prompt="Go.")) as turn:
                assert [event async for event in turn]
        assert (await client.get("/api/v1/traces", params={"session": "none"})).status_code == 404
        newest = (await client.get("/api/v1/traces", params={"session": "first", "limit": 2})).json()
        assert newest["has_more"]
        rest = (await client.get("/api/v1/traces", params={"session": "first", "cursor": newest["next_cursor"]})).json()
        assert (rest["next_cursor"], rest["has_more"], len(newest["data"]), len(rest["data"])) == (None, False, 2, 1)
        oldest = rest["data"][0]
        assert (oldest["session"], oldest["agent"], oldest["status"]) == ("first", "assistant", "ok")
        assert oldest["spans"] == 6
        assert oldest["started"] < newest["data"][0]["started"]
        last = (await client.get("/api/v1/traces", params={"limit": 5})).json()["data"]
        assert [trace["session"] for trace in last] == ["other", "first"]
        assert last[1]["id"] == newest["data"][0]["id"]

        one = (await client.get(f"/api/v1/traces/first/{oldest['id']}")).json()
        assert [(span["kind"], span["status"]) for span in one["spans"]] == [
            ("turn", "ok"),
            ("step", "ok"),
            ("model", "ok"),
            ("tool", "error"),
            ("step", "ok"),
            ("model", "ok"),
        ]
        assert {key: one[key] for key in oldest if key != "spans"} == {
            key: value for key, value in oldest.items() if key != "spans"
        }
        whole = (await client.get("/api/v1/traces/first")).json()
        assert (whole["id"], len([span for span in whole["spans"] if not span["parent"]])) == ("first", 3)
        for missing in ("first/trn_none", "none/trn_none", "none"):
            assert (await client.get(f"/api/v1/traces/{missing}")).status_code == 404
        assert (await client.get("/api/v1/traces", params={"session": "first", "cursor": "x"})).status_code == 422
        await served.service.create_session(ALICE, id="empty")
        assert (await client.get("/api/v1/traces/empty")).status_code == 404
        assert (await client.get("/api/v1/traces", params={"session": "empty"})).json()["data"] == []

        otlp = (await client.get(f"/api/v1/traces/first/{oldest['id']}", params={"format": "otlp"})).json()
        (spans,) = [scope["spans"] for scope in otlp["resourceSpans"][0]["scopeSpans"]]
        assert [span["name"] for span in spans] == [
            "invoke_agent assistant",
            "step step 1",
            "chat scripted",
            "execute_tool look",
            "step step 2",
            "chat scripted",
        ]
        assert [span.get("parentSpanId") for span in spans[:2]] == [None, spans[0]["spanId"]]
        assert spans[3]["status"] == {"code": 2, "message": one["spans"][3]["error"]["message"]}
        assert {len(span["traceId"]) for span in spans} == {32}
        for span in spans:
            named = {each["key"]: each["value"] for each in span["attributes"]}
            assert named["gen_ai.conversation.id"] == {"stringValue": "first"}
        async with served.client("bob") as bob, served.client("carol") as carol:
            assert (await bob.get("/api/v1/traces/first")).status_code == 404
            assert (await carol.get("/api/v1/traces", params={"session": "first"})).status_code == 404
            assert (await carol.get("/api/v1/traces")).json()["data"] == []


async def test_a_turn_is_found_however_far_back_it_is(serve: Serve, scripted: Scripted) -> None:
    async with serve([scripted(say("One."), say("Two."), say("Three."))]) as served, served.client() as client:
        session = await served.service.create_session(ALICE, id="long")
        for _ in range(2):
            async with await served.service.start_turn(ALICE, session, PromptInput(prompt="Go.")) as turn:
                assert [event async for event in turn]
            for number in range(600):
                await session.checkpoint(f"mark {number}")
        traces = (await client.get("/api/v1/traces", params={"session": "long"})).json()["data"]
        assert len(traces) == 2
        for trace in traces:
            found = (await client.get(f"/api/v1/traces/long/{trace['id']}")).json()
            assert len(found["spans"]) == trace["spans"] == 3


async def test_without_the_feature_there_are_no_traces(serve: Serve, scripted: Scripted) -> None:
    settings = ServerSettings(features=frozenset(FEATURE_NAMES) - {"tracing", "ui"})
    async with serve([scripted(say("Hi."))], settings=settings) as served, served.client() as client:
        assert (await client.get("/api/v1/traces")).status_code == 404
