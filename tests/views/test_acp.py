"""Events in the Agent Client Protocol: every object is read by the types of the protocol's own package."""
# ruff: noqa: E501  # an update is one line

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

import vaka
from tests.views import decision_runs
from tests.views import recorded_runs as runs
from tests.views.test_anthropic import live
from tests.views.test_partial_streams import ROUTERS, partial_runs
from vaka.content import Audio, Document, Image, Reasoning
from vaka.core.types.control import ApprovalRequested, ApprovalResolved, QuestionAnswered, QuestionAsked
from vaka.core.types.ids import CallId, DecisionId, Digest, SessionId
from vaka.core.types.message import Part, Stored, ToolResult
from vaka.errors import InvalidInput
from vaka.testing import ScriptedModel, call, say
from vaka.tools import ToolTraits
from vaka.views.acp import AcpEncoder, content_block_of, describe_call, read_answer, read_prompt, request_of

schema = pytest.importorskip("acp.schema")


def check(model: Any, value: dict[str, Any]) -> dict[str, Any]:
    """Return ``value`` after the protocol's own type has read it; the type drops what it does not understand."""
    read = model.model_validate_json(msgspec.json.encode(value)).model_dump(
        mode="json", by_alias=True, exclude_unset=True
    )
    assert read == value
    return value


def encode(events: Iterable[vaka.Event], encoder: AcpEncoder | None = None) -> list[dict[str, Any]]:
    encoder = encoder or AcpEncoder()
    return [check(schema.SessionNotification, params)["update"] for event in events for params in encoder.encode(event)]


def outcome(events: Iterable[vaka.Event]) -> dict[str, Any]:
    """Return the answer to the prompt of these events."""
    encoder = AcpEncoder()
    encode(events, encoder)
    assert encoder.outcome is not None
    ((member, value),) = encoder.outcome.items()
    return check(schema.PromptResponse if member == "result" else schema.Error, value)


def outline(updates: Iterable[dict[str, Any]]) -> list[str]:
    """Return one short line for each update."""
    lines: list[str] = []
    for update in updates:
        rest = {name: value for name, value in update.items() if name not in {"sessionUpdate", "messageId"}}
        lines.append(f"{update['sessionUpdate']} {msgspec.json.encode(rest).decode()}")
    return lines


async def test_a_run_with_reasoning_text_and_parallel_calls() -> None:
    events = await runs.record_tools()
    assert outline(encode(events)) == snapshot(
        [
            'agent_thought_chunk {"content":{"type":"text","text":"hm"}}',
            'agent_message_chunk {"content":{"type":"text","text":"Let "}}',
            'agent_message_chunk {"content":{"type":"text","text":"me "}}',
            'agent_message_chunk {"content":{"type":"text","text":"see."}}',
            'tool_call {"toolCallId":"call_1","title":"weather","kind":"other","rawInput":{"city":"Hilo"},"status":"pending"}',
            'tool_call {"toolCallId":"call_2","title":"weather","kind":"other","rawInput":{"city":"Atlantis"},"status":"pending"}',
            'tool_call {"toolCallId":"call_3","title":"tide","kind":"other","rawInput":{},"status":"pending"}',
            'tool_call {"toolCallId":"call_4","title":"fly","kind":"other","rawInput":"{}","status":"pending"}',
            'tool_call_update {"toolCallId":"call_3","status":"failed","content":[{"type":"content","content":{"type":"text","text":"tide is not allowed here"}}],"_meta":{"vaka":{"reason":"denied"}}}',
            'tool_call_update {"toolCallId":"call_4","status":"failed","content":[{"type":"content","content":{"type":"text","text":"there is no tool \'fly\'; the tools are: weather"}}],"_meta":{"vaka":{"reason":"unknown_tool"}}}',
            'tool_call_update {"toolCallId":"call_1","status":"in_progress"}',
            'tool_call_update {"toolCallId":"call_2","status":"in_progress"}',
            'tool_call_update {"toolCallId":"call_1","status":"completed","content":[{"type":"content","content":{"type":"text","text":"sunny in Hilo"}}]}',
            'tool_call_update {"toolCallId":"call_2","status":"failed","content":[{"type":"content","content":{"type":"text","text":"ValueError: there is no Atlantis"}}],"_meta":{"vaka":{"reason":"error"}}}',
            'agent_message_chunk {"content":{"type":"text","text":"Grüße, "}}',
            'agent_message_chunk {"content":{"type":"text","text":"世界."}}',
        ]
    )
    assert outline([outcome(events) | {"sessionUpdate": "end"}]) == snapshot(
        [
            'end {"stopReason":"end_turn","usage":{"totalTokens":24,"inputTokens":20,"outputTokens":4,"thoughtTokens":0,"cachedReadTokens":0,"cachedWriteTokens":0}}'
        ]
    )
    stored = encode([event for event in events if event.seq])
    assert [update["content"]["text"] for update in stored if "chunk" in update["sessionUpdate"]] == [
        "hm",
        "Let me see.",
        "Grüße, 世界.",
    ]


