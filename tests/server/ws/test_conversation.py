"""A conversation over the WebSocket: turns, events, decisions, and resuming at a cursor."""

from typing import Any

import vaka
from tests.server.conftest import PRINCIPALS, Serve
from tests.server.test_app import Scripted
from tests.server.ws.conftest import Connect
from vaka.testing import call, say
from vaka.tools.client_tool import ClientTool


@vaka.tool
def deploy(target: str = "test") -> str:
    """Deploy it."""
    return f"deployed to {target}"


def seqs(events: list[dict[str, Any]]) -> list[int]:
    return [event["seq"] for event in events if "seq" in event]


async def test_a_turn_is_started_and_its_events_arrive_in_order(
    serve: Serve, scripted: Scripted, client: Connect
) -> None:
    async with serve([scripted(say("Hello there."))]) as served, client(served) as socket:
        assert socket.socket.subprotocol == "agent.v1+json"
        hello = await socket.request("hello", client="test", versions=[1])
        assert (hello["version"], hello["heartbeat_ms"], hello["max_frame"]) == (1, 20_000, 1_048_576)
        assert hello["limits"] == {"subscriptions": 100, "queue_bytes": 262_144, "queue_frames": 4096}
        started = await socket.request("turn.start", session="demo", agent="assistant", input="Hi.", key="k1")
        assert (started["session"], started["key"]) == ("demo", "k1")
        subscribed = await socket.request("subscribe", session="demo")
        assert subscribed["sub"] == "s1"
        events = await socket.until("turn.completed")
        durable = seqs(events)
        assert durable == list(range(1, durable[-1] + 1))
        assert events[-1]["data"]["text"] == "Hello there."
        assert {event["session"] for event in events} == {"demo"}
        again = await socket.request("turn.start", session="demo", input="Hi.", key="k1")  # the same input
        assert again["key"] == "k1"
        state = await socket.request("state.get", session="demo")
        assert (state["session"]["owner"], state["session"]["title"], state["decisions"]) == ("alice", "Hi.", [])
        assert (await socket.request("ping"))["ts"].endswith("Z")


async def test_a_client_that_connects_again_gets_what_it_missed_once(
    serve: Serve, scripted: Scripted, client: Connect
) -> None:
    async with serve([scripted(say("One."), say("Two."))]) as served:
        async with client(served) as socket:
            await socket.request("turn.start", session="demo", agent="assistant", input="First.")
            await socket.request("subscribe", session="demo")
            first = await socket.until("turn.completed")
            cursor = [event["id"] for event in first if "seq" in event][-1]
        async with client(served) as other:
            await other.request("turn.start", session="demo", input="Second.")
            await other.request("subscribe", session="demo", after="now")
        async with client(served) as socket:
            subscribed = await socket.request("subscribe", session="demo", after=cursor)
            second = await socket.until("turn.completed")
            assert seqs(first + second) == list(range(1, seqs(second)[-1] + 1))
            assert second[-1]["data"]["text"] == "Two."
            assert subscribed["replayed"] <= len(seqs(second))
            acked = await socket.request("ack", sub="s1", cursor=second[-1]["id"])
            assert acked == {"sub": "s1", "cursor": second[-1]["id"]}
            assert (await socket.request("ack", sub="s1", cursor="1.1"))["cursor"] == second[-1]["id"]
            ended = await socket.request("unsubscribe", sub="s1")
            assert ended == {"sub": "s1", "cursor": second[-1]["id"]}
            assert (await socket.refused("unsubscribe", sub="s1"))["code"] == "not_found"


async def test_a_cursor_that_is_not_of_the_log_is_answered_with_a_reset_and_everything(
    serve: Serve, scripted: Scripted, client: Connect
) -> None:
    async with serve([scripted(say("One."))]) as served, client(served) as socket:
        await socket.request("turn.start", session="demo", agent="assistant", input="First.")
        await socket.request("subscribe", session="demo")
        head = seqs(await socket.until("turn.completed"))[-1]
        for after in (f"1.{head + 10}", "9.1"):  # from the future, and of another incarnation
            subscribed = await socket.request("subscribe", session="demo", after=after)
            assert subscribed["replayed"] == head
            events = await socket.until("turn.completed")
            assert events[0]["type"] == "stream.reset"
            assert seqs(events) == list(range(1, head + 1))
            assert {event["sub"] for event in events} == {subscribed["sub"]}
        assert (await socket.refused("subscribe", session="demo", after="x"))["code"] == "invalid_input"


