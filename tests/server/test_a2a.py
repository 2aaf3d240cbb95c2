"""A2A over HTTP in both bindings: tasks, input that is required, lists, cards, and requests that are not possible."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

import vaka
from tests.server.conftest import PRINCIPALS, Serve, Served
from tests.views.recorded_runs import make_router
from vaka.agents.react import Agent
from vaka.config.server_tables import FEATURE_NAMES
from vaka.core.ports.tool import ToolContext
from vaka.server.a2a.tasks import make_task_id, read_task_id
from vaka.server.kit.problems import Problem
from vaka.server.settings import ServerSettings
from vaka.testing import call, say
from vaka.tools.client_tool import ClientTool

Scripted = Callable[..., Agent]

RPC, REST = "/a2a/assistant", "/a2a/assistant/v1"


@vaka.tool
def deploy(place: str) -> str:
    """Deploy it."""
    return f"deployed to {place}"


def message(text: str = "Hi.", id: str = "m-1", *parts: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"messageId": id, "role": "ROLE_USER", "parts": list(parts) or [{"text": text}], **fields}


def client_of(served: Served, token: str = "alice") -> httpx2.AsyncClient:
    client = served.client(token)
    client.headers["A2A-Version"] = "1.0"
    return client


async def rpc(client: httpx2.AsyncClient, method: str, path: str = RPC, **params: Any) -> dict[str, Any]:
    """Return the response of a method; those of a stream as a list under ``stream``."""
    request = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
    answer = await client.post(path, json=request)
    assert answer.status_code == 200, answer.text
    if answer.headers["content-type"].startswith("text/event-stream"):
        responses = stream_of(answer)
        assert all(response["id"] == 7 for response in responses)
        return {"stream": [response["result"] for response in responses]}
    response = answer.json()
    assert response["id"] == 7
    return dict(response)


def stream_of(answer: httpx2.Response) -> list[dict[str, Any]]:
    lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines]


def text_in(task: dict[str, Any]) -> str:
    return "".join(part["text"] for artifact in task["artifacts"] for part in artifact["parts"])


def states_in(responses: list[dict[str, Any]]) -> list[str]:
    found = [(response.get("task") or response.get("statusUpdate") or {}).get("status") for response in responses]
    names = [status["state"].removeprefix("TASK_STATE_") for status in found if status]
    return [name for at, name in enumerate(names) if at == 0 or names[at - 1] != name]


async def test_a_message_is_a_task_in_both_bindings(serve: Serve, scripted: Scripted) -> None:
    async with serve([scripted(say("Hello."), say("Again."), say("More."))]) as served, client_of(served) as client:
        first = (await rpc(client, "SendMessage", message=message()))["result"]["task"]
        assert first["status"]["state"] == "TASK_STATE_COMPLETED"
        assert text_in(first) == "Hello."
        assert first["history"][0]["parts"] == [{"text": "Hi."}]
        context = first["contextId"]
        assert (await served.service.find_session(PRINCIPALS["alice"], context)).owner == "alice"
        body = {"message": message("And?", "m-2", contextId=context)}
        answer = await client.post(f"{REST}/message:stream", json=body)
        streamed = stream_of(answer)
        assert states_in(streamed) == ["SUBMITTED", "WORKING", "COMPLETED"]
        second = streamed[0]["task"]["id"]
        found = await client.get(f"{REST}/tasks/{second}", params={"historyLength": 0})
        assert found.headers["content-type"] == "application/a2a+json"
        assert text_in(found.json()) == "Again."
        assert "history" not in found.json()
        assert (await rpc(client, "GetTask", id=second))["result"]["history"][0]["messageId"] == "m-2"
        repeated = await client.post(f"{REST}/message:send", json=body)
        assert repeated.json()["task"]["id"] == second


async def test_input_that_is_required_continues_the_task(serve: Serve, scripted: Scripted) -> None:
    agent = scripted(call("deploy", place="here"), say("Done."), tools=[deploy])
    async with serve([agent], permissions=vaka.Permissions(confirm=["deploy"])) as served, client_of(served) as client:
        streamed = (await rpc(client, "SendStreamingMessage", message=message("Go.", contextId="c 1")))["stream"]
        assert states_in(streamed)[-1] == "INPUT_REQUIRED"
        task = streamed[0]["task"]["id"]
        assert task.startswith("~")
        assert (await client.get(f"{REST}/tasks/{task}")).json()["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        other = await rpc(client, "SendMessage", message=message("Other.", "m-2", contextId="c 1"))
        assert other["error"]["code"] == -32004
        wrong = await rpc(client, "SendMessage", message=message("Maybe.", "m-3", taskId=task))
        assert wrong["error"]["code"] == -32602
        elsewhere = await rpc(client, "SendMessage", message=message("yes", "m-3", taskId=task, contextId="c2"))
        assert "is not one of context" in elsewhere["error"]["message"]
        rest = (await rpc(client, "SendStreamingMessage", message=message("yes", "m-4", taskId=task)))["stream"]
        assert states_in(rest) == ["INPUT_REQUIRED", "WORKING", "COMPLETED"]
        assert rest[0]["task"]["id"] == task
        ended = await rpc(client, "SendMessage", message=message("yes", "m-5", taskId=task))
        assert ended["error"]["code"] == -32004
        assert (await rpc(client, "CancelTask", id=task))["error"]["code"] == -32002
        assert (await rpc(client, "SubscribeToTask", id=task))["error"]["code"] == -32004


async def test_a_task_that_waits_is_continued_after_a_restart(serve: Serve, scripted: Scripted, tmp_path: Path) -> None:
    agent = scripted(call("deploy", place="here"), say("Done."), call("deploy", place="there"), tools=[deploy])
    store = f"sqlite:///{tmp_path}/vaka.db"
    async with (
        serve([agent], store=store, permissions=vaka.Permissions(confirm=["deploy"])) as served,
        client_of(served) as client,
    ):
        task = (await rpc(client, "SendMessage", message=message("Go.", contextId="c")))["result"]["task"]["id"]
    async with (
        serve([agent], store=store, permissions=vaka.Permissions(confirm=["deploy"])) as served,
        client_of(served) as client,
    ):
        done = (await rpc(client, "SendMessage", message=message("yes", "m-2", taskId=task)))["result"]["task"]
        assert text_in(done) == "Done."
        sent = await rpc(client, "SendMessage", message=message("More.", "m-3", contextId="c"))
        task = sent["result"]["task"]["id"]
    async with (
        serve([agent], store=store, permissions=vaka.Permissions(confirm=["deploy"])) as served,
        client_of(served) as client,
    ):
        cancelled = (await rpc(client, "CancelTask", id=task))["result"]
        assert cancelled["status"]["state"] == "TASK_STATE_CANCELED"


async def test_a_call_of_a_child_agent_requires_input(serve: Serve, scripted: Scripted) -> None:
    own = {"agent": "operator"}
    child = scripted(
        {**call("deploy", place="here"), **own}, {**say("Deployed."), **own}, name="operator", tools=[deploy]
    )
    agent = scripted(call("operator", prompt="Deploy it."), say("All done."), tools=[child])
    async with serve([agent], permissions=vaka.Permissions(confirm=["deploy"])) as served, client_of(served) as client:
        task = (await rpc(client, "SendMessage", message=message("Go.")))["result"]["task"]
        assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        done = (await rpc(client, "SendMessage", message=message("yes", "m-2", taskId=task["id"])))["result"]["task"]
        assert text_in(done) == "All done."


async def test_the_agents_of_a_router_answer_as_it(serve: Serve) -> None:
    router = make_router()
    async with serve([router]) as served, client_of(served) as client:
        sent = message("Book a room and play music.")
        task = (await rpc(client, "SendMessage", f"/a2a/{router.name}", message=sent))["result"]["task"]
        assert text_in(task) == "Booked.Playing."


async def test_calls_of_the_client_and_questions_are_answered_with_data(serve: Serve, scripted: Scripted) -> None:
    @vaka.tool(effect="resume")
    async def choose(context: ToolContext) -> str:
        """Ask which one."""
        return f"chosen: {await context.ask('Which one?', options=['a', 'b'])}"

    agent = scripted(call("pick"), call("choose"), say("Good."), tools=[ClientTool("pick"), choose])
    async with serve([agent]) as served, client_of(served) as client:
        task = (await rpc(client, "SendMessage", message=message()))["result"]["task"]
        asked = task["status"]["message"]["parts"][1]["data"]
        result = {"data": {"id": asked["id"], "result": {"color": "blue"}}}
        reply = message("", "m-2", result, taskId=task["id"])
        task = (await rpc(client, "SendMessage", message=reply))["result"]["task"]
        assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        task = (await rpc(client, "SendMessage", message=message("b", "m-3", taskId=task["id"])))["result"]["task"]
        assert task["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_a_task_is_watched_steered_and_cancelled(serve: Serve, scripted: Scripted) -> None:
    started, go_on = asyncio.Event(), asyncio.Event()

    @vaka.tool
    async def wait() -> str:
        """Wait."""
        started.set()
        await go_on.wait()
        return "waited"

    agent = scripted(call("wait"), say("Done."), call("wait"), say("Never."), tools=[wait])
    async with serve([agent]) as served, client_of(served) as client:
        at_once = {"returnImmediately": True}
        sent = await rpc(client, "SendMessage", message=message(contextId="c"), configuration=at_once)
        task = sent["result"]["task"]["id"]
        await started.wait()
        also = message("Also.", "m-2", taskId=task)
        steered = await rpc(client, "SendMessage", message=also, configuration=at_once)
        assert steered["result"]["task"]["id"] == task
        async with client.stream("POST", f"{REST}/tasks/{task}:subscribe") as answer:
            go_on.set()
            await answer.aread()
        watched = stream_of(answer)
        assert watched[0]["task"]["status"]["state"] == "TASK_STATE_WORKING"
        assert states_in(watched)[-1] == "COMPLETED"
        started.clear()
        go_on.clear()
        sent = await rpc(client, "SendMessage", message=message("Go.", "m-3", contextId="c"), configuration=at_once)
        task = sent["result"]["task"]["id"]
        await started.wait()
        cancelled = await client.post(f"{REST}/tasks/{task}:cancel", json={})
        assert cancelled.json()["status"]["state"] == "TASK_STATE_CANCELED"


async def test_tasks_are_listed_in_pages(serve: Serve, scripted: Scripted) -> None:
    agents = [scripted(*[say(f"{number}.") for number in range(3)]), scripted(say("Other."), name="other")]
    async with serve(agents) as served, client_of(served) as client:
        for number in range(6):
            await rpc(client, "SendMessage", message=message("Hi.", f"m-{number}", contextId=f"c-{number // 3}"))
        await rpc(client, "SendMessage", "/a2a/other", message=message("Hi.", "m-9", contextId="c-9"))
        seen = list[str]()
        token = ""
        page = dict[str, Any]()
        while not page or token:
            page = (await client.get(f"{REST}/tasks", params={"pageSize": 2, "pageToken": token})).json()
            seen += [task["id"] for task in page["tasks"]]
            token = page["nextPageToken"]
        assert len(seen) == len(set(seen)) == 6
        assert page["totalSize"] == 6
        one = (await rpc(client, "ListTasks", contextId="c-0", includeArtifacts=True))["result"]
        assert [text_in(task) for task in one["tasks"]] == ["2.", "1.", "0."]
        assert not one["nextPageToken"]
        none = (await rpc(client, "ListTasks", status="TASK_STATE_FAILED"))["result"]
        assert none["tasks"] == []
        late = (await rpc(client, "ListTasks", statusTimestampAfter="2999-01-01T00:00:00Z"))["result"]
        assert late["tasks"] == []
        assert (await rpc(client, "ListTasks", pageSize=0))["error"]["code"] == -32602
        assert (await rpc(client, "ListTasks", pageToken="%%%"))["error"]["code"] == -32602
        assert (await rpc(client, "ListTasks", historyLength=-1))["error"]["code"] == -32602
        assert (await client.get(f"{REST}/tasks", params={"pageSize": "many"})).status_code == 400


async def test_cards_are_found_at_known_addresses(serve: Serve, scripted: Scripted) -> None:
    settings = ServerSettings(public_url="https://agents.example/")
    agents = [scripted(say("Hello."), tools=[deploy]), scripted(say("Hi."), name="the other", description="Another.")]
    async with serve(agents, settings=settings) as served, client_of(served, "reader") as client:
        found = await client.get("/.well-known/agent-card.json")
        card = found.json()
        assert card["name"] == "assistant"
        assert [each["url"] for each in card["supportedInterfaces"]] == [
            "https://agents.example/a2a/assistant",
            "https://agents.example/a2a/assistant/v1",
        ]
        again = await client.get(
            "/a2a/assistant/.well-known/agent-card.json", headers={"If-None-Match": found.headers["etag"]}
        )
        assert again.status_code == 304
        other = (await client.get("/a2a/the%20other/.well-known/agent-card.json")).json()
        assert other["description"] == "Another."
        assert other["supportedInterfaces"][0]["url"] == "https://agents.example/a2a/the%20other"
        extended = (await client.get(f"{REST}/extendedAgentCard")).json()
        assert [skill["id"] for skill in extended["skills"]] == ["assistant", "deploy"]
        assert (await rpc(client, "GetExtendedAgentCard"))["result"] == extended
        assert (await client.get("/a2a/none/.well-known/agent-card.json")).status_code == 404


REFUSED = [
    (b"{", -32700),
    (b"[]", -32600),
    (b'{"method": "GetTask"}', -32600),
    (b'{"jsonrpc": "2.0", "id": true, "method": "GetTask"}', -32600),
    (b'{"jsonrpc": "2.0", "id": [1], "method": "GetTask"}', -32600),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "message/send"}', -32601),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "GetTask"}', -32602),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "nothing"}}', -32001),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "~%.x"}}', -32001),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "CancelTask", "params": {"id": "a.b"}}', -32001),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": {"id": "a.b"}}', -32001),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "GetTaskPushNotificationConfig", "params": {}}', -32003),
    (
        b'{"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": {"role": "ROLE_AGENT"}}}',
        -32602,
    ),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": 1}}', -32602),
]


async def test_a_request_that_is_not_possible_has_the_code_of_the_protocol(serve: Serve, scripted: Scripted) -> None:
    async with serve([scripted(say("Hello."))]) as served, client_of(served) as client:
        for body, code in REFUSED:
            answer = await client.post(RPC, content=body)
            assert (answer.status_code, answer.json()["error"]["code"]) == (200, code), body


async def test_errors_of_the_rest_binding_have_reasons(serve: Serve, scripted: Scripted) -> None:
    async with serve([scripted(say("Hello."))]) as served, client_of(served) as client:

        async def reason_of(method: str, path: str, **options: Any) -> tuple[int, str]:
            answer = await client.request(method, path, **options)
            return answer.status_code, answer.json()["error"]["details"][0]["reason"]

        push = {"taskPushNotificationConfig": {"url": "https://evil.example"}}
        assert await reason_of("GET", f"{REST}/tasks/a.b") == (404, "TASK_NOT_FOUND")
        assert await reason_of("POST", f"{REST}/message:send", content=b"{") == (400, "INVALID_REQUEST")
        assert await reason_of("POST", f"{REST}/message:send", json={}) == (422, "INVALID_PARAMS")
        body = {"message": message(), "configuration": push}
        assert await reason_of("POST", f"{REST}/message:send", json=body) == (400, "PUSH_NOTIFICATION_NOT_SUPPORTED")
        path = f"{REST}/tasks/a.b/pushNotificationConfigs"
        assert await reason_of("POST", path, json={}) == (400, "PUSH_NOTIFICATION_NOT_SUPPORTED")
        assert await reason_of("DELETE", f"{path}/1") == (400, "PUSH_NOTIFICATION_NOT_SUPPORTED")
        old = {"A2A-Version": "0.3"}
        assert await reason_of("GET", f"{REST}/tasks", headers=old) == (400, "VERSION_NOT_SUPPORTED")
        assert await reason_of("GET", "/a2a/none/v1/tasks") == (404, "NOT_FOUND")
        client.headers.pop("A2A-Version")
        assert (await rpc(client, "ListTasks"))["error"]["code"] == -32009


async def test_tasks_of_others_and_missing_scopes(serve: Serve, scripted: Scripted) -> None:
    agents = [scripted(say("Hello.")), scripted(say("Other."), name="other")]
    async with serve(agents) as served:
        async with client_of(served) as client:
            task = (await rpc(client, "SendMessage", message=message(contextId="c")))["result"]["task"]["id"]
            assert (await rpc(client, "GetTask", "/a2a/other", id=task))["error"]["code"] == -32001
        for token in ("bob", "carol"):
            async with client_of(served, token) as client:
                assert (await rpc(client, "GetTask", id=task))["error"]["code"] == -32001
                assert (await rpc(client, "CancelTask", id=task))["error"]["code"] == -32001
                assert (await rpc(client, "ListTasks"))["result"]["tasks"] == []
                assert "error" in await rpc(client, "ListTasks", contextId="c")
        async with client_of(served, "reader") as client:
            assert (await rpc(client, "GetTask", id=task))["result"]["id"] == task
            assert "runs:write" in (await rpc(client, "SendMessage", message=message()))["error"]["message"]
            assert (await client.post(f"{REST}/message:send", json={"message": message()})).status_code == 403
        async with client_of(served, "") as client:
            answer = await client.post(RPC, content=b"{}")
            assert (answer.status_code, answer.json()["error"]["code"]) == (401, -32600)


@pytest.mark.parametrize("path", [f"{REST}/message:stream", RPC])
async def test_a_turn_that_cannot_begin_is_an_error(serve: Serve, path: str) -> None:
    agent = vaka.Agent("assistant", model="scripted:/does/not/exist.jsonl")
    async with serve([agent]) as served, client_of(served) as client:
        body = {"message": message()}
        request = {"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": body}
        answer = await client.post(path, json=request if path == RPC else body)
        assert "error" in stream_of(answer)[-1]
        assert ("event: error\n" in answer.text) == (path != RPC)
        assert "error" in await rpc(client, "SendMessage", message=message("Hi.", "m-2"))


def test_ids_of_tasks_name_their_sessions() -> None:
    for session in ("ses_1", "a b/c", "ü.x", "~"):
        assert read_task_id(make_task_id(session, "trn_1")) == (session, "trn_1")
    for wrong in ("", ".", "x", ".t", "~!!!.t", "~gA.t"):
        with pytest.raises(Problem, match="there is no task"):
            read_task_id(wrong)


async def test_without_the_feature_there_is_no_route(serve: Serve, scripted: Scripted) -> None:
    settings = ServerSettings(features=frozenset(FEATURE_NAMES) - {"a2a"})
    async with serve([scripted(say("Hello."))], settings=settings) as served, client_of(served) as client:
        assert (await client.post(RPC, json={})).status_code == 404
        assert (await client.get("/.well-known/agent-card.json")).status_code == 404