async def test_a_running_tool_shows_the_end_of_its_output() -> None:
    assert outline(encode(await runs.record_output())) == snapshot(
        [
            'tool_call {"toolCallId":"call_1","title":"count","kind":"other","rawInput":{"to":2},"status":"pending"}',
            'tool_call_update {"toolCallId":"call_1","status":"in_progress"}',
            'tool_call_update {"toolCallId":"call_1","status":"in_progress","content":[{"type":"content","content":{"type":"text","text":"1\\n"}}]}',
            'tool_call_update {"toolCallId":"call_1","status":"in_progress","content":[{"type":"content","content":{"type":"text","text":"1\\n2\\n"}}]}',
            'tool_call_update {"toolCallId":"call_1","status":"completed","content":[{"type":"content","content":{"type":"text","text":"done"}}]}',
            'agent_message_chunk {"content":{"type":"text","text":"Counted."}}',
        ]
    )
    long = live("tool.output.delta", message_id="call_1", block=0, offset=0, text="a" * 5000)
    (announced, update) = encode([long])
    assert (announced["title"], len(update["content"][0]["content"]["text"])) == ("Tool call", 4000)
    joined = live("message.snapshot", message_id="call_1", block=0, of="tool.output.delta", text="aab", offset=4998)
    stderr = live("tool.output.delta", message_id="call_1", block=1, offset=0, text="c", stream="stderr")
    updates = encode([long, joined, joined, stderr, stderr])
    assert [update["content"][0]["content"]["text"][-3:] for update in updates[1:]] == ["aaa", "aab", "abc"]
    ended = live("tool.completed", result=ToolResult(call=CallId("call_1")))
    assert len(encode([long, ended, ended, long])) == 3


async def test_child_agents_are_calls_and_routers_are_their_agents() -> None:
    assert outline(encode(await runs.record_child())) == snapshot(
        [
            'tool_call {"toolCallId":"call_1","title":"scout","kind":"other","rawInput":{"prompt":"Look."},"status":"pending"}',
            'tool_call_update {"toolCallId":"call_1","status":"in_progress"}',
            'tool_call_update {"toolCallId":"call_1","kind":"think","title":"scout"}',
            'tool_call_update {"toolCallId":"call_1","status":"completed","content":[{"type":"content","content":{"type":"text","text":"It shines."}}]}',
            'agent_message_chunk {"content":{"type":"text","text":"Sunny."}}',
        ]
    )
    events = await runs.record_router()
    assert outline(encode(events, AcpEncoder(routers=runs.ROUTERS))) == snapshot(
        [
            'tool_call {"toolCallId":"call_1.1.1","title":"weather","kind":"other","rawInput":{"city":"Hilo"},"status":"pending"}',
            'tool_call_update {"toolCallId":"call_1.1.1","status":"in_progress"}',
            'tool_call_update {"toolCallId":"call_1.1.1","status":"completed","content":[{"type":"content","content":{"type":"text","text":"sunny in Hilo"}}]}',
            'tool_call {"toolCallId":"call_1.1.2","title":"leave","kind":"other","rawInput":{},"status":"pending"}',
            'tool_call_update {"toolCallId":"call_1.1.2","status":"in_progress"}',
            'tool_call_update {"toolCallId":"call_1.1.2","status":"completed","content":[{"type":"content","content":{"type":"text","text":"ok"}}]}',
            'agent_message_chunk {"content":{"type":"text","text":"Booked."}}',
            'agent_message_chunk {"content":{"type":"text","text":"Playing."}}',
        ]
    )
    assert outline(encode(events))[-1] == snapshot(
        'agent_message_chunk {"content":{"type":"text","text":"Booked.\\n\\nPlaying."}}'
    )


