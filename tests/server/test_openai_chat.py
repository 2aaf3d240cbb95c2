"""Chat Completions over a real socket: sessions of stateless requests, tools, decisions and errors."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2

import vaka
from tests.server.conftest import PRINCIPALS, Serve, Served
from tests.views.recorded_runs import make_router
from vaka.agents.react import Agent
from vaka.core.ports.store import SessionQuery
from vaka.core.types.ids import parse_session_id
from vaka.core.types.message import text_of
from vaka.runtime.options import Environment
from vaka.server.settings import ServerSettings
from vaka.testing import FakeClock, ScriptedModel, call, calls, fail, say, stall

Scripted = Callable[..., Agent]


@vaka.tool
def deploy() -> str:
    """Deploy it."""
    return "deployed"


PICK = {"type": "function", "function": {"name": "pick", "parameters": {"type": "object", "properties": {}}}}


class Chat:
    """A client that sends the whole conversation each time, as chat applications do."""

    def __init__(self, client: httpx2.AsyncClient, **options: Any) -> None:
        self.client = client
        self.options = {"model": "assistant", **options}
        self.messages = list[dict[str, Any]]()
        self.session = ""

    async def ask(self, *said: str | dict[str, Any], **options: Any) -> dict[str, Any]:
        new = [{"role": "user", "content": text} if isinstance(text, str) else text for text in said]
        body = {**self.options, **options, "messages": [*self.messages, *new]}
        answer = await self.client.post("/v1/chat/completions", json=body)
        if answer.status_code != 200:
            return {"status": answer.status_code, **answer.json()}
        completion: dict[str, Any] = answer.json()
        message = completion["choices"][0]["message"]
        self.session = answer.headers["x-vaka-session"]
        self.messages += [*new, {name: value for name, value in message.items() if value is not None}]
        return {"text": message["content"], "finish": completion["choices"][0]["finish_reason"], **completion}


async def sessions_of(served: Served) -> int:
    return len((await served.service.runtime.store.sessions.list(SessionQuery())).sessions)


async def test_a_conversation_that_is_sent_again_goes_on_in_its_session(serve: Serve, scripted: Scripted) -> None:
    agent = scripted(say("Hello."), say("Fine,\n\nthanks."), say("Bye."), say("Other."))
    async with serve([agent]) as served, served.client() as client:
        chat = Chat(client)
        first = await chat.ask("Hi")
        assert first["text"] == "Hello."
        assert first["id"].startswith("chatcmpl-trn")
        assert first["usage"]["total_tokens"] > 0
        session = chat.session
        await chat.ask("How are you?")
        chat.messages[-1]["content"] = [{"type": "text", "text": "Fine, thanks."}]
        branch = Chat(client)
        branch.messages = list(chat.messages)
        assert (await chat.ask("Bye"))["text"] == "Bye."
        assert chat.session == session
        assert await sessions_of(served) == 1
        assert (await branch.ask("Or not"))["text"] == "Hello."  # a new session begins the script again
        assert branch.session != session
        opened = await served.service.open_session(PRINCIPALS["alice"], branch.session)
        texts = [text_of(getattr(message, "content", ())) for message in await opened.messages()]
        assert texts == ["Hi", "Hello.", "How are you?", "Fine, thanks.", "Or not", "Hello."]


async def test_a_stream_has_chunks_then_usage_and_the_end(serve: Serve, scripted: Scripted) -> None:
    async with serve([scripted(say("Hello world."))]) as served, served.client() as client:
        body = {"model": "assistant", "messages": [{"role": "user", "content": "Hi"}], "stream": True}
        answer = await client.post("/v1/chat/completions", json={**body, "stream_options": {"include_usage": True}})
        assert answer.headers["content-type"].startswith("text/event-stream")
        frames = [line.removeprefix("data: ") for line in answer.text.split("\n\n") if line]
        assert frames[-1] == "[DONE]"
        chunks = [json.loads(frame) for frame in frames[:-1]]
        assert chunks[0]["choices"][0]["delta"] == {"role": "assistant"}
        assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks[:-1]) == "Hello world."
        assert chunks[-1]["choices"] == []
        assert chunks[-1]["usage"]["completion_tokens"] > 0
        assert len({chunk["id"] for chunk in chunks}) == 1


async def test_the_client_runs_its_own_tools_within_the_same_turn(serve: Serve, scripted: Scripted) -> None:
    agent = scripted(call("pick"), call("pick"), say("Red and blue."))
    async with serve([agent]) as served, served.client() as client:
        chat = Chat(client, tools=[PICK])
        first = await chat.ask("Pick two")
        assert first["finish"] == "tool_calls"
        [made] = chat.messages[-1]["tool_calls"]
        assert made["function"] == {"name": "pick", "arguments": "{}"}
        second = await chat.ask({"role": "tool", "tool_call_id": made["id"], "content": "red"})
        assert second["finish"] == "tool_calls"
        assert second["id"] != first["id"]
        assert second["id"].split("-")[:2] == first["id"].split("-")[:2]
        early = await chat.ask("And?")
        assert (early["status"], early["error"]["code"]) == (400, "decision_needed")
        assert "the result of call" in early["error"]["message"]
        [made] = chat.messages[-1]["tool_calls"]
        last = await chat.ask({"role": "tool", "tool_call_id": made["id"], "content": "blue"})
        assert (last["text"], last["finish"]) == ("Red and blue.", "stop")
        costs = [answer["usage"]["total_tokens"] for answer in (first, second, last)]
        assert min(costs) > 0
        assert sum(costs) == (await served.service.runtime.stats(chat.session)).usage.total
        assert await sessions_of(served) == 1
        unknown = await chat.ask({"role": "tool", "tool_call_id": "call_99", "content": "blue"})
        assert (unknown["status"], unknown["error"]["code"]) == (400, "nothing_waits")
        alone = Chat(client)
        alone.messages = [chat.messages[0], {"role": "assistant", "content": "?"}]
        assert (await alone.ask({"role": "tool", "tool_call_id": "call_1", "content": ""}))["status"] == 400


async def test_an_approval_is_decided_by_the_next_message(serve: Serve, scripted: Scripted) -> None:
    agent = scripted(say("I deploy."), call("deploy"), say("Done."), tools=[deploy])
    async with serve([agent], permissions=vaka.Permissions(confirm=["deploy"])) as served, served.client() as client:
        chat = Chat(client)
        await chat.ask("Ready?")
        asked = await chat.ask("Go")
        assert asked["finish"] == "stop"
        [row] = await served.service.runtime.decisions()
        assert f"Reply 'approve {row.id}' or 'reject {row.id}'" in asked["text"]
        unclear = await chat.ask("Maybe")
        assert (unclear["status"], unclear["error"]["code"]) == (400, "decision_needed")
        async with served.client("carol") as other:
            stranger = Chat(other)
            stranger.messages = chat.messages
            assert (await stranger.ask(f"approve {row.id}"))["status"] == 404
        done = await chat.ask("Maybe", "approve")
        assert done["text"] == "Done."
        assert done["id"].startswith(f"{asked['id']}-")
        assert await sessions_of(served) == 1


async def test_a_decision_needs_its_scope_and_a_rejection_has_a_reason(serve: Serve, scripted: Scripted) -> None:
    agent = scripted(call("deploy"), say("Then not."), tools=[deploy])
    async with (
        serve([agent], permissions=vaka.Permissions(confirm=["deploy"])) as served,
        served.client("carol") as client,
    ):
        chat = Chat(client, model="assistant:carols")
        await chat.ask("Go")
        assert chat.session == "carols"
        refused = await chat.ask("approve")
        assert (refused["status"], refused["error"]["type"]) == (403, "permission_error")
        [row] = await served.service.runtime.decisions()
        await served.service.resolve(PRINCIPALS["alice"], row.id, approve=False, message="not today")
        async with await served.service.attach_turn(
            PRINCIPALS["alice"], await served.service.open_session(PRINCIPALS["alice"], "carols"), turn=row.event.turn
        ) as events:
            assert [event async for event in events][-1].type == "turn.completed"
        assert (await chat.ask("More?"))["status"] == 502  # the script has no further line
        assert (await chat.ask("Hi", model="second:carols"))["status"] == 404


async def test_a_question_is_answered_by_the_next_message(serve: Serve, scripted: Scripted) -> None:
    colours = [{"label": "red", "description": "Red"}, {"label": "blue", "description": "Blue"}]
    ask = call("AskUserQuestion", questions=[{"question": "Which colour?", "header": "Colour", "options": colours}])
    agent = scripted(ask, say("Blue it is."), tools=["AskUserQuestion"])
    async with serve([agent]) as served, served.client() as client:
        chat = Chat(client)
        asked = await chat.ask("Paint")
        assert "Which colour?" in asked["text"]
        assert (await chat.ask("blue"))["text"] == "Blue it is."


async def test_instructions_tool_choice_and_options_of_a_request_reach_the_model(
    serve: Serve, scripted: Scripted
) -> None:
    agent = scripted(call("pick"), instructions="Be kind.")
    async with serve([agent]) as served, served.client() as client:
        chat = Chat(client, tools=[PICK], tool_choice="required", temperature=0.5)
        chat.messages = [{"role": "system", "content": "Be brief."}]
        assert (await chat.ask("Hi"))["finish"] == "tool_calls"
        assert isinstance(agent.model, ScriptedModel)
        [prompt] = agent.model.prompts
        assert "Be kind." in prompt.system
        assert "Be brief." in prompt.system
        assert prompt.tool_choice == "required"
        assert prompt.options["temperature"] == 0.5
        assert [tool.name for tool in prompt.tools] == ["pick"]


async def test_a_request_with_an_idempotency_key_runs_once(serve: Serve, scripted: Scripted) -> None:
    agent = scripted(call("deploy"), say("Once."), say("Twice."), tools=[deploy])
    async with serve([agent], permissions=vaka.Permissions(confirm=["deploy"])) as served, served.client() as client:
        messages: list[Any] = [{"role": "user", "content": "Hi"}]
        body = {"model": "assistant", "messages": messages}

        async def post(key: str) -> httpx2.Response:
            return await client.post("/v1/chat/completions", json=body, headers={"Idempotency-Key": key})

        asked = await post("k1")
        assert (await post("k1")).json() == asked.json()
        messages += [asked.json()["choices"][0]["message"], {"role": "user", "content": "approve"}]
        conflict = await post("k1")
        assert (conflict.status_code, conflict.json()["error"]["code"]) == (422, "idempotency_conflict")
        done = await post("k2")
        assert done.json()["choices"][0]["message"]["content"] == "Once."
        assert (await post("k2")).json() == done.json()
        assert await sessions_of(served) == 1


async def test_bad_requests_get_errors_that_say_what_to_do(serve: Serve, scripted: Scripted) -> None:
    agent = scripted(say("Hi."), tools=[deploy])
    hi = [{"role": "user", "content": "Hi"}]
    bad: list[tuple[dict[str, Any], int, str]] = [
        ({"model": "unknown", "messages": hi}, 404, "model_not_found"),
        ({"model": ":x", "messages": hi}, 404, "model_not_found"),
        ({"model": "assistant", "messages": []}, 400, "invalid_input"),
        ({"model": "assistant", "messages": [{"role": "user", "content": " "}]}, 400, "invalid_input"),
        ({"model": "assistant:one", "messages": [{"role": "user", "content": ""}]}, 400, "invalid_input"),
        ({"model": "assistant", "messages": hi, "tools": [{"type": "web_search"}]}, 400, "invalid_input"),
        ({"model": "assistant", "messages": hi, "tools": [{"type": "function", "function": 5}]}, 400, "invalid_input"),
        ({"model": "assistant", "messages": hi, "tools": [PICK, PICK]}, 400, "invalid_input"),
        ({"model": "assistant", "messages": hi, "n": 2}, 400, "invalid_input"),
        (
            {"model": "assistant", "messages": [{"role": "tool", "tool_call_id": "x", "content": ""}]},
            400,
            "nothing_waits",
        ),
        ({"model": "assistant: ", "messages": hi}, 400, "invalid_input"),
    ]
    for name in ("deploy", "a tool"):
        tool = {"type": "function", "function": {"name": name}}
        bad.append(({"model": "assistant", "messages": hi, "tools": [tool]}, 400, "invalid_tool"))
    orphan = [{"role": "tool", "tool_call_id": "x", "content": "1"}, {"role": "assistant", "content": "?"}, *hi]
    bad.append(({"model": "assistant", "messages": orphan}, 400, "invalid_input"))
    async with serve([agent]) as served, served.client() as client:
        for body, status, code in bad:
            answer = await client.post("/v1/chat/completions", json=body)
            assert (answer.status_code, answer.json()["error"]["code"]) == (status, code), body
            assert answer.json()["error"]["message"]
        broken = await client.post("/v1/chat/completions", content=b"{")
        assert broken.status_code == 400
        assert (await client.get("/v1/chat/completions")).json()["error"]["code"] == "method_not_allowed"
        async with served.client("") as stranger:
            assert (await stranger.get("/v1/models")).json()["error"]["type"] == "authentication_error"
        long = [{"role": "user" if at % 2 else "assistant", "content": f"{at} " * 200} for at in range(2000)]
        body = {"model": "assistant", "messages": [*hi, *long, *hi]}
        assert (await client.post("/v1/chat/completions", json=body)).json()["choices"][0]["message"][
            "content"
        ] == "Hi."
        assert await sessions_of(served) == 1


async def test_a_turn_that_fails_is_an_error_that_clients_do_not_repeat(serve: Serve, scripted: Scripted) -> None:
    async with serve([scripted(fail(400, "no such thing"))]) as served, served.client() as client:
        body = {"model": "assistant", "messages": [{"role": "user", "content": "Hi"}]}
        answer = await client.post("/v1/chat/completions", json=body)
        assert answer.status_code == 400
        assert answer.headers["x-should-retry"] == "false"
        assert "no such thing" in answer.json()["error"]["message"]
        streamed = await client.post("/v1/chat/completions", json={**body, "stream": True})
        assert (streamed.status_code, streamed.json()) == (400, answer.json())


async def test_a_large_answer_is_sent_whole(serve: Serve, scripted: Scripted) -> None:
    text = "word " * 20_000
    async with serve([scripted(say(text))]) as served, served.client() as client:
        assert (await Chat(client).ask("Hi"))["text"] == text


async def test_agents_are_listed_as_models_in_the_form_of_the_client(serve: Serve, scripted: Scripted) -> None:
    async with serve([scripted(say("Hi."), name="guide")]) as served, served.client() as client:
        [model] = (await client.get("/v1/models")).json()["data"]
        assert model == {"id": "guide", "object": "model", "created": 0, "owned_by": "vaka"}
        assert (await client.get("/v1/models/guide")).json() == model
        assert (await client.get("/v1/models/other")).json()["error"]["code"] == "model_not_found"
        claude = {"anthropic-version": "2023-06-01"}
        listed = (await client.get("/v1/models", headers=claude)).json()
        assert (listed["first_id"], listed["last_id"], listed["has_more"]) == ("guide", "guide", False)
        assert (await client.get("/v1/models/guide", headers=claude)).json() == listed["data"][0]


async def test_a_feature_that_is_off_has_no_routes(serve: Serve, scripted: Scripted) -> None:
    settings = ServerSettings(features=frozenset())
    async with serve([scripted(say("Hi."))], settings=settings) as served, served.client() as client:
        for path in ("/v1/models", "/v1/chat/completions", "/v1/responses", "/v1/messages"):
            assert (await client.get(path)).status_code == 404


async def test_tools_of_the_client_and_approvals_outlive_the_server(
    serve: Serve, scripted: Scripted, tmp_path: Path
) -> None:
    store = f"sqlite:///{tmp_path}/vaka.db"
    agent = scripted(call("pick"), call("deploy"), say("Done."), tools=[deploy])
    messages, answer = list[Any](), dict[str, Any]()
    for said in ({"role": "user", "content": "Go"}, None, {"role": "user", "content": "approve"}):
        async with (
            serve([agent], store=store, permissions=vaka.Permissions(confirm=["deploy"])) as served,
            served.client() as client,
        ):
            chat = Chat(client, tools=[PICK])
            chat.messages = messages
            result = {"role": "tool", "tool_call_id": "call_1", "content": "red"}
            answer = await chat.ask(said or result)
            messages = chat.messages
    assert answer["text"] == "Done."


async def test_a_client_that_leaves_stops_its_turn_only_if_it_asks_for_it(serve: Serve, scripted: Scripted) -> None:
    async with serve([scripted(stall())]) as served, served.client() as client:
        body = {"model": "assistant:one", "messages": [{"role": "user", "content": "Hi"}], "stream": True}

        async def leave(**headers: str) -> None:
            async with client.stream("POST", "/v1/chat/completions", json=body, headers=headers) as stream:
                assert stream.headers["x-vaka-session"] == "one"
                if not headers:
                    assert "assistant" in await anext(stream.aiter_lines())

        await leave()
        await leave(**{"x-vaka-on-disconnect": "cancel"})  # its input waits behind the turn of the first
        seen: list[str] = []
        async for event in served.service.runtime.follow("one"):
            seen.append(event.type)
            if event.type == "input.withdrawn":
                break
        assert "turn.interrupted" not in seen
        session = await served.service.open_session(PRINCIPALS["alice"], "one")
        await session.interrupt()
        body["model"] = "assistant:two"
        async with client.stream(
            "POST", "/v1/chat/completions", json=body, headers={"x-vaka-on-disconnect": "cancel"}
        ) as stream:
            assert "assistant" in await anext(stream.aiter_lines())
        async for event in served.service.runtime.follow("two"):
            if event.type == "turn.interrupted":
                break


async def test_a_key_can_be_used_again_after_a_refused_request_and_after_two_days(
    serve: Serve, scripted: Scripted
) -> None:
    clock = FakeClock()
    async with (
        serve([scripted(say("One."))], environment=Environment(clock=clock)) as served,
        served.client() as client,
    ):
        headers = {"Idempotency-Key": "k"}

        async def ask(text: str, **fields: Any) -> httpx2.Response:
            body = {"model": "assistant", "messages": [{"role": "user", "content": text}], **fields}
            return await client.post("/v1/chat/completions", json=body, headers=headers)

        tool = {"type": "function", "function": {"name": "a tool"}}
        assert (await ask("Hi", tools=[tool])).status_code == 400
        first = await ask("Hello")
        clock.advance(24 * 3600)
        assert (await ask("Hello")).json() == first.json()
        clock.advance(2 * 24 * 3600)
        assert (await ask("Other")).json()["id"] != first.json()["id"]
        assert len(await served.service.runtime.store.values.keys("server/requests/")) == 1


async def test_several_approvals_are_decided_by_their_ids(serve: Serve, scripted: Scripted) -> None:
    agent = scripted(calls(call("deploy"), call("deploy")), say("Done."), tools=[deploy])
    async with serve([agent], permissions=vaka.Permissions(confirm=["deploy"])) as served, served.client() as client:
        chat = Chat(client)
        await chat.ask("Go")
        first, second = [row.id for row in await served.service.runtime.decisions()]
        assert (await chat.ask("approve"))["error"]["code"] == "decision_needed"
        assert (await chat.ask(f"approve {first}x"))["error"]["code"] == "decision_needed"
        one_left = await chat.ask(f"approve {first}")
        assert f"'approve {second}'" in one_left["text"]
        assert f"'approve {first}'" not in one_left["text"]
        assert (await chat.ask("reject: not today"))["text"] == "Done."
        opened = await served.service.open_session(PRINCIPALS["alice"], chat.session)
        assert "not today" in str(await opened.messages())


async def test_a_conversation_whose_session_is_gone_begins_again(serve: Serve, scripted: Scripted) -> None:
    async with serve([scripted(say("Hello."), say("Again."))]) as served, served.client() as client:
        chat = Chat(client)
        await chat.ask("Hi")
        session = chat.session
        await served.service.runtime.store.sessions.delete(parse_session_id(session))
        assert (await chat.ask("And?"))["text"] == "Hello."
        assert chat.session != session


async def test_two_equal_requests_at_once_do_not_share_a_session(serve: Serve, scripted: Scripted) -> None:
    started, go_on = asyncio.Event(), asyncio.Event()

    @vaka.tool
    async def hold() -> str:
        """Wait for the test."""
        started.set()
        await go_on.wait()
        return "held"

    agent = scripted(say("Hello."), call("hold"), say("Held."), tools=[hold])
    async with serve([agent]) as served, served.client() as client:
        chat = Chat(client)
        await chat.ask("Hi")
        body = {"model": "assistant", "messages": [*chat.messages, {"role": "user", "content": "Go"}]}
        waiting = asyncio.create_task(client.post("/v1/chat/completions", json=body))
        await started.wait()
        other = await client.post("/v1/chat/completions", json=body)
        assert other.json()["choices"][0]["message"]["content"] == "Hello."
        assert other.headers["x-vaka-session"] != chat.session
        go_on.set()
        first = await waiting
        assert first.json()["choices"][0]["message"]["content"] == "Held."
        assert first.headers["x-vaka-session"] == chat.session


async def test_a_conversation_goes_on_at_another_server_of_the_same_store(
    serve: Serve, scripted: Scripted, tmp_path: Path
) -> None:
    store = f"sqlite:///{tmp_path}/vaka.db"
    agent = scripted(call("pick"), call("deploy"), say("Done."), say("More."), tools=[deploy])
    async with (
        serve([agent], store=store, permissions=vaka.Permissions(confirm=["deploy"])) as first,
        serve([agent], store=store, permissions=vaka.Permissions(confirm=["deploy"])) as second,
        first.client() as one,
        second.client() as other,
    ):
        chat = Chat(one, tools=[PICK])
        await chat.ask("Go")
        session, chat.client = chat.session, other
        await chat.ask({"role": "tool", "tool_call_id": "call_1", "content": "red"})
        chat.client = one
        assert (await chat.ask("approve"))["text"] == "Done."
        chat.client = other
        assert (await chat.ask("And?"))["text"] == "More."
        assert chat.session == session


async def test_streams_that_end_early_end_with_an_error(serve: Serve, scripted: Scripted) -> None:
    started, go_on = asyncio.Event(), asyncio.Event()

    @vaka.tool
    async def hold() -> str:
        """Wait for the test."""
        started.set()
        await go_on.wait()
        return "held"

    said = [{"role": "user", "content": "Hi"}]
    chat, messages = {"messages": said}, {"messages": said, "max_tokens": 9}
    for path, body in (("chat/completions", chat), ("responses", {"input": "Hi"}), ("messages", messages)):
        agent = scripted(call("hold"), say("Held."), tools=[hold])
        async with serve([agent]) as served, served.client() as client:
            given = {"model": "assistant", "stream": True, **body}
            async with client.stream("POST", f"/v1/{path}", json=given) as stream:
                await started.wait()
                await served.service.runtime.hub.close()
                lines = [line async for line in stream.aiter_lines() if line.startswith("data: ")]
            assert "stopped before its turn had ended" in lines[-1]
            assert "error" in lines[-1]
            go_on.set()
        started.clear()
        go_on.clear()


async def test_the_agents_of_a_router_answer_as_it(serve: Serve) -> None:
    router = make_router()
    async with serve([router]) as served, served.client() as client:
        answer = await Chat(client, model=router.name).ask("Book a room and play music.")
        assert (answer["text"], answer["finish"]) == ("Booked.\n\nPlaying.", "stop")


async def test_an_old_conversation_begins_a_new_session_and_leaves_nothing_behind(
    serve: Serve, scripted: Scripted
) -> None:
    clock, day = FakeClock(), 86_400
    agent = scripted(say("Hello."), say("Fine."), say("Late."))
    async with serve([agent], environment=Environment(clock=clock)) as served, served.client() as client:
        chat = Chat(client)
        await chat.ask("Hi.")
        first = chat.session
        clock.jump(30 * day)
        await chat.ask("How are you?")
        assert chat.session == first
        clock.jump(61 * day)
        await chat.ask("Are you there?")
        assert chat.session != first
        assert len(await served.service.runtime.store.values.keys("server/conversations/")) == 1
