"""Events in the Agent2Agent protocol: every object is read by the types of the protocol's own package."""
# ruff: noqa: E501  # a response is one line

import json
import re
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from inline_snapshot import snapshot

import vaka
from tests.views import decision_runs
from tests.views import recorded_runs as runs
from tests.views.test_anthropic import live
from tests.views.test_partial_streams import ROUTERS, partial_runs
from vaka.content import Audio, Document, Image, Reasoning
from vaka.core.types.control import ApprovalRequested, ApprovalResolved, QuestionAnswered, QuestionAsked
from vaka.core.types.ids import CallId, DecisionId, Digest, SessionId
from vaka.core.types.message import ToolResult
from vaka.errors import InvalidInput
from vaka.testing import ScriptedModel, call, say
from vaka.views.a2a import A2aEncoder, agent_card, parts_of, read_message, read_reply, task_of

types: Any = pytest.importorskip("a2a.types")
json_format: Any = pytest.importorskip("google.protobuf.json_format")
proto_utils: Any = pytest.importorskip("a2a.utils.proto_utils")
append_artifact_to_task: Any = pytest.importorskip("a2a.server.tasks.task_manager").append_artifact_to_task


def check(name: str, value: dict[str, Any]) -> Any:
    """Return ``value`` as the protocol's own type, which has read all of it and misses nothing."""
    text = msgspec.json.encode(value).decode()
    read = json_format.Parse(text, getattr(types, name)())
    proto_utils.validate_proto_required_fields(read)
    assert json_format.MessageToDict(read) == json.loads(re.sub(r'("timestamp":"[^"]*)\.000Z"', r'\1Z"', text))
    return read


def encode(events: Iterable[vaka.Event], encoder: A2aEncoder | None = None) -> list[dict[str, Any]]:
    encoder = encoder or A2aEncoder()
    responses = [response for event in events for response in encoder.encode(event)]
    for response in responses:
        check("StreamResponse", response)
    return responses


def outline(responses: Iterable[dict[str, Any]]) -> list[str]:
    """Return one short line for each response."""
    lines: list[str] = []
    for response in responses:
        ((kind, value),) = response.items()
        status = value.get("status", {})
        message = {"parts": status["message"]["parts"]} if "message" in status else {}
        rest = {
            name: value[name] for name in ("artifact", "append", "lastChunk", "metadata", "history") if name in value
        }
        state = status.get("state", "").removeprefix("TASK_STATE_")
        lines.append(f"{kind} {state}{msgspec.json.encode(message | rest).decode()}")
    return lines


def states(responses: Iterable[dict[str, Any]]) -> list[str]:
    """Return the states of a task, each once in a row."""
    found: list[str] = []
    for response in responses:
        for value in response.values():
            state = value.get("status", {}).get("state", "").removeprefix("TASK_STATE_")
            if state and found[-1:] != [state]:
                found.append(state)
    return found


async def test_a_run_with_reasoning_text_and_parallel_calls() -> None:
    events = await runs.record_tools()
    assert outline(encode(events)) == snapshot(
        [
            'task SUBMITTED{"history":[{"messageId":"inp_1","contextId":"s","taskId":"trn_1","role":"ROLE_USER","parts":[{"text":"Go."}]}]}',
            "statusUpdate WORKING{}",
            'artifactUpdate {"artifact":{"artifactId":"msg_1","parts":[{"text":"Let "}]}}',
            'artifactUpdate {"artifact":{"artifactId":"msg_1","parts":[{"text":"me "}]},"append":true}',
            'artifactUpdate {"artifact":{"artifactId":"msg_1","parts":[{"text":"see."}]},"append":true}',
            'artifactUpdate {"artifact":{"artifactId":"msg_1","parts":[{"text":""}]},"append":true,"lastChunk":true}',
            'statusUpdate WORKING{"metadata":{"tool":{"id":"call_1","name":"weather","status":"called"}}}',
            'statusUpdate WORKING{"metadata":{"tool":{"id":"call_2","name":"weather","status":"called"}}}',
            'statusUpdate WORKING{"metadata":{"tool":{"id":"call_3","name":"tide","status":"called"}}}',
            'statusUpdate WORKING{"metadata":{"tool":{"id":"call_4","name":"fly","status":"called"}}}',
            'statusUpdate WORKING{"metadata":{"tool":{"id":"call_3","status":"failed","reason":"denied"}}}',
            'statusUpdate WORKING{"metadata":{"tool":{"id":"call_4","status":"failed","reason":"unknown_tool"}}}',
            'statusUpdate WORKING{"metadata":{"tool":{"id":"call_1","name":"weather","status":"running"}}}',
            'statusUpdate WORKING{"metadata":{"tool":{"id":"call_2","name":"weather","status":"running"}}}',
            'statusUpdate WORKING{"metadata":{"tool":{"id":"call_1","status":"completed"}}}',
            'statusUpdate WORKING{"metadata":{"tool":{"id":"call_2","status":"failed","reason":"error"}}}',
            'artifactUpdate {"artifact":{"artifactId":"msg_2","parts":[{"text":"Grüße, "}]}}',
            'artifactUpdate {"artifact":{"artifactId":"msg_2","parts":[{"text":"世界."}]},"append":true}',
            'artifactUpdate {"artifact":{"artifactId":"msg_2","parts":[{"text":""}]},"append":true,"lastChunk":true}',
            'statusUpdate COMPLETED{"metadata":{"usage":{"input":20,"output":4,"total":24}}}',
        ]
    )
    assert task_of(events) == task_of([event for event in events if event.seq])