async def test_the_answer_to_a_prompt_says_why_the_turn_has_ended() -> None:
    assert outcome(await runs.record_interrupt())["stopReason"] == "cancelled"
    assert outcome([live("turn.cancelled")])["stopReason"] == "cancelled"
    assert outcome(await runs.record_failure()) == snapshot(
        {"code": -32603, "message": "no such model (status 400)", "data": {"code": "model_refused", "status": 400}}
    )
    withdrawn = live("turn.failed", code="blocked", message="no", withdrawn=True)
    assert outcome([withdrawn])["stopReason"] == "refusal"
    model = ScriptedModel(call("weather", city="Hilo"), say("never"))
    agent = vaka.Agent("guide", model=model, tools=[runs.weather], limits=vaka.Limits(max_steps=1))
    assert outcome(await runs.record(agent))["stopReason"] == "max_turn_requests"
    assert outcome([live("turn.completed", text="", stop="limit", limit="tokens")])["stopReason"] == "max_tokens"
    cut = live("message.completed", content=(vaka.Text(text="So"),), stop="length")
    assert outcome([cut, live("turn.completed", text="So")])["stopReason"] == "max_tokens"
    encoder = AcpEncoder()
    called = live("tool.called", call=vaka.ToolCall(id=CallId("call_1"), name="look"))
    assert encode([called, live("turn.interrupted")], encoder)[-1]["status"] == "failed"
    assert encode([live("turn.resumed", agent="guide")], encoder) == []
    assert encoder.outcome is None


async def test_a_discarded_message_is_marked() -> None:
    assert outline(encode(await runs.record_retry())) == snapshot(
        [
            'agent_message_chunk {"content":{"type":"text","text":"Hel"}}',
            'agent_message_chunk {"content":{"type":"text","text":"\\n\\n"},"_meta":{"vaka":{"discarded":"the answer of scripted was cut: it ended without its end marker"}}}',
            'agent_message_chunk {"content":{"type":"text","text":"Hello."}}',
        ]
    )


async def test_a_turn_goes_on_after_an_approval_in_another_process() -> None:
    events = await runs.record_resumed()
    assert [line.partition(" ")[0] for line in outline(encode(events))] == snapshot(
        ["tool_call", "tool_call_update", "tool_call_update", "agent_message_chunk"]
    )
    resumed = next(at for at, event in enumerate(events) if event.type == "turn.resumed")
    assert outline(encode(events[resumed:]))[:2] == snapshot(
        [
            'tool_call {"toolCallId":"call_1","title":"weather","kind":"other","rawInput":{"city":"Hilo"},"status":"pending"}',
            'tool_call_update {"toolCallId":"call_1","status":"in_progress"}',
        ]
    )


async def test_a_reader_may_join_within_a_message_and_repeated_deltas_change_nothing() -> None:
    joined = live("message.snapshot", block=0, of="text.delta", text="Grüße")
    pieces = [(3, "ße"), (4, "e, 世"), (4, "e, 世"), (9, "lost")]
    later = [live("text.delta", block=0, offset=offset, text=text) for offset, text in pieces]
    completed = live("message.completed", content=(vaka.Text(text="Grüße, 世, <b>x</b>"),), stop="end")
    other = live("reasoning.delta", block=0, offset=0, text="of another kind")
    arguments = live("message.snapshot", block=1, of="tool.args.delta", text="{}")
    updates = encode([joined, *later, other, arguments, completed, completed, joined])
    assert [update["content"]["text"] for update in updates] == ["Grüße", ", 世", ", <b>x</b>"]


