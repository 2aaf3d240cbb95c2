"""Rules that providers enforce beyond their types: every call has a result, roles alternate, no empty text."""

import re
from collections.abc import Callable
from typing import Any

ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


def check_history(wire: str, body: dict[str, Any]) -> None:
    """Hold a request to the rules of its provider that no type says."""
    _RULES[wire](body)


def _check_chat(body: dict[str, Any]) -> None:
    open_calls: list[str] = []
    seen: set[str] = set()
    for message in body["messages"]:
        if message["role"] == "tool":
            open_calls.remove(message["tool_call_id"])
            continue
        assert open_calls == [], "calls are answered before anyone speaks"
        open_calls = [call["id"] for call in message.get("tool_calls") or []]
        assert not seen & {*open_calls}, "a call's id is its own"
        seen.update(open_calls)
        assert message.get("content") or message.get("tool_calls") or message.get("refusal"), "an empty message"
        assert message.get("tool_calls") != []
    assert open_calls == []


def _check_responses(body: dict[str, Any]) -> None:
    open_calls: set[str] = set()
    seen: set[str] = set()
    items = body["input"] if isinstance(body["input"], list) else []
    for item, after in zip(items, [*items[1:], None], strict=True):
        kind = item.get("type", "message")
        if kind == "function_call":
            assert item["call_id"] not in seen
            seen.add(item["call_id"])
            open_calls.add(item["call_id"])
        elif kind == "function_call_output":
            open_calls.remove(item["call_id"])
        elif kind == "reasoning":
            assert after is not None, "a thought is followed by what it led to"
            assert after.get("type") in {"function_call", "message", "reasoning"} or after.get("role") == "assistant"
        else:
            assert not open_calls, "calls are answered before anyone speaks"
            assert item["content"], "an empty message"
    assert not open_calls


def _check_anthropic(body: dict[str, Any]) -> None:
    role = "assistant"
    asked = list[str]()
    seen = set[str]()
    for message in body["messages"]:
        assert message["role"] != role, "roles take turns, and a person begins"
        role = message["role"]
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        assert blocks, "an empty message"
        assert all(block["text"].strip() for block in blocks if block["type"] == "text"), "no text is empty"
        kinds = [block["type"] for block in blocks]
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        assert sorted(results) == sorted(asked), "the next message answers every call"
        assert kinds[: len(results)] == ["tool_result"] * len(results), "results come first"
        asked = [block["id"] for block in blocks if block["type"] == "tool_use"]
        assert not seen & {*asked}
        assert all(ID.fullmatch(id) for id in asked)
        seen.update(asked)
    assert not asked
    marks = str(body).count("'cache_control'")
    assert marks <= 4, "at most four places to cache"


def _check_gemini(body: dict[str, Any]) -> None:
    role, asked = "", list[str]()
    for content in body["contents"]:
        assert content["role"] in {"user", "model"}
        assert content["role"] != role, "roles take turns"
        role = content["role"]
        assert content["parts"], "an empty message"
        answers = [part["functionResponse"]["name"] for part in content["parts"] if "functionResponse" in part]
        assert answers == asked, "the next content answers every call, in order"
        asked = [part["functionCall"]["name"] for part in content["parts"] if "functionCall" in part]
    assert asked == []


_RULES: dict[str, Callable[[dict[str, Any]], None]] = {
    "chat": _check_chat,
    "responses": _check_responses,
    "anthropic": _check_anthropic,
    "gemini": _check_gemini,
}
