"""Conversations in the form that each vendor of Chat Completions accepts: order, media, reasoning and ids."""

import base64
from typing import Any

import msgspec
import pytest
from inline_snapshot import snapshot

from tests.models.openai_chat.prompts import (
    FULL_PROMPT,
    PDF,
    PNG,
    assistant_message,
    prompt_of,
    request_body,
    request_messages,
    tool_call,
    tool_message,
    user_message,
)
from vaka.core.types.errors import BadRequest
from vaka.core.types.ids import Digest
from vaka.core.types.message import Audio, Document, Image, Part, Reasoning, Stored, Text
from vaka.models.openai_chat.vendors import VendorProfile


def test_media_and_results_are_placed_where_the_api_accepts_them() -> None:
    assert request_messages(FULL_PROMPT)[1:-2] == snapshot(
        [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Look."},
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
                    {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
                    {
                        "type": "file",
                        "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0="},
                    },
                ],
            },
            {
                "role": "assistant",
                "content": "Let me see.",
                "tool_calls": [
                    {
                        "id": "call_1",
                        "type": "function",
                        "function": {"name": "weather", "arguments": '{"city":"Hilo"}'},
                    },
                    {"id": "call_2", "type": "function", "function": {"name": "weather", "arguments": '{"raw":"{"}'}},
                ],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
            {"role": "tool", "tool_call_id": "call_2", "content": "(see below, call_2)"},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "What the call call_2 of weather returned:"},
                    {"type": "image_url", "image_url": {"url": "https://a.example/b.png"}},
                ],
            },
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "id": "call_3",
                        "type": "function",
                        "function": {"name": "a_b_c", "arguments": '{"city":"Hilo"}'},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": "call_3", "content": "(no output)"},
        ]
    )


def test_empty_messages_are_sent_empty_or_left_out() -> None:
    said = prompt_of(
        user_message(""), assistant_message(""), assistant_message(Reasoning(text="Hm.")), user_message("", "Well?", "")
    )
    assert request_messages(said) == [{"role": "user", "content": "."}, {"role": "user", "content": "Well?"}]


def test_a_text_too_long_for_one_part_is_sent_in_several() -> None:
    text = "é" * (2 * 1024 * 1024 + 1)
    made = request_messages(prompt_of(user_message(text), system=text))
    for message in made:
        pieces = [part["text"] for part in message["content"]]
        assert [len(piece) for piece in pieces] == [1024 * 1024, 1024 * 1024, 1]
        assert "".join(pieces) == text


def test_a_stored_text_is_sent_as_its_preview() -> None:
    stored = Stored(blob=Digest("sha256:0"), size=9, preview="It begins")
    assert request_messages(prompt_of(user_message(stored))) == [{"role": "user", "content": "It begins"}]


def test_text_documents_are_sent_as_text_to_every_vendor() -> None:
    data = base64.b64encode("é, ü".encode()).decode()
    document = Document(data=data, media_type="text/csv", name="a.csv")
    assert request_messages(prompt_of(user_message(document)), "deepseek") == [
        {"role": "user", "content": "a.csv:\n\né, ü"}
    ]
    nameless = Document(data=data, media_type="application/ld+json")
    assert request_messages(prompt_of(user_message("Read:", nameless)), "deepseek") == [
        {"role": "user", "content": "Read:\n\né, ü"}
    ]


@pytest.mark.parametrize(
    ("part", "profile", "words"),
    [
        (Image(data=PNG), "deepseek", "cannot take this image"),
        (Image(blob=Digest("sha256:0")), "openai-chat", "it has neither data nor a URL"),
        (Audio(data="SUQz"), "mistral", "cannot take this audio"),
        (Audio(data="T2dnUw", media_type="audio/ogg"), "openai-chat", "WAV or MP3"),
        (Audio(url="https://a.example/b.mp3", media_type="audio/mpeg"), "openai-chat", "the bytes of WAV"),
        (Document(data=PDF), "groq", "cannot take this document"),
        (Document(url="https://a.example/b.pdf"), "openai-chat", "not URLs"),
        (Document(data="/w==", media_type="text/plain"), "groq", "cannot take this document"),
        (Document(data="%", media_type="text/plain"), "groq", "cannot take this document"),
    ],
    ids=repr,
)
def test_an_unsupported_part_is_refused_before_anything_is_sent(part: Part, profile: str, words: str) -> None:
    with pytest.raises(BadRequest, match=words):
        request_body(prompt_of(user_message(part)), profile)
    with pytest.raises(BadRequest, match=words):
        request_body(
            prompt_of(user_message("Look."), assistant_message(calls=(tool_call(),)), tool_message((part,))), profile
        )


def test_a_document_may_be_an_address_where_the_vendor_fetches_it() -> None:
    made = request_messages(
        prompt_of(user_message(Document(url="https://a.example/b.pdf", name="b.pdf"))), "openrouter"
    )
    assert made[0]["content"] == [
        {"type": "file", "file": {"filename": "b.pdf", "file_data": "https://a.example/b.pdf"}}
    ]