async def test_a_replayed_session_shows_inputs_titles_plans_and_usage() -> None:
    todos = [{"content": "Sail", "status": "in_progress"}, {"content": "Land", "status": "pending"}]
    model = ScriptedModel(call("TodoWrite", todos=todos), call("TodoWrite", todos=[]), say("ok", usage={"cost": 0.5}))
    events = await runs.record(vaka.Agent("guide", model=model, tools=["TodoWrite"]))
    opened = live("session.opened", title="Boats")
    foreign = live("state.changed", key="todos", value=[1, {"content": "x", "status": "lost"}])
    withdrawn = [live("input.added", key="i", content=(vaka.Text(text="no"),)), live("input.withdrawn", input="i")]
    encoder = AcpEncoder(inputs=True, context_size=1000)
    updates = encode([opened, *withdrawn, *(event for event in events if event.seq), foreign], encoder)
    assert outline(update for update in updates if "tool" not in update["sessionUpdate"]) == snapshot(
        [
            'session_info_update {"title":"Boats","updatedAt":"2026-01-01T00:00:00.000Z"}',
            'user_message_chunk {"content":{"type":"text","text":"Go."}}',
            'usage_update {"used":90,"size":1000}',
            'plan {"entries":[{"content":"Sail","priority":"medium","status":"in_progress"},{"content":"Land","priority":"medium","status":"pending"}]}',
            'usage_update {"used":100,"size":1000}',
            'plan {"entries":[]}',
            'agent_message_chunk {"content":{"type":"text","text":"ok"}}',
            'usage_update {"used":0,"size":1000,"cost":{"amount":0.5,"currency":"USD"}}',
            'plan {"entries":[]}',
        ]
    )
    assert encode([live("state.changed", key="todos", value={"own": 1})]) == []


def test_built_in_tools_have_kinds_files_and_changes() -> None:
    def describe(name: str, effect: str = "once", **arguments: Any) -> dict[str, Any]:
        given = vaka.ToolCall(id=CallId("call_1"), name=name, arguments=arguments)
        return check(schema.ToolCall, describe_call(given, effect=effect, root="/boat"))

    edit = {"file_path": "a.py", "old_string": "<b>", "new_string": "<i>"}
    assert describe("Edit", **edit) == snapshot(
        {
            "toolCallId": "call_1",
            "title": "Edit a.py",
            "kind": "edit",
            "rawInput": {"file_path": "a.py", "old_string": "<b>", "new_string": "<i>"},
            "locations": [{"path": "/boat/a.py"}],
            "content": [{"type": "diff", "path": "/boat/a.py", "oldText": "<b>", "newText": "<i>"}],
        }
    )
    assert describe("MultiEdit", file_path="/a", edits=[edit, "bad", {"new_string": 1}])["content"] == snapshot(
        [{"type": "diff", "path": "/a", "oldText": "<b>", "newText": "<i>"}]
    )
    assert describe("Write", file_path="a", content="new")["content"] == snapshot(
        [{"type": "diff", "path": "/boat/a", "oldText": None, "newText": "new"}]
    )
    assert describe("Write", file_path=7, content=8).keys() == {"toolCallId", "title", "kind", "rawInput"}
    assert describe("Bash", command="make\n " + "x" * 200)["title"] == f"Bash make {'x' * 109}…"
    kinds = {describe(name)["kind"] for name in ("Read", "Grep", "WebFetch", "Bash", "TodoWrite", "fly")}
    assert kinds == {"read", "search", "fetch", "execute", "think", "other"}
    assert describe("look", effect="read")["kind"] == "read"
    raw = vaka.ToolCall(id=CallId("call_1"), name="fly", raw="{not JSON")
    assert describe_call(raw, kinds={"fly": "move"}) | {"title": ""} == snapshot(
        {"toolCallId": "call_1", "title": "", "kind": "move", "rawInput": "{not JSON"}
    )