async def test_the_task_is_what_the_protocols_own_client_collects() -> None:
    for events in (await runs.record_tools(), await runs.record_retry(), await runs.record_interrupt()):
        started, *updates = encode(events)
        collected = check("StreamResponse", started).task
        for update in updates:
            read = check("StreamResponse", update)
            if read.HasField("artifact_update"):
                append_artifact_to_task(collected, read.artifact_update)
            else:
                collected.status.CopyFrom(read.status_update.status)
        task = check("Task", task_of(events) or {})
        assert task.status == collected.status
        texts = ["".join(part.text for part in artifact.parts) for artifact in collected.artifacts]
        assert ["".join(part.text for part in artifact.parts) for artifact in task.artifacts] == list(
            filter(None, texts)
        )
    assert task_of([]) is None


async def test_child_agents_are_calls_and_routers_are_their_agents() -> None:
    assert outline(encode(await runs.record_child()))[2:-1] == snapshot(
        [
            'statusUpdate WORKING{"metadata":{"tool":{"id":"call_1","name":"scout","status":"called"}}}',
            'statusUpdate WORKING{"metadata":{"tool":{"id":"call_1","name":"scout","status":"running"}}}',
            'statusUpdate WORKING{"metadata":{"tool":{"id":"call_1","status":"completed"}}}',
            'artifactUpdate {"artifact":{"artifactId":"msg_4","parts":[{"text":"Sunny."}]}}',
            'artifactUpdate {"artifact":{"artifactId":"msg_4","parts":[{"text":""}]},"append":true,"lastChunk":true}',
        ]
    )
    events = await runs.record_router()
    routed = encode(events, A2aEncoder(routers=runs.ROUTERS))
    assert [line for line in outline(routed) if "artifact" in line] == snapshot(
        [
            'artifactUpdate {"artifact":{"artifactId":"msg_3","parts":[{"text":"Booked."}]}}',
            'artifactUpdate {"artifact":{"artifactId":"msg_3","parts":[{"text":""}]},"append":true,"lastChunk":true}',
            'artifactUpdate {"artifact":{"artifactId":"msg_4","parts":[{"text":"Playing."}]}}',
            'artifactUpdate {"artifact":{"artifactId":"msg_4","parts":[{"text":""}]},"append":true,"lastChunk":true}',
        ]
    )
    assert [line for line in outline(encode(events)) if "artifact" in line] == snapshot(
        [
            'artifactUpdate {"artifact":{"artifactId":"trn_1","parts":[{"text":"Booked.\\n\\nPlaying."}]},"lastChunk":true}'
        ]
    )
    assert task_of(events, routers=runs.ROUTERS) != task_of(events)


async def test_a_task_ends_in_the_state_of_its_turn() -> None:
    assert outline(encode(await runs.record_interrupt()))[-1] == snapshot(
        'statusUpdate CANCELED{"parts":[{"text":"enough"}],"metadata":{"usage":{"input":0,"output":0,"total":0}}}'
    )
    assert outline(encode(await runs.record_failure()))[-1] == snapshot(
        'statusUpdate FAILED{"parts":[{"text":"no such model (status 400)"}],"metadata":{"usage":{"input":0,"output":0,"total":0},"code":"model_refused","status":400}}'
    )
    assert states(encode([live("turn.cancelled")])) == ["WORKING", "CANCELED"]
    withdrawn = live("turn.failed", code="blocked", message="<script>", withdrawn=True)
    assert states(encode([withdrawn, withdrawn])) == ["WORKING", "REJECTED"]
    model = ScriptedModel(call("weather", city="Hilo") | {"usage": {"cost": 0.5}}, say("never"))
    agent = vaka.Agent("guide", model=model, tools=[runs.weather], limits=vaka.Limits(max_steps=1))
    task = task_of(await runs.record(agent))
    assert task is not None
    assert task["metadata"] == snapshot(
        {"usage": {"input": 0, "output": 0, "total": 0, "cost": 0.5}, "stop": "limit", "limit": "steps"}
    )


