"""Sessions through the native API: created, listed, changed, copied, rewound, closed and deleted."""

from collections.abc import Callable

from tests.server.conftest import Serve
from tests.server.rest.test_turns import API, Gate, deploy, start
from vaka.agents.react import Agent
from vaka.config.options import Permissions
from vaka.testing import ScriptedModel, call, say

Scripted = Callable[..., Agent]


async def test_a_session_is_created_changed_and_deleted(serve: Serve, scripted: Scripted) -> None:
    async with serve([scripted(say("Hi."))]) as served, served.client() as client:
        title = "<script>alert(1)</script>"
        made = await client.post(f"{API}/sessions", json={"id": "s", "title": title, "metadata": {"n": 1}})
        assert (made.status_code, made.headers["location"]) == (201, f"{API}/sessions/s")
        session = made.json()
        assert (session["title"], session["owner"], session["status"]) == (title, "alice", "idle")
        assert made.headers["content-type"] == "application/json"
        assert made.headers["etag"] == f'"{session["cursor"]}"'
        seen = await client.get(f"{API}/sessions/s", headers={"If-None-Match": made.headers["etag"]})
        assert seen.status_code == 304
        stale = {"If-Match": '"1.0"'}
        assert (await client.patch(f"{API}/sessions/s", json={"title": "x"}, headers=stale)).status_code == 412
        changed = await client.patch(
            f"{API}/sessions/s",
            json={"tags": ["a", "b"], "metadata": {"n": None, "m": 2}},
            headers={"If-Match": made.headers["etag"]},
        )
        assert (changed.json()["tags"], changed.json()["metadata"]) == (["a", "b"], {"m": 2})
        assert (await client.patch(f"{API}/sessions/s", json={})).status_code == 400
        taken = await client.post(f"{API}/sessions", json={"id": "s"})
        assert (taken.status_code, taken.json()["code"]) == (409, "exists")
        assert (await client.delete(f"{API}/sessions/s")).status_code == 204
        assert (await client.get(f"{API}/sessions/s")).status_code == 404
        assert (await client.delete(f"{API}/sessions/s")).status_code == 404


async def test_sessions_are_listed_in_pages_of_the_index(serve: Serve, scripted: Scripted) -> None:
    async with serve([scripted(say("Hi.")), scripted(name="other")]) as served, served.client() as client:
        for number in range(5):
            body = {"id": f"s{number}", "title": f"Title {number}", "tags": ["odd" if number % 2 else "even"]}
            await client.post(f"{API}/sessions", json={**body, "agent": "other" if number == 4 else "assistant"})
        names: list[str] = []
        cursor: str | None = ""
        while cursor is not None:
            page = (await client.get(f"{API}/sessions", params={"limit": 2, "cursor": cursor})).json()
            names += [session["id"] for session in page["data"]]
            cursor = page["next_cursor"]
            assert page["has_more"] == (cursor is not None)
        assert sorted(names) == [f"s{number}" for number in range(5)]

        async def find(**query: str) -> list[str]:
            return sorted(each["id"] for each in (await client.get(f"{API}/threads", params=query)).json()["data"])

        assert await find(tag="odd") == ["s1", "s3"]
        assert await find(agent="other") == ["s4"]
        assert await find(q="title 2") == ["s2"]
        assert await find(owner="bob") == []
        assert await find(status="running") == []
        for query, field in (("status=lazy", "status"), ("limit=1000", "limit"), ("sort=up", "sort")):
            bad = await client.get(f"{API}/sessions?{query}")
            assert (bad.status_code, bad.json()["errors"][0]["field"]) == (422, field)
        assert (await client.get(f"{API}/sessions?cursor=nonsense")).status_code == 400


async def test_a_session_is_forked_and_rewound(serve: Serve, scripted: Scripted) -> None:
    async with serve([scripted(say("One."), say("Two."), say("Three."))]) as served, served.client() as client:
        first, second = (await start(client)).json(), (await start(client)).json()
        copy = await client.post(f"{API}/sessions/s/fork", json={"turn": first["id"], "id": "copy", "title": "Copy"})
        assert copy.status_code == 201
        assert (copy.json()["origin"], copy.json()["title"], copy.json()["owner"]) == ("s", "Copy", "alice")
        listed = (await client.get(f"{API}/sessions/copy/turns")).json()["data"]
        assert [turn["id"] for turn in listed] == [first["id"]]
        at = await client.post(f"{API}/sessions/s/fork", json={"at": second["cursor"]})
        assert len((await client.get(f"{API}/sessions/{at.json()['id']}/turns")).json()["data"]) == 2
        assert (await client.post(f"{API}/sessions/s/fork")).status_code == 201
        end = int(first["cursor"].split(".")[1])
        inside = await client.post(f"{API}/sessions/s/rewind", json={"to": f"1.{end - 1}"})
        assert inside.status_code == 400
        assert f"is inside a turn; rewind it to {end - 7} (before this turn) or to {end}" in inside.json()["detail"]
        back = await client.post(f"{API}/sessions/s/rewind", json={"to": first["cursor"], "files": True})
        assert (back.status_code, back.json()["id"], back.json()["files"]["restored"]) == (200, "s", [])
        assert [turn["id"] for turn in (await client.get(f"{API}/sessions/s/turns")).json()["data"]] == [first["id"]]
        assert (await client.get(f"{API}/sessions/s/turns/{second['id']}")).json()["text"] == "Two."
        closed = await client.post(f"{API}/sessions/s/close", json={"reason": "done"})
        assert closed.json()["status"] == "closed"
        for body, status in (
            ({"at": "1.2", "turn": first["id"]}, 422),
            ({"turn": "trn_no"}, 404),
            ({"id": "copy"}, 409),
            ({"at": "9.9"}, 400),
            ({"at": "label"}, 400),
            ({"id": "a/b"}, 422),
        ):
            assert (await client.post(f"{API}/sessions/s/fork", json=body)).status_code == status
        assert (await client.post(f"{API}/sessions/s/rewind", json={"to": "1.900"})).status_code == 400


