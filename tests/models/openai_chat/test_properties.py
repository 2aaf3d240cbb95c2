"""Properties of the Chat Completions decoder, for any events and any split of them."""

from contextlib import suppress
from itertools import pairwise
from typing import Any

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from vaka.core.ports.model import Chunk, StopChunk
from vaka.core.types.errors import ModelError
from vaka.models.openai_chat.events import ChatStreamDecoder
from vaka.models.openai_chat.vendors import PROFILES
from vaka.testing.models import join_chunks

NAMES = [
    "choices",
    "index",
    "delta",
    "content",
    "reasoning_content",
    "reasoning",
    "reasoning_details",
    "refusal",
    "type",
    "tool_calls",
    "function_call",
    "function",
    "name",
    "arguments",
    "id",
    "annotations",
    "url_citation",
    "url",
    "title",
    "audio",
    "transcript",
    "finish_reason",
    "usage",
    "prompt_tokens",
    "completion_tokens",
    "prompt_tokens_details",
    "cached_tokens",
    "cost",
    "error",
    "object",
    "base_resp",
    "status_code",
    "citations",
    "search_results",
    "thinking",
    "text",
    "x_groq",
    "model",
    "message",
    "code",
]
WORDS = st.sampled_from(["stop", "tool_calls", "error", "thinking", "text", "", "{}", "null", "a"]) | st.text(
    max_size=5
)
VALUES = st.none() | st.booleans() | st.integers(-3, 3) | st.integers() | st.floats(allow_nan=False) | WORDS
ANYTHING: st.SearchStrategy[Any] = st.recursive(
    VALUES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=5)
)
CHOICE: dict[str, st.SearchStrategy[Any]] = {
    "index": st.sampled_from([0, None, 1]),
    "error": ANYTHING,
    "finish_reason": WORDS | st.none(),
    "delta": st.dictionaries(st.sampled_from(NAMES), ANYTHING, max_size=4),
}
EVENT: dict[str, st.SearchStrategy[Any]] = {
    "choices": st.lists(st.fixed_dictionaries({}, optional=CHOICE), max_size=2),
    "usage": ANYTHING,
    "error": ANYTHING,
    "object": ANYTHING,
    "base_resp": ANYTHING,
    "citations": ANYTHING,
}
EVENTS: st.SearchStrategy[Any] = st.fixed_dictionaries({}, optional=EVENT) | ANYTHING


def event_item(value: Any) -> bytes:
    return msgspec.json.encode(value)


DONE = b"[DONE]"


@given(st.lists(EVENTS, max_size=6), st.sampled_from([*PROFILES.values()]), st.sampled_from(["", "a"]))
@example(
    [{"choices": [{"delta": {"tool_calls": [{"function": {"name": "a", "arguments": []}}]}}]}], PROFILES["groq"], ""
)
def test_nothing_that_a_vendor_writes_raises_anything_but_an_error_of_the_model(
    events: list[Any], profile: Any, tool: str
) -> None:
    answer, chunks = ChatStreamDecoder(profile, tool), list[Chunk]()
    with suppress(ModelError):
        for event in events:
            chunks += answer.feed(event_item(event))
        chunks += answer.feed(DONE)
    assert answer.done == (len(join_chunks(chunks).stops) == 1)
    assert not chunks or not answer.done or isinstance(chunks[-1], StopChunk)
    msgspec.json.encode(join_chunks(chunks))


def split_text(text: str, cuts: list[int]) -> list[str]:
    places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    return [text[start:end] for start, end in pairwise(places)]


ARGUMENTS = st.dictionaries(st.text(max_size=4), st.text(max_size=6) | st.integers(-9, 9), max_size=3)
CALLS = st.lists(st.tuples(ARGUMENTS, st.lists(st.integers(0, 50), max_size=4)), min_size=1, max_size=4)


@given(CALLS, st.randoms(use_true_random=False), st.booleans(), st.booleans())
def test_calls_are_the_same_however_they_are_cut_and_mixed(
    made: list[tuple[dict[str, Any], list[int]]], chance: Any, by_index: bool, named: bool
) -> None:
    texts = [msgspec.json.encode(arguments).decode() for arguments, _ in made]
    queues: list[list[dict[str, Any]]] = []
    for number, (text, (_, cuts)) in enumerate(zip(texts, made, strict=True)):
        name = {"name": "go"} if named else {}
        where = {"index": number} if by_index else {"id": f"id{number}"}
        first = {"id": f"id{number}", **where, "function": {"name": "go", "arguments": ""}}
        queues.append([first, *({**where, "function": {**name, "arguments": one}} for one in split_text(text, cuts))])
    answer, chunks = ChatStreamDecoder(), list[Chunk]()
    for number in range(len(queues)):  # calls begin in order
        chunks += answer.feed(event_item({"choices": [{"delta": {"tool_calls": [queues[number].pop(0)]}}]}))
    while any(queues):
        queue = chance.choice([queue for queue in queues if queue])
        chunks += answer.feed(event_item({"choices": [{"delta": {"tool_calls": [queue.pop(0)]}}]}))
    chunks += answer.feed(event_item({"choices": [{"delta": {}, "finish_reason": "tool_calls"}]}))
    chunks += answer.feed(DONE)
    whole = join_chunks(chunks)
    assert whole.calls == [("go", text) for text in texts]
    assert whole.ids == [f"id{number}" for number in range(len(texts))]
    assert whole.stops == ["calls"]