def test_a_tool_with_traits_has_their_kind_files_and_changes() -> None:
    def describe(traits: ToolTraits, **arguments: Any) -> dict[str, Any]:
        given = vaka.ToolCall(id=CallId("call_1"), name="own", arguments=arguments)
        return check(schema.ToolCall, describe_call(given, root="/boat", traits={"own": traits}))

    patch = ToolTraits(writes=True, paths=("name",), replacement=("before", "after"))
    described = describe(patch, name="a", before="x", after="y", path="no file")
    assert (described["title"], described["kind"], described["locations"]) == ("own a", "edit", [{"path": "/boat/a"}])
    assert described["content"] == [{"type": "diff", "path": "/boat/a", "oldText": "x", "newText": "y"}]
    many = msgspec.structs.replace(patch, replacements="changes")
    changes = [{"before": "x", "after": "y"}, {"before": 1, "after": "y"}]
    assert len(describe(many, name="a", changes=changes)["content"]) == 1
    kinds = [
        describe(traits)["kind"]
        for traits in (
            ToolTraits(commands=True, command="script"),
            ToolTraits(reads=True, folders=("folder",)),
            ToolTraits(network=True, url="address"),
            ToolTraits(reads=True, paths=("name",)),
            ToolTraits(session=True),
        )
    ]
    assert kinds == ["execute", "search", "fetch", "read", "think"]


# -------------------------------------------------------------------------------------------------------------- requests


def event_of(body: Any) -> vaka.Event:
    return vaka.Event(data=body, session=SessionId("s"), ts="2026-01-01T00:00:00.000Z")


def find(events: Iterable[vaka.Event], kind: str) -> vaka.Event:
    return next(event for event in events if event.type == kind)


async def test_an_approval_is_a_permission_request() -> None:
    events = await decision_runs.record_approval()
    requested = find(events, "approval.requested")
    request = request_of(requested)
    assert request is not None
    params = check(schema.RequestPermissionRequest, request.params)
    assert (request.method, params) == snapshot(
        (
            "session/request_permission",
            {
                "sessionId": "s",
                "toolCall": {
                    "toolCallId": "call_1",
                    "title": "weather",
                    "kind": "other",
                    "rawInput": {"city": "Hilo"},
                    "content": [
                        {"type": "content", "content": {"type": "text", "text": "the rule weather asks about weather"}}
                    ],
                    "status": "pending",
                },
                "options": [
                    {"optionId": "approve", "name": "Approve once", "kind": "allow_once"},
                    {"optionId": "approve_session", "name": "Approve weather for this session", "kind": "allow_always"},
                    {"optionId": "reject", "name": "Reject", "kind": "reject_once"},
                ],
            },
        )
    )
    for option, scope in (("approve", "once"), ("approve_session", "session"), ("reject", "once")):
        answer = read_answer(requested, {"outcome": {"outcome": "selected", "optionId": option}})
        assert isinstance(answer, ApprovalResolved)
        assert (answer.decision, answer.scope) == (option.partition("_")[0], scope)
    assert read_answer(requested, {"outcome": {"outcome": "cancelled"}}) is None
    assert [update.get("status") for update in encode(events) if "tool" in update["sessionUpdate"]] == [
        "pending",
        "in_progress",
        "completed",
    ]
    rejected = encode(await decision_runs.record_approval("reject"))
    failed = next(update for update in rejected if update.get("status") == "failed")
    assert failed["_meta"] == {"vaka": {"reason": "denied"}}
    of_child = request_of(find(await decision_runs.record_child_approval(), "approval.requested"))
    assert of_child is not None
    assert of_child.params["toolCall"]["toolCallId"] == "call_1.1"
    only_edit = msgspec.structs.replace(requested.data, decisions=("edit",), message="Really?")
    offered = request_of(event_of(only_edit))
    assert offered is not None
    assert [option["optionId"] for option in offered.params["options"]] == ["reject"]