async def test_the_turns_of_a_session_are_tasks_with_their_inputs() -> None:
    model = ScriptedModel(say("One."), say("Two."))
    async with runs.runtime() as rt:
        session = await rt.open(vaka.Agent("guide", model=model), id="s")
        events = [event async for event in session.stream("First.")]
        queued = events.pop(-1)
        events += [event async for event in session.stream("Second.")]
    added = next(at for at, event in enumerate(events) if event.type == "input.added" and at > 2)
    events.insert(added + 1, queued)  # the second input comes while the first turn runs
    tasks = [response["task"] for response in encode(events) if "task" in response]
    assert [task["history"][0]["parts"] for task in tasks] == [[{"text": "First."}], [{"text": "Second."}]]
    last = task_of(events)
    assert last is not None
    assert (last["id"], last["artifacts"][0]["parts"]) == (tasks[1]["id"], [{"text": "Two."}])


async def test_an_approval_requires_input() -> None:
    events = await decision_runs.record_approval()
    responses = encode(events)
    assert states(responses) == ["SUBMITTED", "WORKING", "INPUT_REQUIRED", "WORKING", "COMPLETED"]
    asked = next(line for line in outline(responses) if "INPUT_REQUIRED" in line)
    assert re.sub('"expires":"[^"]*"', '"expires":"…"', asked) == snapshot(
        'statusUpdate INPUT_REQUIRED{"parts":[{"text":"weather {\\"city\\":\\"Hilo\\"} needs an approval (the rule weather asks about weather)."},{"data":{"id":"apr_1","kind":"approval","tool":"weather","arguments":{"city":"Hilo"},"scopes":["once","session"],"expires":"…"},"mediaType":"application/json"}]}'
    )
    assert states(encode(await decision_runs.record_child_approval())) == states(responses)
    resumed = await runs.record_resumed()
    assert states(encode(resumed)) == ["SUBMITTED", "WORKING", "INPUT_REQUIRED", "WORKING", "COMPLETED"]
    at = next(at for at, event in enumerate(resumed) if event.type == "turn.resumed")
    assert states(encode(resumed[at:])) == ["WORKING", "COMPLETED"]
    task = task_of(resumed[:at])
    assert task is not None
    assert check("Task", task).status.state == types.TaskState.TASK_STATE_INPUT_REQUIRED


async def test_a_question_requires_input() -> None:
    responses = encode(await decision_runs.record_question())
    assert states(responses) == ["SUBMITTED", "WORKING", "INPUT_REQUIRED", "WORKING", "COMPLETED"]
    assert next(line for line in outline(responses) if "INPUT_REQUIRED" in line) == snapshot(
        'statusUpdate INPUT_REQUIRED{"parts":[{"text":"Which colour? (red, blue)"},{"data":{"id":"qst_trn_1_call_1_1","kind":"question","text":"Which colour?","options":["red","blue"],"call":"call_1"},"mediaType":"application/json"}]}'
    )
    asked = live("question.asked", question="q", text="Why?")
    answered = live("question.answered", question="q", answer="so")
    other = live("approval.requested", approval="a", call=vaka.ToolCall(id=CallId("c"), name="x"), digest="", spec="")
    expired = live("approval.expired", approval="a")
    assert states(encode([asked, answered, asked, other, expired])) == [
        "WORKING",
        "INPUT_REQUIRED",
        "WORKING",
        "INPUT_REQUIRED",
        "WORKING",
    ]


