"""State documents of GenX: both shapes are read, one is written, and every fault has its message."""

import base64
import json
from typing import Any

import pytest

from vaka.core.types.errors import InvalidInput
from vaka.genx import GenxMessage, MatchedIntent, MemoryQuery, StateDocument, StateToolResult
from vaka.genx.imported_messages import GenxTurns
from vaka.genx.state_document import merge_messages

REACT: dict[str, Any] = {
    "state_type": "react",
    "id": "s",
    "agent_def": "assistant",
    "summary": "We met.",
    "phase": "tool",
    "properties": {"mood": "good"},
    "finished": False,
    "messages": [
        {"role": "user", "content": "Hi.", "unix_epoch": 5},
        {"role": "model", "tool_call_id": "c", "tool_call_name": "look", "tool_call_args": "{}"},
        {"role": "tool", "tool_result_id": "c", "content": "seen"},
    ],
    "tool_results": [{"id": "c", "name": "look", "content": "seen", "is_error": True}],
}


def test_the_shape_of_the_repository_survives_json_and_yaml() -> None:
    document = StateDocument.from_json(json.dumps(REACT))
    assert document.tool_results == (StateToolResult(id="c", name="look", content="seen", is_error=True),)
    assert StateDocument.from_json(document.to_json()) == document
    assert StateDocument.from_yaml(document.to_yaml()) == document
    assert (document.messages[0].unix_epoch, document.properties) == (5, {"mood": "good"})


def test_a_written_document_has_its_zero_values() -> None:
    document = StateDocument(
        state_type="match",
        id="s",
        agent_def="front",
        matches=(MatchedIntent(rule_name="r", agent_name="a"),),
        tool_results=(StateToolResult(id="c", name="look"),),
        properties={"count": 0, "open": False, "note": ""},
        messages=(GenxMessage(role="user"),),
    )
    written = json.loads(document.to_json())
    kept = ("finished", "matched", "current_index", "summary", "phase", "input", "properties")
    assert {name: written[name] for name in kept} == {
        "finished": False,
        "matched": False,
        "current_index": 0,
        "summary": "",
        "phase": "",
        "input": "",
        "properties": {"count": 0, "open": False, "note": ""},
    }
    assert written["tool_results"] == [{"id": "c", "name": "look", "content": "", "is_error": False}]
    assert (written["messages"][0]["content"], written["messages"][0]["unix_epoch"]) == ("", 0)
    assert StateDocument.from_json(document.to_json()) == document


def test_the_shape_of_the_playground_is_read_as_the_one_that_is_written() -> None:
    calling = {"id": "s.1", "agent_def": "music", "parent_state_id": "s", "last_user_message_idx": 0, "messages": None}
    raw = {
        "id": "s",
        "agent_def": "front",
        "parent_state_id": "top",
        "last_user_message_idx": 3,
        "input": "Play.",
        "matches": [
            {"rule": "music", "args": {"song": "La"}, "agent_ref": "agent:music"},
            {"rule": "book", "agent_ref": {"$ref": "agent:booking"}},
        ],
        "matched": True,
        "current_index": 1,
        "calling_state": calling,
    }
    document = StateDocument.from_json(raw)
    assert (document.state_type, document.parent_state_id, document.current_index) == ("match", "top", 1)
    assert document.matches == (
        MatchedIntent(rule_name="music", agent_name="music", args={"song": "La"}),
        MatchedIntent(rule_name="book", agent_name="booking"),
    )
    assert document.calling_state == StateDocument(state_type="react", id="s.1", agent_def="music", parent_state_id="s")
    assert StateDocument.from_json(document.to_json()) == document
    packed = base64.b64encode(json.dumps(calling).encode()).decode()
    assert StateDocument.from_json({**raw, "calling_state": packed}) == document


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"id": ""}, "state: id is required"),
        ({"agent_def": None}, "state s: agent_def is required"),
        ({"state_type": "graph"}, "invalid state type"),
        ({"messages": [{"role": "assistant"}]}, "invalid message role"),
        ({"messages": "none"}, "messages must be a list of objects"),
        (
            {"messages": [{"role": "user", "tool_call_id": "c"}]},
            r"messages\[0\]: user message should not have tool call",
        ),
        ({"messages": [{"role": "user", "tool_result_id": "c"}]}, "user message should not have tool result fields"),
        ({"messages": [{"role": "model", "tool_call_id": "c"}]}, "model tool call message must have tool_call_name"),
        ({"messages": [{"role": "model", "tool_result_id": "c"}]}, "model message should not have tool result fields"),
        ({"messages": [{"role": "tool"}]}, "tool message must have tool_result_id"),
        (
            {"messages": [{"role": "tool", "tool_result_id": "c", "tool_call_name": "x"}]},
            "tool message should not have tool call fields",
        ),
        ({"messages": [{"role": "user", "content": 3}]}, "state s: Expected `str`"),
        ({"tool_results": [{"id": "c"}]}, "tool result: name is required"),
        ({"matches": [{"rule": "music"}]}, "matched intent: agent_name is required"),
        ({"calling_state": "not base64!"}, "neither an object nor JSON in base64"),
    ],
)
def test_a_document_that_is_not_valid_names_its_fault(change: dict[str, Any], expected: str) -> None:
    with pytest.raises(InvalidInput, match=expected):
        StateDocument.from_json({**REACT, **change})


def test_a_text_that_is_not_a_document_is_refused() -> None:
    with pytest.raises(InvalidInput, match="not a JSON object"):
        StateDocument.from_json("[]")
    with pytest.raises(InvalidInput, match="not a YAML mapping"):
        StateDocument.from_yaml("- a: [")


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (MemoryQuery(month=13), "month must be 1-12, got 13"),
        (MemoryQuery(day=32), "day must be 1-31, got 32"),
        (MemoryQuery(hour=-1), "hour must be 1-24, got -1"),
    ],
)
def test_a_query_outside_the_calendar_is_refused(query: MemoryQuery, expected: str) -> None:
    with pytest.raises(InvalidInput, match=expected):
        query.check()


def test_messages_that_are_parts_of_one_are_merged() -> None:
    def called(id: str, arguments: str) -> GenxMessage:
        return GenxMessage(role="model", tool_call_id=id, tool_call_name="look", tool_call_args=arguments)

    result = GenxMessage(role="tool", tool_result_id="c", content="seen")
    merged = merge_messages(
        [
            GenxMessage(role="user", content="a"),
            GenxMessage(role="user", content="b"),
            GenxMessage(role="model", content="He"),
            GenxMessage(role="model", content="llo"),
            called("c", '{"at"'),
            called("c", ": 1}"),
            called("d", "{}"),
            result,
            result,
        ]
    )
    assert merged == [
        GenxMessage(role="user", content="a\nb"),
        GenxMessage(role="model", content="Hello"),
        called("c", '{"at": 1}'),
        called("d", "{}"),
        result,
        result,
    ]


def test_a_result_without_a_call_is_refused() -> None:
    turns = GenxTurns("assistant", lambda kind: kind)
    with pytest.raises(InvalidInput, match="'c' has no call before it"):
        turns.add(GenxMessage(role="tool", tool_result_id="c"))