async def test_a_question_is_a_form_or_a_choice() -> None:
    asked = find(await decision_runs.record_question(), "question.asked")
    form, choice = request_of(asked, elicitation=True), request_of(asked)
    assert form is not None
    assert choice is not None
    check(schema.CreateFormSessionElicitationRequest, form.params)
    assert (form.method, form.params) == snapshot(
        (
            "elicitation/create",
            {
                "sessionId": "s",
                "mode": "form",
                "message": "Which colour?",
                "requestedSchema": {
                    "type": "object",
                    "properties": {
                        "choice": {"type": "string", "enum": ["red", "blue"], "title": "Choice"},
                        "answer": {
                            "type": "string",
                            "title": "In your own words",
                            "description": "Instead of a choice, or several of them.",
                        },
                    },
                },
            },
        )
    )
    assert check(schema.RequestPermissionRequest, choice.params) == snapshot(
        {
            "sessionId": "s",
            "toolCall": {
                "toolCallId": "call_1",
                "title": "Which colour?",
                "content": [{"type": "content", "content": {"type": "text", "text": "Which colour?"}}],
            },
            "options": [
                {"optionId": "1", "name": "red", "kind": "allow_once"},
                {"optionId": "2", "name": "blue", "kind": "allow_once"},
            ],
        }
    )

    def answer_of(result: dict[str, Any]) -> Any:
        answer = read_answer(asked, result)
        assert isinstance(answer, QuestionAnswered)
        return answer.answer

    assert answer_of({"outcome": {"outcome": "selected", "optionId": "2"}}) == "blue"
    assert answer_of({"action": "accept", "content": {"answer": "red"}}) == "red"
    assert answer_of({"action": "accept", "content": {"choice": "red", "answer": "green"}}) == "green"
    assert answer_of({"action": "decline"}) is answer_of({"action": "cancel"}) is None
    free = QuestionAsked(question=DecisionId("q"), text="Why?")
    assert request_of(event_of(free)) is None
    free_form = request_of(event_of(free), elicitation=True)
    assert free_form is not None
    assert check(schema.CreateFormSessionElicitationRequest, free_form.params)["requestedSchema"]["required"] == [
        "answer"
    ]
    result = msgspec.structs.replace(free, kind="result")
    assert request_of(event_of(result), elicitation=True) is None
    assert request_of(live("turn.cancelled")) is None


APPROVAL = ApprovalRequested(
    approval=DecisionId("a"), call=vaka.ToolCall(id=CallId("c"), name="x"), digest=Digest(""), spec=Digest("")
)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ([], "outcome: 'outcome' must be a string"),
        ({"outcome": {"outcome": "maybe"}}, "outcome: 'maybe' is not 'selected' or 'cancelled'"),
        ({"outcome": {"outcome": "selected"}}, "outcome: 'optionId' must be a string"),
        ({"outcome": {"outcome": "selected", "optionId": "approve_user"}}, "'approve_user' is not an option"),
        ({"action": "accept", "content": {"answer": " "}}, "'answer' must be a text that is not blank"),
        ({"action": "accept"}, "'answer' must be a text that is not blank"),
        ({"action": "shrug"}, "action: 'shrug' is not 'accept', 'decline' or 'cancel'"),
    ],
)
def test_a_bad_answer_is_refused(result: Any, message: str) -> None:
    body = QuestionAsked(question=DecisionId("q"), text="Why?") if "action" in result else APPROVAL
    with pytest.raises(InvalidInput, match=message):
        read_answer(event_of(body), result)


# --------------------------------------------------------------------------------------------------------------- content