async def test_older_messages_are_summarized_on_request(serve: Serve) -> None:
    summaries = [say("<summary>It was about boats.</summary>")] * 2
    model = ScriptedModel(*[say("word " * 2_000)] * 3, agents={"summary": summaries})
    async with serve([Agent("assistant", model=model)]) as served, served.client() as client:
        for _ in range(2):
            await start(client)
        done = (await client.post(f"{API}/sessions/s/compact", json={"instructions": "Keep the boats."})).json()
        assert (done["session"], done["compacted"], done["skipped"]) == ("s", True, "")
        assert done["after"] < done["before"]
        assert "It was about boats." in done["summary"]
        events = (await client.get(f"{API}/sessions/s/events", params={"types": "context.compacted"})).json()["data"]
        assert [(event["id"], event["data"]["instructions"]) for event in events] == [
            (done["cursor"], "Keep the boats.")
        ]
        again = (await client.post(f"{API}/sessions/s/compact")).json()
        assert (again["compacted"], again["before"]) == (False, again["after"])  # no model is asked a second time
        assert (await start(client)).json()["status"] == "completed"
        wrong = await client.post(f"{API}/sessions/s/compact", json={"instruction": "x"})
        assert wrong.status_code == 422
        assert (await client.post(f"{API}/sessions/none/compact")).status_code == 404
        async with served.client("carol") as carol:
            assert (await carol.post(f"{API}/sessions/s/compact")).status_code in (403, 404)


async def test_a_busy_session_is_not_closed_deleted_or_rewound(serve: Serve, scripted: Scripted) -> None:
    gate = Gate()
    async with serve([scripted(call("hold"), say("Hi."), tools=[gate.tool])]) as served, served.client() as client:
        await start(client, background=True)
        await gate.entered.wait()
        for method, path, body in (
            ("POST", "/close", {}),
            ("DELETE", "", None),
            ("POST", "/rewind", {"to": "1.1"}),
            ("POST", "/compact", {}),
        ):
            answer = await client.request(method, f"{API}/sessions/s{path}", json=body)
            assert (answer.status_code, answer.json()["code"]) == (409, "busy")
        assert (await client.patch(f"{API}/sessions/s", json={"title": "While it runs"})).status_code == 200
        rewound = await client.post(f"{API}/sessions/s/rewind", json={"to": "1.2", "interrupt": True})
        assert (rewound.status_code, rewound.json()["turn"]) == (200, "")


async def test_other_tenants_and_owners_find_nothing_and_readers_write_nothing(
    serve: Serve, scripted: Scripted
) -> None:
    agent = scripted(call("deploy"), say("Done."), tools=[deploy])
    async with serve([agent], permissions=Permissions(confirm=["deploy"])) as served, served.client() as client:
        turn = (await start(client)).json()
        for token in ("bob", "carol"):
            async with served.client(token) as other:
                assert (await other.get(f"{API}/sessions")).json()["data"] == []
                for path in ("", "/events", "/turns", f"/turns/{turn['id']}", "/export"):
                    assert (await other.get(f"{API}/sessions/s{path}")).status_code == 404
                for path in ("/fork", "/close", "/turns/current/cancel"):
                    assert (await other.post(f"{API}/sessions/s{path}", json={})).status_code == 404
                assert (await other.delete(f"{API}/sessions/s")).status_code == 404
        async with served.client("carol") as other:
            assert (await start(other)).status_code == 404
            assert (await other.get(f"{API}/sessions?owner=alice")).json()["data"] == []
        async with served.client("reader") as reader:
            assert (await reader.get(f"{API}/sessions/s")).status_code == 200
            for method, path in (
                ("POST", ""),
                ("POST", "/s/turns"),
                ("PATCH", "/s"),
                ("DELETE", "/s"),
                ("POST", "/s/fork"),
            ):
                answer = await reader.request(method, f"{API}/sessions{path}", json={})
                assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
        async with served.client("") as stranger:
            assert (await stranger.get(f"{API}/sessions")).status_code == 401
        wrong = await client.put(f"{API}/sessions/s", json={})
        assert (wrong.status_code, wrong.headers["allow"]) == (405, "GET, PATCH, DELETE")