async def test_two_subscriptions_of_one_session_are_filtered_each_for_itself(
    serve: Serve, scripted: Scripted, client: Connect
) -> None:
    async with serve([scripted(say("One."))]) as served, client(served) as socket:
        await socket.request("turn.start", session="demo", agent="assistant", input="First.")
        everything = (await socket.request("subscribe", session="demo"))["sub"]
        await socket.until("turn.completed")
        ends = (await socket.request("subscribe", session="demo", types=["turn.completed"], depth=0))["sub"]
        control = (await socket.request("subscribe", session="demo", channels=["control"]))["sub"]
        assert len({everything, ends, control}) == 3
        await socket.request("turn.start", session="demo", input="Again.", on_conflict="reject")
        events = await socket.until("turn.failed")  # the script has no second answer
        kinds = {event["type"]: {each["sub"] for each in events if each["type"] == event["type"]} for event in events}
        assert kinds["turn.completed"] == {ends}  # the one of the first turn, again
        assert kinds["turn.started"] == {everything}
        assert kinds["input.added"] == {everything, control}


async def test_the_state_of_a_session_names_the_call_that_a_client_runs(
    serve: Serve, scripted: Scripted, client: Connect
) -> None:
    tool = ClientTool("locate", "Locate the ship.")
    agent = scripted(call("locate"), say("Found."), tools=[tool])
    async with serve([agent]) as served, client(served) as socket:
        await socket.request("turn.start", session="demo", agent="assistant", input="Go.")
        await socket.request("subscribe", session="demo")
        await socket.until("question.asked")
        (decision,) = (await socket.request("state.get", session="demo"))["decisions"]
        assert (decision["kind"], decision["call"]["name"]) == ("result", "locate")
        async with served.client() as http:
            address = f"/api/v1/sessions/demo/calls/{decision['call']['id']}/result"
            assert (await http.post(address, json={"result": "here"})).status_code == 200
        assert (await socket.until("turn.completed"))[-1]["data"]["text"] == "Found."


async def test_an_approval_is_resolved_and_the_turn_goes_on(serve: Serve, scripted: Scripted, client: Connect) -> None:
    agent = scripted(call("deploy", target="prod"), say("Done."), tools=[deploy])
    async with serve([agent], permissions=vaka.Permissions(confirm=["deploy"])) as served, client(served) as socket:
        await socket.request("turn.start", session="demo", agent="assistant", input="Go.")
        await socket.request("subscribe", session="demo")
        asked = (await socket.until("approval.requested"))[-1]["data"]["approval"]
        state = await socket.request("state.get", session="demo")
        assert state["session"]["status"] == "waiting"
        assert [(each["id"], each["call"]["name"]) for each in state["decisions"]] == [(asked, "deploy")]
        refused = await socket.refused("approval.resolve", id=asked, decision="edit")
        assert (refused["code"], refused["retryable"]) == ("invalid_body", False)
        resolved = await socket.request(
            "approval.resolve", id=asked, decision="edit", edited_args={"target": "staging"}, message="Not yet."
        )
        assert (resolved["id"], resolved["event"]["data"]["by"]) == (asked, "alice")
        events = await socket.until("turn.completed")
        results = [event["data"]["result"] for event in events if event["type"] == "tool.completed"]
        assert "deployed to staging" in str(results)
        again = {"id": asked, "decision": "edit", "edited_args": {"target": "staging"}}
        assert (await socket.request("approval.resolve", **again))["event"] == resolved["event"]
        conflict = await socket.refused("approval.resolve", id=asked, decision="reject")  # the first one counts
        assert (conflict["data"]["status"], conflict["retryable"]) == (409, False)


