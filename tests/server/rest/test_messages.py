"""Messages, checkpoints and usage of sessions through the native API."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.server.conftest import Serve
from tests.server.rest.test_turns import API, Gate, deploy, start
from vaka.agents.react import Agent
from vaka.testing import call, say

Scripted = Callable[..., Agent]


def text_of(message: dict[str, Any]) -> str:
    return "".join(part.get("text", "") for part in message["content"])


async def test_the_conversation_is_listed_as_messages_from_both_ends(serve: Serve, scripted: Scripted) -> None:
    agent = scripted(call("deploy", place="there"), say("Done."), say("Bye."), tools=[deploy])
    async with serve([agent]) as served, served.client() as client:
        first, second = (await start(client)).json(), (await start(client, input="And now?")).json()
        page = (await client.get(f"{API}/sessions/s/messages")).json()
        assert [(each["role"], text_of(each)) for each in page["data"]] == [
            ("user", "Go."),
            ("assistant", ""),
            ("tool", "deployed there"),
            ("assistant", "Done."),
            ("user", "And now?"),
            ("assistant", "Bye."),
        ]
        assert [each["turn"] for each in page["data"]] == [first["id"]] * 4 + [second["id"]] * 2
        asked, result = page["data"][1], page["data"][2]
        assert [(each["name"], each["arguments"]) for each in asked["tool_calls"]] == [("deploy", {"place": "there"})]
        assert (result["id"], result["failed"]) == (asked["tool_calls"][0]["id"], False)
        for order in ("asc", "desc"):
            found: list[Any] = []
            cursor: str | None = ""
            while cursor is not None:
                query: dict[str, Any] = {"limit": 2, "order": order, "cursor": cursor}
                part = (await client.get(f"{API}/sessions/s/messages", params=query)).json()
                found += part["data"]
                cursor = part["next_cursor"]
                assert part["has_more"] == (cursor is not None)
            assert found == (page["data"] if order == "asc" else page["data"][::-1])
        assert (await client.get(f"{API}/sessions/s/messages?path=agent-1")).json()["data"] == []
        for text in ("DONE", "\uff24\xf3ne"):
            hits = (await client.get(f"{API}/sessions/s/messages/search", params={"q": text})).json()
            assert [each["content"][0]["text"] for each in hits["data"]] == ["Done."]
        for text in ("", "?q=", "?q=%20", "?q=x&limit=0"):
            assert (await client.get(f"{API}/sessions/s/messages/search{text}")).status_code == 422
        wrong = await client.put(f"{API}/sessions/s/messages", json={"content": "x"})
        assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST, DELETE, GET")


async def test_messages_leave_out_inputs_that_were_taken_back_and_what_a_rewind_removed(
    serve: Serve, scripted: Scripted
) -> None:
    gate = Gate()
    agent = scripted(call("hold"), say("One."), say("Two."), tools=[gate.tool])
    async with serve([agent]) as served, served.client() as client:
        await start(client, background=True)
        await gate.entered.wait()
        queued = (await start(client, input="Never.", background=True)).json()["key"]
        await client.post(f"{API}/sessions/s/turns/{queued}/cancel")
        turn = (await client.get(f"{API}/sessions/s/turns/current")).json()["id"]
        gate.opened.set()
        first = (await client.post(f"{API}/sessions/s/turns/{turn}/wait")).json()
        await start(client, input="Second?")
        await client.post(f"{API}/sessions/s/rewind", json={"to": first["cursor"]})
        data = (await client.get(f"{API}/sessions/s/messages?order=desc")).json()["data"]
        assert [text_of(each) for each in data] == ["One.", "open", "", "Go."]


async def test_a_checkpoint_is_saved_listed_and_restored(serve: Serve, scripted: Scripted) -> None:
    async with serve([scripted(say("One."), say("Two."))]) as served, served.client() as client:
        first = (await start(client)).json()
        saved = await client.post(f"{API}/sessions/s/checkpoints", json={"label": "before"})
        assert saved.status_code == 201
        await start(client)
        assert (await client.get(f"{API}/sessions/s/checkpoints")).json()["data"] == [saved.json()]
        copy = await client.post(f"{API}/sessions/s/fork", json={"at": "before"})
        assert len((await client.get(f"{API}/sessions/{copy.json()['id']}/turns")).json()["data"]) == 1
        restored = await client.post(f"{API}/sessions/s/checkpoints/before/restore")
        assert restored.status_code == 200
        assert [each["id"] for each in (await client.get(f"{API}/sessions/s/turns")).json()["data"]] == [first["id"]]
        assert (await client.post(f"{API}/sessions/s/checkpoints/other/restore")).status_code == 404
        for label in ("", "1st", "a/b", "x" * 101, "a\n"):
            answer = await client.post(f"{API}/sessions/s/checkpoints", json={"label": label})
            assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "label")


async def test_stats_have_what_prompt_caches_saved_and_lost(serve: Serve, scripted: Scripted) -> None:
    cold, warm = ({"input": 100, "output": 1, "cache_read": read, "cache_write": 80 - read} for read in (0, 80))
    lines = [say("One.", usage=cold), say("Two.", usage=warm), say("Three.", usage=cold)]
    async with serve([scripted(*lines)]) as served, served.client() as client:
        for _ in lines:
            await start(client)
        lost = {"count": 1, "tokens": 80, "cost": 0.0}
        for path in ("/stats", "/sessions/s/stats"):
            stats = (await client.get(f"{API}{path}")).json()
            assert (stats["cache_busts"], stats["cache_loss"]) == ({"expired": lost}, lost)
            assert (stats["cache_hit_ratio"], stats["compactions"]) == (pytest.approx(80 / 300), 0)


async def test_usage_is_summed_by_session_day_and_model(serve: Serve, scripted: Scripted) -> None:
    async with serve([scripted(say("One."), say("Two."), say("Three."))]) as served, served.client() as client:
        turns = [(await start(client, name)).json() for name in ("a", "b")]
        total = sum(turn["usage"]["total"] for turn in turns)
        stats = (await client.get(f"{API}/stats")).json()
        assert (stats["sessions"], stats["calls"], stats["usage"]["total"]) == (2, 2, total)
        assert stats["by_agent"]["assistant"]["calls"] == 2
        [model] = stats["by_model"]
        one = (await client.get(f"{API}/sessions/a/stats")).json()
        assert (one["sessions"], one["usage"]) == (1, turns[0]["usage"])
        [row] = (await client.get(f"{API}/usage?days=2")).json()["data"]
        assert (row["day"], row["model"], row["calls"], row["total"]) == (stats["last_day"], model, 2, total)
        await client.post(f"{API}/sessions/a/fork", json={"id": "copy"})
        third = (await start(client, "a")).json()
        again = (await client.get(f"{API}/stats")).json()
        assert (again["sessions"], again["calls"]) == (3, 3)
        assert again["usage"]["total"] == total + third["usage"]["total"]
        await client.delete(f"{API}/sessions/a")
        assert (await client.get(f"{API}/stats")).json()["calls"] == 1
        async with served.client("carol") as carol:
            assert (await carol.get(f"{API}/stats")).json()["calls"] == 0
            assert (await carol.get(f"{API}/usage")).json()["data"] == []
        assert (await client.get(f"{API}/usage?days=0")).status_code == 422