def test_the_blocks_of_a_prompt_become_content() -> None:
    prompt = [
        {"type": "text", "text": "Grüße <script>"},
        {"type": "image", "data": "aGk=", "mimeType": "image/png"},
        {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"},
        {"type": "resource_link", "name": "a.py", "uri": "file:///a.py"},
        {"type": "resource", "resource": {"uri": 'file:///"b', "text": "x = 1", "mimeType": "text/x-python"}},
        {"type": "resource", "resource": {"uri": "file:///c.pdf", "blob": "aGk=", "mimeType": "application/pdf"}},
        {"type": "resource", "resource": {"uri": "d.png", "blob": "aGk=", "mimeType": "image/png"}},
        {"type": "resource", "resource": {"uri": "e.wav", "blob": "aGk=", "mimeType": "audio/wav"}},
    ]
    check(schema.PromptRequest, {"sessionId": "s", "prompt": prompt})
    content = read_prompt(prompt)
    assert msgspec.to_builtins(content) == snapshot(
        (
            {"type": "text", "text": "Grüße <script>"},
            {"type": "image", "media_type": "image/png", "data": "aGk="},
            {"type": "audio", "media_type": "audio/wav", "data": "aGk="},
            {"type": "text", "text": "[a.py](file:///a.py)"},
            {
                "type": "text",
                "text": """\
<resource uri="file:///&quot;b">
x = 1
</resource>\
""",
            },
            {"type": "document", "media_type": "application/pdf", "data": "aGk=", "name": "c.pdf"},
            {"type": "image", "media_type": "image/png", "data": "aGk="},
            {"type": "audio", "media_type": "audio/wav", "data": "aGk="},
        )
    )
    assert [content_block_of(part) for part in content[:3]] == prompt[:3]


def test_parts_without_bytes_are_links_or_names() -> None:
    parts: list[Part] = [
        Image(media_type="image/png", url="https://a.example/b.png"),
        Audio(media_type="audio/wav", blob=Digest("d")),
        Document(media_type="application/pdf", data="aGk=", name="a.pdf"),
        Stored(blob=Digest("d"), size=9, preview="It begins"),
    ]
    blocks = [content_block_of(part) for part in parts]
    assert blocks == snapshot(
        [
            {"type": "resource_link", "uri": "https://a.example/b.png", "name": "image/png", "mimeType": "image/png"},
            {"type": "text", "text": "[audio/wav]"},
            {
                "type": "resource",
                "resource": {"uri": "attachment:a.pdf", "blob": "aGk=", "mimeType": "application/pdf"},
            },
            {"type": "text", "text": "It begins"},
        ]
    )
    check(schema.PromptRequest, {"sessionId": "s", "prompt": blocks})
    assert content_block_of(Reasoning(text="hm")) is None
    shown = live("message.completed", content=(parts[0], parts[3], Reasoning()), stop="end")
    assert [update["content"]["type"] for update in encode([shown])] == ["resource_link", "text"]


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ("Go.", "prompt must be a list of one or more content blocks"),
        ([], "prompt must be a list of one or more content blocks"),
        ([{"type": "text", "text": "a"}, 7], r"prompt\[1\]: 'type' must be a string"),
        ([{"type": "video"}], r"prompt\[0\]: 'video' is not text, image"),
        ([{"type": "image", "data": "?", "mimeType": "image/png"}], r"prompt\[0\]: 'data' must be base64"),
        ([{"type": "image", "data": "", "mimeType": "image/png"}], r"prompt\[0\]: 'data' must not be empty"),
        ([{"type": "resource"}], r"prompt\[0\].resource: 'uri' must be a string"),
        ([{"type": "resource", "resource": {"uri": "a"}}], r"prompt\[0\].resource: 'text' must be a string"),
        ([{"type": "resource", "resource": {"uri": "a", "blob": "aGk=", "mimeType": 1}}], "'mimeType' must be"),
    ],
)
def test_a_bad_prompt_is_refused(prompt: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        read_prompt(prompt)


@given(partial_runs(), ROUTERS, st.booleans())
def test_every_update_of_any_part_of_a_run_names_a_known_call(
    events: list[vaka.Event], routers: tuple[str, ...], inputs: bool
) -> None:
    encoder = AcpEncoder(routers=routers, inputs=inputs, context_size=9)
    known: set[str] = set()
    for event in events:
        for update in encode([event], encoder):
            if update["sessionUpdate"] == "tool_call":
                known.add(update["toolCallId"])
            elif update["sessionUpdate"] == "tool_call_update":
                assert update["toolCallId"] in known
            elif "chunk" in update["sessionUpdate"]:
                assert update["content"]["text"]
