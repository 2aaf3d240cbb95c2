"""Events and objects of the Responses API, for whole runs and parts of them, and the requests of OpenAI's clients."""

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from inline_snapshot import snapshot

import vaka
from tests.views import recorded_runs as runs
from tests.views.openai_clients import check, read_with_client
from tests.views.test_openai import completed, made, text
from vaka.content import AssistantMessage, Image, Text, ToolMessage, UserMessage
from vaka.core.types.control import ApprovalResolved
from vaka.core.types.ids import DecisionId
from vaka.errors import InvalidInput
from vaka.testing import ScriptedModel, say
from vaka.views.responses import (
    SECTION,
    ResponseEncoder,
    parse_response_id,
    resume_after,
    to_response,
    to_sse,
)
from vaka.views.responses_requests import parse_responses_request


def encode(
    events: Iterable[vaka.Event], encoder: ResponseEncoder | None = None, **options: Any
) -> list[dict[str, Any]]:
    encoder = encoder or ResponseEncoder(**options)
    return check_all([one for event in events for one in encoder.encode(event)])


def check_all(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    for event in events:
        check("ResponseStreamEvent", event)
    return events


def outline(events: Iterable[dict[str, Any]]) -> list[str]:
    """Return the number, type and text of each event."""
    lines: list[str] = []
    for event in events:
        section, number = divmod(event["sequence_number"], SECTION)
        shown = event.get("delta") or event.get("text") or event.get("arguments")
        if "item" in event:
            shown = f"{event['item']['type']} {event['item'].get('status')}"
        where = str(event["output_index"]) if "output_index" in event else ""
        lines.append(" ".join(filter(None, [f"{section}.{number}", event["type"][9:], where, shown])))
    return lines


def final(events: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the response of the last event."""
    response: dict[str, Any] = events[-1]["response"]
    return response


async def test_openais_client_reads_a_run_with_reasoning_and_tools() -> None:
    events = await runs.record_tools()
    stream = encode(events, model="guide", echo={"metadata": {"k": "v"}})
    assert outline(stream) == snapshot(
        [
            "0.0 created",
            "0.1 in_progress",
            "0.2 output_item.added 0 reasoning in_progress",
            "0.3 reasoning_summary_part.added 0",
            "0.5 reasoning_summary_text.delta 0 hm",
            "0.6 reasoning_summary_text.done 0 hm",
            "0.7 reasoning_summary_part.done 0",
            "0.8 output_item.done 0 reasoning completed",
            "0.9 output_item.added 1 message in_progress",
            "0.10 content_part.added 1",
            "0.14 output_text.delta 1 Let ",
            "0.17 output_text.delta 1 me ",
            "0.21 output_text.delta 1 see.",
            "1.0 output_text.done 1 Let me see.",
            "1.1 content_part.done 1",
            "1.2 output_item.done 1 message completed",
            "1.3 output_item.added 2 mcp_call in_progress",
            "1.4 mcp_call.in_progress 2",
            "1.6 mcp_call_arguments.delta 2 {}",
            "1.7 mcp_call_arguments.done 2 {}",
            "1.8 mcp_call.failed 2",
            "1.9 output_item.done 2 mcp_call failed",
            "1.10 output_item.added 3 mcp_call in_progress",
            "1.11 mcp_call.in_progress 3",
            "1.13 mcp_call_arguments.delta 3 {}",
            "1.14 mcp_call_arguments.done 3 {}",
            "1.15 mcp_call.failed 3",
            "1.16 output_item.done 3 mcp_call failed",
            "1.17 output_item.added 4 mcp_call in_progress",
            "1.18 mcp_call.in_progress 4",
            '1.33 mcp_call_arguments.delta 4 {"city":"Hilo"}',
            '1.34 mcp_call_arguments.done 4 {"city":"Hilo"}',
            "1.35 output_item.added 5 mcp_call in_progress",
            "1.36 mcp_call.in_progress 5",
            '1.55 mcp_call_arguments.delta 5 {"city":"Atlantis"}',
            '1.56 mcp_call_arguments.done 5 {"city":"Atlantis"}',
            "1.57 mcp_call.completed 4",
            "1.58 output_item.done 4 mcp_call completed",
            "1.59 mcp_call.failed 5",
            "1.60 output_item.done 5 mcp_call failed",
            "1.61 output_item.added 6 message in_progress",
            "1.62 content_part.added 6",
            "1.69 output_text.delta 6 Grüße, ",
            "1.72 output_text.delta 6 世界.",
            "2.0 output_text.done 6 Grüße, 世界.",
            "2.1 content_part.done 6",
            "2.2 output_item.done 6 message completed",
            "3.0 completed",
        ]
    )

    def read(client: Any) -> Any:
        with client.responses.stream(model="m", input="?") as opened:
            types = [event.type for event in opened]
            return types, opened.get_final_response()

    types, whole = read_with_client(b"".join(map(to_sse, stream)), read)
    assert len(types) == len(stream)
    assert whole.output_text == "Let me see.Grüße, 世界."
    assert [(item.type, getattr(item, "status", "")) for item in whole.output] == [
        ("reasoning", "completed"),
        ("message", "completed"),
        ("mcp_call", "failed"),
        ("mcp_call", "failed"),
        ("mcp_call", "completed"),
        ("mcp_call", "failed"),
        ("message", "completed"),
    ]
    assert (whole.usage.input_tokens, whole.usage.output_tokens, whole.usage.total_tokens) == (20, 4, 24)
    assert (whole.id, whole.status, whole.model, whole.metadata) == ("resp_trn_1", "completed", "guide", {"k": "v"})
    assert final(stream)["output"][4] == snapshot(
        {
            "id": "mcp_call_1",
            "type": "mcp_call",
            "status": "completed",
            "name": "weather",
            "arguments": '{"city":"Hilo"}',
            "server_label": "vaka",
            "output": "sunny in Hilo",
            "error": None,
        }
    )
    assert final(stream)["output"][5]["error"] == snapshot(
        {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": "ValueError: there is no Atlantis"}]}
    )
    response = to_response(events, ResponseEncoder(model="guide", echo={"metadata": {"k": "v"}}))
    check("Response", response)
    assert response == final(stream)
    assert to_response(events[:9], ResponseEncoder())["status"] == "in_progress"
    assert to_response([], ResponseEncoder()) == {}


async def test_a_stored_log_continues_a_stream_after_any_number() -> None:
    for record in (runs.record_tools, runs.record_child, runs.record_interrupt, runs.record_resumed):
        events = await record()
        live = encode(events)
        stored = encode([event for event in events if event.seq])
        for at, event in enumerate(live):
            rest = [*resume_after(stored, event["sequence_number"])]
            assert join(rest) == join(live[at + 1 :])
            assert rest[-1:] == live[at + 1 :][-1:]
        assert [*resume_after(stored, -1)] == stored


def join(events: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the events with adjacent deltas of one item as one."""
    joined: list[dict[str, Any]] = []
    for event in events:
        if joined and event["type"].endswith(".delta") and joined[-1]["type"] == event["type"]:
            event = {**event, "delta": joined.pop()["delta"] + event["delta"]}
        joined.append(event)
    return joined


async def test_openais_client_resumes_a_stream() -> None:
    stored = encode([event for event in await runs.record_tools() if event.seq])
    body = b"".join(to_sse(event) for event in resume_after(stored, 5))
    read = read_with_client(
        body, lambda client: [*client.responses.retrieve("resp_trn_1", stream=True, starting_after=5)]
    )
    assert [event.sequence_number for event in read] == [one["sequence_number"] for one in stored][5:]
    assert parse_response_id("resp_trn_1") == ("trn_1", 0)
    assert parse_response_id("resp_trn_1-10") == ("trn_1", 10)


async def test_a_discarded_message_is_not_part_of_the_response() -> None:
    events = await runs.record_retry()
    stream = encode(events)
    assert outline(stream) == snapshot(
        [
            "0.0 created",
            "0.1 in_progress",
            "0.2 output_item.added 0 message in_progress",
            "0.3 content_part.added 0",
            "0.6 output_text.delta 0 Hel",
            "0.7 output_text.done 0 Hel",
            "0.8 content_part.done 0",
            "0.9 output_item.done 0 message incomplete",
            "1.0 output_item.added 1 message in_progress",
            "1.1 content_part.added 1",
            "1.7 output_text.delta 1 Hello.",
            "2.0 output_text.done 1 Hello.",
            "2.1 content_part.done 1",
            "2.2 output_item.done 1 message completed",
            "3.0 completed",
        ]
    )
    assert [item["content"][0]["text"] for item in final(stream)["output"]] == ["Hello."]
    stored = encode([event for event in events if event.seq])
    assert [one["sequence_number"] for one in resume_after(stored, 9)] == [
        one["sequence_number"] for one in stream if one["sequence_number"] >= SECTION
    ]
    resumed = [*events[:6], made("turn.resumed", agent="greeter"), *events[8:]]  # a crash in the message
    stream = encode(resumed)
    assert [item["content"][0]["text"] for item in final(stream)["output"]] == ["Hello."]
    stored = encode([event for event in resumed if event.data.durable])
    assert [*resume_after(stored, 9)][-1] == stream[-1]


async def test_a_turn_without_an_answer_says_why() -> None:
    failed = final(encode(await runs.record_failure()))
    assert (failed["status"], failed["error"]) == snapshot(
        ("failed", {"code": "server_error", "message": "no such model (status 400)"})
    )
    stopped = encode(await runs.record_interrupt())
    assert (stopped[-1]["type"], final(stopped)["status"]) == ("response.incomplete", "cancelled")
    assert final(stopped)["output"][0]["content"][0]["text"] == "I am count"
    start = made("turn.started", agent="a", inputs=[])
    running = made("tool.started", call={"id": "c", "name": "f", "arguments": {}}, key="k", effect="once")
    cancelled = encode([start, text("m", 0, "Hi"), running, running, made("turn.cancelled")])
    assert outline(cancelled) == snapshot(
        [
            "0.0 created",
            "0.1 in_progress",
            "0.2 output_item.added 0 message in_progress",
            "0.3 content_part.added 0",
            "0.5 output_text.delta 0 Hi",
            "0.6 output_item.added 1 mcp_call in_progress",
            "0.7 mcp_call.in_progress 1",
            "0.9 mcp_call_arguments.delta 1 {}",
            "0.10 mcp_call_arguments.done 1 {}",
            "0.11 output_text.done 0 Hi",
            "0.12 content_part.done 0",
            "0.13 output_item.done 0 message incomplete",
            "1.0 output_item.done 1 mcp_call incomplete",
            "1.1 incomplete",
        ]
    )
    limited = final(encode([start, made("turn.completed", text="So", stop="limit")]))
    assert (limited["status"], limited["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    refused = final(encode([start, completed("m", "No.", stop="refusal"), made("turn.completed", text="No.")]))
    assert refused["incomplete_details"] == {"reason": "content_filter"}


async def test_child_agents_are_calls_and_the_agents_of_routers_answer() -> None:
    events = await runs.record_child()
    assert [item["type"] for item in final(encode(events))["output"]] == ["mcp_call", "message"]
    child = final(encode(events, path=("agent-1",)))
    assert [item.get("name") or item["content"][0]["text"] for item in child["output"]] == ["weather", "It shines."]
    assert encode(events, path=("agent-2",)) == []
    routed = final(encode(await runs.record_router(), routers=runs.ROUTERS))
    assert [item.get("name") or item["content"][0]["text"] for item in routed["output"]] == snapshot(
        ["weather", "leave", "Booked.", "Playing."]
    )
    assert len(final(encode(await runs.record_router()))["output"]) == 3


async def test_an_approval_ends_a_response_and_the_decision_begins_another() -> None:
    events = await runs.record_resumed()
    asked = next(at for at, event in enumerate(events) if event.type == "approval.requested") + 1
    encoder = ResponseEncoder()
    assert encoder.finish() == []
    stream = encode(events[:asked], encoder) + check_all(encoder.finish())
    assert final(stream)["output"] == snapshot(
        [
            {
                "id": "apr_1",
                "type": "mcp_approval_request",
                "name": "weather",
                "arguments": '{"city":"Hilo"}',
                "server_label": "vaka",
            }
        ]
    )
    assert (final(stream)["status"], final(stream)["usage"]["total_tokens"]) == ("completed", 14)
    assert to_response(events[:asked], ResponseEncoder(), waiting=True) == final(stream)
    goes_on = encode(events[asked:], encoder)
    assert final(goes_on)["id"] == "resp_trn_1-10"
    assert [item["type"] for item in final(goes_on)["output"]] == ["mcp_call", "message"]
    decision = {"type": "mcp_approval_response", "approval_request_id": "apr_1", "approve": False, "reason": "no"}
    request = parse_responses_request({"model": "m", "input": [decision], "previous_response_id": "resp_trn_1"})
    assert request.decisions == (ApprovalResolved(approval=DecisionId("apr_1"), decision="reject", message="no"),)


def test_calls_of_client_tools_are_function_calls_and_questions_are_messages() -> None:
    start = made("turn.started", agent="a", inputs=[])
    call = {"id": "c1", "name": "locate", "arguments": {"city": "世界<script>"}}
    called = [
        made("tool.called", call=call, message_id="m"),
        made("tool.started", call=call, key="k", effect="once"),
        made("question.asked", question="q1", text="", call="c1", kind="result"),
    ]
    encoder = ResponseEncoder(client_tools=("locate",))
    stream = encode([start, *called], encoder) + encode([made("stream.end")], encoder)
    assert outline(stream) == snapshot(
        [
            "0.0 created",
            "0.1 in_progress",
            "0.2 output_item.added 0 function_call in_progress",
            '0.23 function_call_arguments.delta 0 {"city":"世界<script>"}',
            '0.24 function_call_arguments.done 0 {"city":"世界<script>"}',
            "0.25 output_item.done 0 function_call completed",
            "1.0 completed",
        ]
    )
    assert final(stream)["output"] == snapshot(
        [
            {
                "id": "fc_c1",
                "type": "function_call",
                "status": "completed",
                "name": "locate",
                "call_id": "c1",
                "arguments": '{"city":"世界<script>"}',
            }
        ]
    )
    done = made("tool.completed", result={"call": "c1", "content": []})
    ended = final(encode([start, *called, done, made("turn.completed", text="")]))
    assert [item["type"] for item in ended["output"]] == ["mcp_call", "function_call"]
    assert encode([done], encoder)[2:] == []
    encoder = ResponseEncoder()
    question = made("question.asked", question="q1", text="Which one?", options=["red", "blue"])
    stream = encode([start, question], encoder) + check_all(encoder.finish())
    assert final(stream)["output"][0]["content"][0]["text"] == "Which one? (red, blue)"


async def test_decisions_of_child_agents_and_client_calls_of_a_stored_log_are_items() -> None:
    items: list[list[str]] = []
    for record in (runs.record_decisions, runs.record_client_tool):
        events = await record()
        at = next(at for at, event in enumerate(events) if event.type in {"approval.resolved", "question.answered"})
        waits = to_response(events[:at], ResponseEncoder(client_tools=("pick",)), waiting=True)
        goes_on = final(encode(events[at:], client_tools=("pick",)))
        check("Response", waits)
        items += [[f"{item['type']} {item.get('status')}" for item in one["output"]] for one in (waits, goes_on)]
    assert items == snapshot(
        [
            ["mcp_call incomplete", "mcp_call incomplete", "mcp_approval_request None", "message completed"],
            ["mcp_call completed", "mcp_call completed", "message completed"],
            ["function_call completed"],
            ["message completed"],
        ]
    )


async def test_markup_in_an_answer_stays_data() -> None:
    markup = "</script><script>alert(1)</script>\r\n\nevent: x\u2028"
    stream = encode(await runs.record(vaka.Agent("a", model=ScriptedModel(say(markup)))))
    assert final(stream)["output"][0]["content"][0]["text"] == markup
    assert all(to_sse(event).count(b"\n") == 3 and b"\r" not in to_sse(event) for event in stream)


# ----------------------------------------------------------------------------------------------------------- requests


def test_a_request_is_an_input_with_history_tools_and_options() -> None:
    call = {"type": "function_call", "call_id": "c1", "name": "locate", "arguments": "{}"}
    body: dict[str, Any] = {
        "model": "guide",
        "instructions": "Be brief.",
        "stream": True,
        "background": True,
        "store": False,
        "input": [
            {"role": "system", "content": "Be kind."},
            {"role": "user", "content": "Where am I?"},
            {"type": "reasoning", "id": "r", "summary": []},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Let me see."}]},
            call,
            {**call, "call_id": "c2"},
            {"type": "function_call_output", "call_id": "c1", "output": "Hilo"},
            {"role": "assistant", "content": "In Hilo."},
            {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "Kona"}]},
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "And this?"},
                    {"type": "input_image", "image_url": "data:image/png;base64,AAAA"},
                ],
            },
        ],
        "tools": [{"type": "function", "name": "locate", "parameters": {"type": "object"}, "strict": True}],
        "tool_choice": {"type": "function", "name": "locate"},
        "conversation": {"id": "conv"},
        "text": {"format": {"type": "json_schema", "name": "place", "schema": {"type": "string"}, "strict": True}},
        "reasoning": {"effort": "low"},
        "max_output_tokens": 9,
        "temperature": 0.5,
        "metadata": {"k": "v"},
    }
    request = parse_responses_request(msgspec.json.encode(body))
    assert request.instructions == "Be brief.\n\nBe kind."
    assert request.content == (Text(text="And this?"), Image(media_type="image/png", data="AAAA"))
    assert [(result.call, result.text) for result in request.results] == [("c2", "Kona")]
    asked, called, results, answer = request.history
    assert isinstance(asked, UserMessage)
    assert isinstance(called, AssistantMessage)
    assert (called.text, [made.id for made in called.calls]) == ("Let me see.", ["c1", "c2"])
    assert isinstance(results, ToolMessage)
    assert isinstance(answer, AssistantMessage)
    assert request.options == {
        "temperature": 0.5,
        "max_tokens": 9,
        "reasoning": "low",
        "output": {"schema": {"type": "string"}, "name": "place", "strict": True},
    }
    assert (request.tool_choice, request.tools[0].name, request.tools[0].strict) == ("locate", "locate", True)
    assert (request.stream, request.background, request.store, request.session) == (True, True, False, "conv")
    stream = encode([made("turn.started", agent="a", inputs=[])], echo=request.echo)
    assert {name: final(stream)[name] for name in ("conversation", "metadata", "background")} == {
        "conversation": {"id": "conv"},
        "metadata": {"k": "v"},
        "background": True,
    }
    plain = parse_responses_request({"model": "m", "input": "Hi", "conversation": "c"})
    assert (plain.content, plain.session, plain.store) == ((Text(text="Hi"),), "c", True)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"input": ""}, "nothing to answer"),
    ({"input": [{"role": "assistant", "content": "Hi"}]}, "nothing to answer"),
    ({"input": [{"role": "bot", "content": "Hi"}]}, "not 'bot'"),
    ({"input": [{"type": "item_reference", "id": "x"}]}, "refers to the item 'x', which is not stored"),
    ({"input": [{"type": "function_call_output", "call_id": 5}]}, "'input' of the request cannot be read"),
    ({"input": 5}, r"at `\$.input`"),
    ({"previous_response_id": "a", "conversation": "b"}, "not both"),
    ({"tools": [{"type": "web_search"}]}, "not 'web_search'"),
    ({"text": {"format": {"type": "xml"}}}, "not 'xml'"),
]


@pytest.mark.parametrize(("changes", "message"), REFUSED)
def test_a_request_that_cannot_be_used_is_refused_with_the_field(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        parse_responses_request({"model": "m", "input": "Hi", **changes})