async def test_a_running_turn_is_steered_and_cancelled(serve: Serve, scripted: Scripted, client: Connect) -> None:
    agent = scripted(call("deploy"), say("Done."), tools=[deploy])
    async with serve([agent], permissions=vaka.Permissions(confirm=["deploy"])) as served, client(served) as socket:
        assert (await socket.refused("turn.steer", session="demo", input="Also."))["code"] == "not_found"
        await socket.request("turn.start", session="demo", agent="assistant", input="Go.")
        await socket.request("subscribe", session="demo")
        await socket.until("approval.requested")
        busy = await socket.refused("turn.start", session="demo", input="More.", on_conflict="reject")
        assert (busy["code"], busy["retryable"], busy["data"]["status"]) == ("busy", True, 409)
        await socket.request("turn.steer", session="demo", input="Also this.")
        queued = await socket.request("turn.start", session="demo", input="Later.", key="later")
        withdrawn = await socket.request("turn.cancel", session="demo", turn=queued["key"])
        assert withdrawn["cancelled"] == "input"
        assert (await socket.refused("turn.cancel", session="demo", turn="no-such"))["code"] == "no_turn"
        assert (await socket.request("turn.cancel", session="demo", note="Stop."))["cancelled"] == "turn"
        end = (await socket.until("turn.interrupted"))[-1]
        assert end["data"]["note"] == "Stop."
        assert (await socket.refused("turn.cancel", session="demo"))["code"] == "no_turn"


async def test_a_session_is_forked(serve: Serve, scripted: Scripted, client: Connect) -> None:
    async with serve([scripted(say("One."))]) as served, client(served) as socket:
        await socket.request("turn.start", session="demo", agent="assistant", input="First.")
        await socket.request("subscribe", session="demo")
        await socket.until("turn.completed")
        copy = await socket.request("session.fork", session="demo", id="copy", title="A copy")
        assert (copy["id"], copy["origin"], copy["title"], copy["owner"]) == ("copy", "demo", "A copy", "alice")
        assert (await socket.refused("session.fork", session="nothing"))["code"] == "not_found"


async def test_all_sessions_that_change_are_followed_from_now_on(
    serve: Serve, scripted: Scripted, client: Connect
) -> None:
    agent = scripted(say("One."), say("Two."))
    async with serve([agent]) as served, client(served) as socket:
        await socket.request("turn.start", session="old", agent="assistant", input="First.")
        mine = (await socket.request("subscribe", session="old"))["sub"]
        before = seqs(await socket.until("turn.completed"))[-1]
        await socket.request("unsubscribe", sub=mine)
        assert (await socket.refused("subscribe", session="*", after="1.4"))["code"] == "invalid_params"
        everything = await socket.request("subscribe", session="*", types=["turn.completed"])
        assert (everything["cursor"], everything["replayed"]) == ("", 0)
        await socket.request("turn.start", session="new", agent="assistant", input="Second.")
        ended = (await socket.until("turn.completed"))[-1]
        assert (ended["session"], ended["sub"]) == ("new", everything["sub"])
        await socket.request("turn.start", session="old", input="Third.")
        ended = (await socket.until("turn.completed"))[-1]
        assert (ended["session"], ended["data"]["text"]) == ("old", "Two.")
        assert ended["seq"] > before
        assert (await socket.request("unsubscribe", sub=everything["sub"]))["cursor"] == ""
        await served.service.create_session(PRINCIPALS["alice"], id="later")
        assert socket.events == []


async def test_an_input_for_an_agent_without_a_usable_model_is_refused(serve: Serve, client: Connect) -> None:
    agent = vaka.Agent("assistant", model="scripted:absent.jsonl")
    async with serve([agent]) as served, client(served) as socket:
        id = await socket.send("turn.start", session="demo", agent="assistant", input="Hi.", key="k1")
        error = (await socket.reply(id))["error"]
        assert (error["code"], "absent.jsonl cannot be read" in error["message"]) == ("config", True)
        id = await socket.send("state.get", session="demo")
        assert (await socket.reply(id))["error"]["code"] == "not_found"
