"""Requests of any shape are read or refused."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vaka.errors import InvalidInput
from vaka.views.chat_input import parse_reply
from vaka.views.openai_requests import ChatRequest, parse_chat_request
from vaka.views.responses_requests import ResponsesRequest, parse_responses_request

KEYS = (
    "type",
    "role",
    "content",
    "text",
    "function",
    "name",
    "arguments",
    "tool_calls",
    "tool_call_id",
    "call_id",
    "output",
    "image_url",
    "url",
    "input_audio",
    "data",
    "file",
    "file_data",
    "json_schema",
    "schema",
    "format",
    "approve",
    "id",
    "parameters",
    "approval_request_id",
)
WORDS = (
    "user",
    "assistant",
    "tool",
    "system",
    "message",
    "function",
    "function_call",
    "function_call_output",
    "input_text",
    "image_url",
    "input_image",
    "input_audio",
    "file",
    "json_schema",
    "mcp_approval_response",
    "reasoning",
    "",
)
VALUES = st.recursive(
    st.sampled_from([*WORDS, None, True, 0, 1.5]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5),
    max_leaves=12,
)
ITEMS = st.lists(st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=5), max_size=3)
FIELDS = st.dictionaries(
    st.sampled_from(["tools", "tool_choice", "response_format", "text", "conversation", "reasoning", "stop", "n"]),
    VALUES | ITEMS,
    max_size=2,
)


@given(ITEMS.map(lambda items: [*items, {"role": "user", "content": "Hi"}]) | VALUES, FIELDS)
def test_any_request_is_read_or_refused(given_items: Any, fields: dict[str, Any]) -> None:
    for parse, name in ((parse_chat_request, "messages"), (parse_responses_request, "input")):
        try:
            request = parse({"model": "m", **fields, name: given_items})
        except InvalidInput:
            continue
        assert isinstance(request, ChatRequest | ResponsesRequest)
        assert request.content or request.results or request.decisions


@given(st.text())
def test_any_text_is_a_reply_or_none(text: str) -> None:
    reply = parse_reply(text)
    assert reply is None or text.strip().lower().startswith(reply.decision)


def test_a_body_that_is_no_object_is_refused() -> None:
    for body in (b"[]", b"\xff", "5", b"[" * 100_000):
        with pytest.raises(InvalidInput, match="cannot be read"):
            parse_chat_request(body)
