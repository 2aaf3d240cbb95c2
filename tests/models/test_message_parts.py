"""Conversion of messages that all adapters share."""

import re

import pytest

from vaka.core.types.ids import CallId, Digest, MessageId
from vaka.core.types.message import AssistantMessage, Audio, Document, Image, Message, Reasoning, Stored, Text, ToolCall
from vaka.models import compatibility


def assistant_message(*calls: tuple[str, str]) -> list[Message]:
    made = tuple(ToolCall(id=CallId(id), name="t", provider_id=given) for id, given in calls)
    return [AssistantMessage(id=MessageId("m"), calls=made)]


def test_a_call_keeps_the_id_of_its_provider() -> None:
    assert compatibility.call_ids(assistant_message(("call_1", "toolu_9"), ("call_2", ""))) == {
        "call_1": "toolu_9",
        "call_2": "call_2",
    }


def test_repeated_and_invalid_call_ids_are_replaced() -> None:
    ids = compatibility.call_ids(
        assistant_message(("call_1", "0"), ("call_2", "0"), ("call_3", "a b"), ("a/call_1", "0"))
    )
    assert ids == {"call_1": "0", "call_2": "call_2", "call_3": "call_3", "a/call_1": "a_call_1"}
    assert all(compatibility.CALL_ID_PATTERN.fullmatch(id) for id in ids.values())


def test_call_ids_have_the_form_that_the_provider_requires() -> None:
    form = re.compile("[a-zA-Z0-9]{9}")
    ids = compatibility.call_ids(
        assistant_message(("call_1", "abc123DEF"), ("call_2", "toolu_01"), ("call_3", "abc123DEF")), form
    )
    assert all(form.fullmatch(id) for id in ids.values())
    assert len({*ids.values()}) == 3


@pytest.mark.parametrize(
    ("call", "sent"),
    [
        (ToolCall(id=CallId("c"), name="t", arguments={"a": 1}), {"a": 1}),
        (ToolCall(id=CallId("c"), name="t", arguments={"a": 1}, raw="{'a': 1}", repaired="quotes"), {"a": 1}),
        (ToolCall(id=CallId("c"), name="t", raw='{"a": '), {"raw": '{"a": '}),
        (ToolCall(id=CallId("c"), name="t", raw="[1, 2]"), {"value": [1, 2]}),
        (ToolCall(id=CallId("c"), name="t", raw='{"a": 2}', truncated=True), {"a": 2}),
        (ToolCall(id=CallId("c"), name="t", raw="[" * 100_000), {"raw": "[" * 100_000}),
    ],
)
def test_arguments_are_sent_back_as_an_object_whatever_the_model_wrote(call: ToolCall, sent: object) -> None:
    assert compatibility.arguments_of(call) == sent


def test_reasoning_of_a_provider_is_sent_only_to_that_provider() -> None:
    part = Reasoning(text="hm", opaque={"anthropic": {"type": "thinking"}})
    assert compatibility.provider_block(part, "anthropic") == {"type": "thinking"}
    assert compatibility.provider_block(part, "gemini") is None
    assert compatibility.provider_block(Reasoning(text="hm"), "anthropic") is None
    assert compatibility.provider_block(Reasoning(opaque=[1]), "anthropic") is None


@pytest.mark.parametrize(
    ("part", "kind"),
    [
        (Image(data="iVBORw0KGgoAAA"), "image/png"),
        (Image(data="/9j/4AAQ"), "image/jpeg"),
        (Image(data="R0lGODlh"), "image/gif"),
        (Image(data="UklGRiQA"), "image/webp"),
        (Audio(data="UklGRiQA"), "audio/wav"),
        (Document(data="JVBERi0x"), "application/pdf"),
        (Audio(data="SUQzAw"), "audio/mpeg"),
        (Image(data="AAAA"), "image/jpeg"),
        (Image(data="AAAA", media_type="image/avif"), "image/avif"),
        (Document(url="https://example.com/x"), "application/pdf"),
    ],
)
def test_the_media_type_of_bytes_is_declared_or_detected(part: Image | Audio | Document, kind: str) -> None:
    assert compatibility.media_type_of(part) == kind


def test_media_have_an_address_also_when_they_are_only_bytes() -> None:
    assert compatibility.data_url_of(Image(url="https://example.com/x.png")) == "https://example.com/x.png"
    assert compatibility.data_url_of(Image(data="/9j/4AAQ")) == "data:image/jpeg;base64,/9j/4AAQ"


def test_text_is_that_of_text_parts_and_previews() -> None:
    large = Stored(blob=Digest("d"), size=9, preview="Once")
    assert compatibility.text_or_preview((Text(text="a"), Reasoning(text="no"), large)) == "aOnce"


def test_the_error_names_the_unsupported_part() -> None:
    assert str(compatibility.unsupported_part("x/y", Audio(data="AAAA"), "only WAV")) == (
        "x/y cannot take this audio: only WAV; leave it out, or use another model"
    )