def test_a_message_that_middleware_extends_and_one_that_joins_late() -> None:
    joined = live("message.snapshot", block=0, of="text.delta", text="Grüße")
    thought = live("reasoning.delta", block=1, offset=0, text="hm")
    image = Image(media_type="image/png", data="aGk=")
    completed = live(
        "message.completed", content=(vaka.Text(text="Grüße, 世"), Reasoning(text="hm"), image), stop="end"
    )
    stray = live("message.discarded", message_id="other")
    assert outline(encode([joined, thought, completed, completed, stray])) == snapshot(
        [
            "task WORKING{}",
            'artifactUpdate {"artifact":{"artifactId":"m","parts":[{"text":"Grüße"}]}}',
            'artifactUpdate {"artifact":{"artifactId":"m","parts":[{"text":", 世"},{"raw":"aGk=","mediaType":"image/png"}]},"append":true,"lastChunk":true}',
        ]
    )
    withdrawn = [live("input.added", key="i", content=(vaka.Text(text="no"),)), live("input.withdrawn", input="i")]
    steered = [
        live("input.added", key="j", content=(vaka.Text(text="on"),)),
        live("step.started", agent="a", number=2, inputs=("j",)),
    ]
    started = live("turn.started", agent="a", inputs=("i", "j"))
    assert outline(encode([*withdrawn, *steered, started])) == snapshot(["task WORKING{}"])


# --------------------------------------------------------------------------------------------------------------- replies

APPROVAL = ApprovalRequested(
    approval=DecisionId("a"),
    call=vaka.ToolCall(id=CallId("c"), name="x"),
    digest=Digest(""),
    spec=Digest(""),
    grant="x",
    scopes=("once", "session"),
    expires="2027-01-01T00:00:00.000Z",
)
QUESTION = QuestionAsked(question=DecisionId("q"), text="Which?", options=("Red", "Blue"))
RESULT = QuestionAsked(question=DecisionId("r"), text="pick", call=CallId("c"), kind="result")


def reply(pending: Iterable[Any], *parts: dict[str, Any]) -> list[Any]:
    message = {"messageId": "m", "role": "ROLE_USER", "taskId": "t", "parts": list(parts)}
    asked = [vaka.Event(data=body, session=SessionId("s"), ts="2026-01-01T00:00:00.000Z") for body in pending]
    return read_reply(message, asked)


def test_a_reply_decides_by_text_or_data() -> None:
    approved = ApprovalResolved(approval=DecisionId("a"), decision="approve")
    assert reply([APPROVAL], {"text": " Yes. "}) == [approved]
    assert reply([APPROVAL], {"text": "reject"})[0].decision == "reject"
    details = {"id": "a", "decision": "approve", "scope": "session", "edit": {"n": 1}, "message": "ok"}
    both = reply([APPROVAL, QUESTION], {"data": details}, {"data": {"id": "q", "answer": ["Red"]}})
    assert both == [
        ApprovalResolved(approval=DecisionId("a"), decision="approve", scope="session", edit={"n": 1}, message="ok"),
        QuestionAnswered(question=DecisionId("q"), answer=["Red"]),
    ]
    assert [reply([QUESTION], {"text": text})[0].answer for text in ("blue ", "Green")] == ["Blue", "Green"]
    assert reply([RESULT], {"data": {"id": "r", "result": {"n": 1}, "failed": True}}) == [
        ToolResult(call=CallId("c"), content=(vaka.Text(text='{"n":1}'),), failed=True, value={"n": 1})
    ]
    assert reply([RESULT], {"text": "map.png"})[0].content == (vaka.Text(text="map.png"),)