THOUGHT = assistant_message(Reasoning(text="It is "), Reasoning(text="wet."), "Rain.", calls=(tool_call(),))


def test_reasoning_is_sent_back_in_the_field_of_the_vendor() -> None:
    prompt = prompt_of(user_message("Well?"), THOUGHT, tool_message((Text(text="rain"),)))
    assert "reasoning_content" not in request_messages(prompt)[1]
    assert request_messages(prompt, "deepseek")[1]["reasoning_content"] == "It is wet."
    assert request_messages(prompt, "mistral")[1]["content"] == [
        {"type": "thinking", "thinking": [{"type": "text", "text": "It is "}]},
        {"type": "thinking", "thinking": [{"type": "text", "text": "wet."}]},
        {"type": "text", "text": "Rain."},
    ]
    other = msgspec.structs.replace(VendorProfile(), reasoning_back="reasoning")
    assert request_messages(prompt, other)[1]["reasoning"] == "It is wet."


def test_a_call_without_reasoning_gets_a_placeholder_for_vendors_that_require_it() -> None:
    prompt = prompt_of(
        user_message("Well?"),
        assistant_message(calls=(tool_call(),)),
        tool_message((Text(text="rain"),)),
        assistant_message("Rain."),
        user_message("Well?"),
    )
    called, answered = request_messages(prompt, "moonshot")[1], request_messages(prompt, "moonshot")[3]
    assert called["reasoning_content"] == " "
    assert "reasoning_content" not in answered


def test_reasoning_details_go_back_only_to_the_vendor_they_came_from() -> None:
    details = [{"type": "reasoning.encrypted", "data": "abc", "index": 0}]
    own = Reasoning(text="Hm.", opaque={"chat": {"vendor": "openrouter", "reasoning_details": details}})
    foreign = Reasoning(text="Ah.", signature="s", opaque={"anthropic": {"type": "thinking"}})
    prompt = prompt_of(user_message("Well?"), assistant_message(foreign, own, "Rain."), user_message("Well?"))
    assert request_messages(prompt, "openrouter")[1] == {
        "role": "assistant",
        "content": "Rain.",
        "reasoning_details": details,
    }
    for profile in ("openai-chat", "minimax", "mistral", "deepseek"):
        assert "abc" not in msgspec.json.encode(request_messages(prompt, profile)).decode()


def test_call_ids_are_those_of_the_vendor_or_have_its_form() -> None:
    made = (tool_call(1, provider_id="abcDEF123"), tool_call(2, provider_id="toolu_01"), tool_call(3))
    prompt = prompt_of(user_message("Well?"), assistant_message(calls=made), tool_message((), (), ()))
    ids = [one["id"] for one in request_messages(prompt, "mistral")[1]["tool_calls"]]
    assert ids == ["abcDEF123", "c00000001", "c00000002"]
    assert [message["tool_call_id"] for message in request_messages(prompt, "mistral")[2:]] == ids
    assert [one["id"] for one in request_messages(prompt)[1]["tool_calls"]] == ["abcDEF123", "toolu_01", "call_3"]


def test_an_assistant_message_follows_a_result_for_vendors_that_require_it() -> None:
    prompt = prompt_of(
        user_message("Well?"),
        assistant_message(calls=(tool_call(),)),
        tool_message((Text(text="rain"),)),
        user_message("And?"),
    )
    assert [message["role"] for message in request_messages(prompt)] == ["user", "assistant", "tool", "user"]
    assert request_messages(prompt, "mistral")[1:] == [
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {
                    "id": "c00000000",
                    "type": "function",
                    "function": {"name": "weather", "arguments": '{"city":"Hilo"}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "c00000000", "content": "rain"},
        {"role": "assistant", "content": "."},
        {"role": "user", "content": "And?"},
    ]


def test_messages_of_one_role_are_merged_where_roles_must_alternate() -> None:
    prompt = prompt_of(
        user_message("a"),
        user_message("b", Image(data=PNG)),
        assistant_message("c"),
        assistant_message("d", calls=(tool_call(), tool_call(2))),
        tool_message((), ()),
        user_message("e"),
        user_message("f"),
        system="Be brief.",
    )
    made = request_messages(prompt, "llamacpp")
    assert [message["role"] for message in made] == ["system", "user", "assistant", "tool", "tool", "user"]
    assert [part.get("text", part["type"]) for part in made[1]["content"]] == ["a", "b", "image_url"]
    assert (made[2]["content"], len(made[2]["tool_calls"])) == ("c\n\nd", 2)
    assert made[-1] == {"role": "user", "content": "e\n\nf"}
    assert len(request_messages(prompt)) == 9


@pytest.mark.parametrize(("empty", "made"), [("null", {"content": None}), ("text", {"content": ""}), ("omit", {})])
def test_an_answer_of_calls_only_has_the_text_the_vendor_expects(empty: Any, made: dict[str, Any]) -> None:
    prompt = prompt_of(user_message("Well?"), assistant_message(calls=(tool_call(),)), tool_message(()))
    message = request_messages(prompt, VendorProfile(empty=empty))[1]
    assert {name: value for name, value in message.items() if name == "content"} == made