@pytest.mark.parametrize(
    ("pending", "parts", "message"),
    [
        ([APPROVAL], [], "'parts' must be a list of one or more parts"),
        ([APPROVAL], [{"text": "perhaps"}], "must be 'approve' or 'reject'"),
        ([APPROVAL, QUESTION], [{"text": "yes"}], "'data' must name one of the 2 open decisions"),
        ([], [{"data": {"id": "a"}}], "'a' is not open; open are: none"),
        ([APPROVAL], [{"data": {"id": "a"}}], "'decision': 'approve' or 'reject'"),
        ([APPROVAL], [{"data": {"id": "a", "decision": "approve", "edit": 1}}], "Expected `object"),
        (
            [APPROVAL],
            [{"data": {"id": "a", "decision": "approve", "scope": "user"}}],
            "'scope' must be one of once, session",
        ),
        ([QUESTION], [{"data": {"id": "q"}}], "'answer': …"),
        ([RESULT], [{"data": {"id": "r"}}], "'result': …"),
        ([QUESTION], [{"text": "red"}, {"text": "blue"}], "two parts decide the same"),
        ([RESULT], [{"text": "red"}, {"text": "blue"}], "two parts decide the same"),
    ],
)
def test_a_bad_reply_is_refused(pending: list[Any], parts: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        reply(pending, *parts)


# ----------------------------------------------------------------------------------------------------- content and cards


def test_parts_of_a_message_become_content_and_back() -> None:
    parts = [
        {"text": "Grüße <script>"},
        {"raw": "aGk=", "mediaType": "image/png"},
        {"url": "https://a.example/b.wav", "mediaType": "audio/wav"},
        {"raw": "aGk=", "mediaType": "application/pdf", "filename": "a.pdf"},
    ]
    message = {
        "messageId": "m",
        "contextId": "s",
        "taskId": "t",
        "role": "ROLE_USER",
        "parts": [*parts, {"data": {"n": 1}}],
    }
    check("Message", message)
    read = read_message(message)
    assert (read.key, read.session, read.turn) == ("m", "s", "t")
    assert parts_of(read.content) == [*parts, {"text": '{"n":1}'}]
    assert isinstance(read.content[3], Document)
    new = read_message({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": ""}]})
    assert (new.session, new.turn) == (None, None)
    assert parts_of((Audio(media_type="audio/wav", blob=Digest("d")), Reasoning(text="hm"))) == [
        {"text": "[audio/wav]"}
    ]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"role": "ROLE_AGENT"}, "the role must be 'ROLE_USER', not 'ROLE_AGENT'"),
        ({"role": None}, "message: 'role' must be a string"),
        ({"messageId": ""}, "'messageId' must not be empty"),
        ({"contextId": 7}, "'contextId' must be a string"),
        ({"contextId": "a\n"}, "session id"),
        ({"parts": []}, "'parts' must be a list of one or more parts"),
        ({"parts": [7]}, r"message.parts\[0\]: exactly one of 'text', 'raw', 'url', 'data' must be set"),
        ({"parts": [{"text": "a", "url": "b"}]}, "exactly one of"),
        ({"parts": [{"raw": "?"}]}, "'raw' must be base64"),
        ({"parts": [{"url": 7}]}, "'url' must be a string"),
    ],
)
def test_a_bad_message_is_refused(changes: dict[str, Any], message: str) -> None:
    given = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "a"}]}
    with pytest.raises(InvalidInput, match=message):
        read_message(given | changes)


def test_an_agent_has_a_card() -> None:
    agent = vaka.Agent("guide", description="Knows boats.")
    interfaces = {"JSONRPC": "https://a.example/a2a", "HTTP+JSON": "https://a.example/a2a/v1"}
    card = agent_card(agent, interfaces, version="1", details={"documentationUrl": "https://a.example/docs"})
    check("AgentCard", card)
    assert card == snapshot(
        {
            "name": "guide",
            "description": "Knows boats.",
            "version": "1",
            "supportedInterfaces": [
                {"url": "https://a.example/a2a", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
                {"url": "https://a.example/a2a/v1", "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"},
            ],
            "capabilities": {"streaming": True},
            "defaultInputModes": ["text/plain", "application/json", "image/*", "audio/*", "application/pdf"],
            "defaultOutputModes": ["text/plain"],
            "skills": [{"id": "guide", "name": "guide", "description": "Knows boats.", "tags": ["agent"]}],
            "documentationUrl": "https://a.example/docs",
        }
    )
    router = agent_card(runs.make_router(), interfaces, version="1", skills=[agent, vaka.Agent("desk")])
    assert [(skill["id"], skill["description"]) for skill in router["skills"]] == [
        ("guide", "Knows boats."),
        ("desk", "desk"),
    ]
    for bad, message in (({"SOAP": "x"}, "'SOAP' is not one of JSONRPC"), ({}, "needs the address")):
        with pytest.raises(InvalidInput, match=message):
            agent_card(agent, bad, version="1")


@given(partial_runs(), ROUTERS)
def test_every_part_of_a_run_is_a_well_formed_stream(events: list[vaka.Event], routers: tuple[str, ...]) -> None:
    artifacts: set[str] = set()
    responses = encode(events, A2aEncoder(routers=routers))
    assert all("task" in response for response in responses[:1])
    for response in responses:
        if "task" in response:
            artifacts.clear()
        elif update := response.get("artifactUpdate"):
            assert update["artifact"]["artifactId"] in artifacts or "append" not in update
            artifacts.add(update["artifact"]["artifactId"])
    ended = [at for at, state in enumerate(states(responses)) if state in {"COMPLETED", "FAILED", "CANCELED"}]
    assert ended in ([], [len(states(responses)) - 1])
