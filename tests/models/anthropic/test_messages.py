"""Conversations in the form that Anthropic Messages requires."""

import base64

import pytest

from tests.models.anthropic.prompts import (
    BUDGET_MODEL,
    EFFORT_MODEL,
    PDF,
    PNG,
    assistant_message,
    prompt_of,
    request_body,
    sent_messages,
    text_block,
    tool_call,
    tool_message,
    tool_result,
    user_message,
)
from vaka.core.ports.model import Prompt
from vaka.core.types.errors import BadRequest
from vaka.core.types.ids import CallId, Digest
from vaka.core.types.message import Audio, CallRef, Citation, Document, Image, Part, Reasoning, Stored, Text


def test_adjacent_messages_of_one_role_are_merged_and_results_come_first() -> None:
    made = sent_messages(
        user_message("One."),
        user_message("Two.", "Three."),
        assistant_message("Let me", calls=(tool_call("a"), tool_call("b"))),
        tool_message(tool_result("a", "A")),
        tool_message(tool_result("b", "B")),
        user_message("And?"),
        assistant_message("Four."),
        assistant_message("Five."),
        user_message("Six."),
    )
    assert made == [
        {"role": "user", "content": [text_block("One."), text_block("Two."), text_block("Three.")]},
        {
            "role": "assistant",
            "content": [
                text_block("Let me"),
                {"type": "tool_use", "id": "a", "name": "look", "input": {}},
                {"type": "tool_use", "id": "b", "name": "look", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": [text_block("A")]},
                {"type": "tool_result", "tool_use_id": "b", "content": [text_block("B")]},
                text_block("And?"),
            ],
        },
        {"role": "assistant", "content": [text_block("Four."), text_block("Five.")]},
        {"role": "user", "content": [text_block("Six.")]},
    ]


def test_calls_stand_where_they_were_made() -> None:
    made = sent_messages(
        user_message("Go."),
        assistant_message(
            "a", CallRef(id=CallId("y")), "b", CallRef(id=CallId("gone")), calls=(tool_call("x"), tool_call("y"))
        ),
        tool_message(tool_result("x"), tool_result("y")),
    )
    assert [block.get("text") or block["id"] for block in made[1]["content"]] == ["a", "y", "b", "x"]


def test_ids_and_arguments_have_the_form_that_the_provider_accepts() -> None:
    calls = (
        tool_call("t/1/call.1", provider_id="toolu_1"),
        tool_call("t/1/call.2", provider_id="not plain!"),
        tool_call("c3", raw="{cut", truncated=True),
        tool_call("c4", raw="[1]"),
    )
    made = sent_messages(
        user_message("Go."), assistant_message(calls=calls), tool_message(*(tool_result(one.id) for one in calls))
    )
    uses = made[1]["content"]
    assert [block["id"] for block in uses] == ["toolu_1", "t_1_call_2", "c3", "c4"]
    assert [block["input"] for block in uses] == [{}, {}, {"raw": "{cut"}, {"value": [1]}]
    assert [block["tool_use_id"] for block in made[2]["content"]] == [block["id"] for block in uses]


def test_a_failed_result_has_only_text_and_its_images_follow() -> None:
    made = sent_messages(
        user_message("Go."),
        assistant_message(calls=(tool_call("a"), tool_call("b"))),
        tool_message(tool_result("a", "no", Image(data=PNG), failed=True), tool_result("b", "yes", Image(data=PNG))),
        user_message("Hm."),
    )
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
    assert made[2]["content"] == [
        {"type": "tool_result", "tool_use_id": "a", "is_error": True, "content": [text_block("no")]},
        {"type": "tool_result", "tool_use_id": "b", "content": [text_block("yes"), picture]},
        text_block("From the result of a:"),
        picture,
        text_block("Hm."),
    ]


def test_a_result_without_its_call_is_refused() -> None:
    with pytest.raises(BadRequest, match="a result of the call 'x'"):
        sent_messages(user_message("Go."), tool_message(tool_result("x", "?")))


def test_pictures_and_documents_by_bytes_and_by_address() -> None:
    made = sent_messages(
        user_message(
            Image(data=PNG),
            Image(data=PNG, media_type="image/webp"),
            Image(url="https://example.com/a.png"),
            Image(url=f"data:image/gif;base64,{PNG}"),
            Document(data=PDF, name="a.pdf"),
            Document(url="https://example.com/a.pdf"),
            Document(data=base64.b64encode("é".encode()).decode(), media_type="text/markdown", name="a.md"),
            Document(url=f"data:text/plain;charset=utf-8;base64,{base64.b64encode(b'b').decode()}"),
        )
    )
    assert [(block["type"], block["source"], block.get("title")) for block in made[0]["content"]] == [
        ("image", {"type": "base64", "media_type": "image/png", "data": PNG}, None),
        ("image", {"type": "base64", "media_type": "image/webp", "data": PNG}, None),
        ("image", {"type": "url", "url": "https://example.com/a.png"}, None),
        ("image", {"type": "base64", "media_type": "image/gif", "data": PNG}, None),
        ("document", {"type": "base64", "media_type": "application/pdf", "data": PDF}, "a.pdf"),
        ("document", {"type": "url", "url": "https://example.com/a.pdf"}, None),
        ("document", {"type": "text", "media_type": "text/plain", "data": "é"}, "a.md"),
        ("document", {"type": "text", "media_type": "text/plain", "data": "b"}, None),
    ]


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (Audio(data="x"), "cannot take this audio: it does not accept audio"),
        (Image(data=PNG, media_type="image/tiff"), "'image/tiff' is not one of image/gif"),
        (Image(url="file:///etc/passwd"), "must begin with https://"),
        (Image(blob=Digest("d")), "it has neither data nor a URL"),
        (Document(data="x", media_type="application/zip"), "'application/zip' is not one of application/pdf"),
        (Document(url="https://example.com/a.txt", media_type="text/plain"), "give the text itself"),
        (Document(data="/////w==", media_type="text/plain"), "not UTF-8 text in base64"),
        (Document(data="?", media_type="text/plain"), "not UTF-8 text in base64"),
    ],
)
def test_an_unsupported_part_is_refused(part: Part, words: str) -> None:
    with pytest.raises(
        BadRequest, match=f"{BUDGET_MODEL} cannot take this .*{words}" if "cannot take" not in words else words
    ):
        sent_messages(user_message("See:", part))


def test_empty_messages_are_left_out() -> None:
    assert sent_messages(user_message("", " \n"), assistant_message("", "\t"), user_message("Hi.")) == [
        {"role": "user", "content": [text_block("Hi.")]}
    ]
    assert sent_messages(user_message("")) == [{"role": "user", "content": [text_block(".")]}]
    assert sent_messages(assistant_message("Hello."), user_message("Hi."))[0] == {
        "role": "user",
        "content": [text_block(".")],
    }
    assert "system" not in request_body(BUDGET_MODEL, prompt_of(system=" \n"))
    assert sent_messages(
        user_message("Go."), assistant_message(calls=(tool_call("a"),)), tool_message(tool_result("a", ""))
    )[2]["content"] == [{"type": "tool_result", "tool_use_id": "a"}]
    assert request_body(BUDGET_MODEL, Prompt(messages=()))["messages"] == [
        {"role": "user", "content": [text_block(".")]}
    ]


def test_a_stored_text_is_sent_as_far_as_it_is_known() -> None:
    assert sent_messages(user_message(Stored(blob=Digest("d"), size=9, preview="It begins")))[0]["content"] == [
        text_block("It begins")
    ]


def test_a_model_continues_its_last_message_or_gets_a_request_to_continue() -> None:
    begun = (user_message("Count."), assistant_message("One, two, \n"))
    assert sent_messages(*begun)[-1] == {"role": "assistant", "content": [text_block("One, two,")]}
    assert sent_messages(*begun, model=EFFORT_MODEL)[-2:] == [
        {"role": "assistant", "content": [text_block("One, two, \n")]},
        {"role": "user", "content": [text_block("Continue.")]},
    ]
    thinking = request_body(BUDGET_MODEL, prompt_of(*begun, options={"reasoning": "low"}))["messages"]
    assert thinking[-1] == {"role": "user", "content": [text_block("Continue.")]}


def test_a_paused_answer_goes_back_as_it_is() -> None:
    search = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}
    paused = assistant_message("Let me look. ", Reasoning(opaque={"anthropic": search}), stop="pause")
    assert sent_messages(user_message("Go."), paused, model=EFFORT_MODEL)[-1] == {
        "role": "assistant",
        "content": [text_block("Let me look. "), search],
    }


def test_only_thinking_of_this_provider_is_sent_back_and_unchanged() -> None:
    signed = {"type": "thinking", "thinking": " Hm. ", "signature": "Eq"}
    hidden = {"type": "redacted_thinking", "data": "xyz"}
    made = sent_messages(
        user_message("Go."),
        assistant_message(
            Reasoning(text=" Hm. ", signature="Eq", opaque={"anthropic": signed}),
            Reasoning(opaque={"anthropic": hidden}),
            Reasoning(text="Another's.", opaque={"gemini": {"x": 1}}),
            Reasoning(text="Unsigned."),
            "Yes.",
        ),
        user_message("Sure?"),
    )
    assert made[1]["content"] == [signed, hidden, text_block("Yes.")]


@pytest.mark.parametrize(
    ("signature", "answered", "asked", "goes"),
    [
        ("Eq", "claude-sonnet-4-5", BUDGET_MODEL, True),
        ("", "claude-sonnet-4-5", BUDGET_MODEL, False),  # at its length limit it was not signed
        ("Eq", "house-70b", BUDGET_MODEL, False),  # another server of this wire signed it
        ("", "house-70b", "house-70b", True),
        ("Eq", "claude-sonnet-4-5", "house-70b", True),
    ],
)
def test_the_vendors_models_get_only_thinking_they_signed(
    signature: str, answered: str, asked: str, goes: bool
) -> None:
    block = {"type": "thinking", "thinking": "Hm.", "signature": signature}
    thought = Reasoning(text="Hm.", signature=signature, opaque={"anthropic": block})
    messages = (
        user_message("Go."),
        assistant_message(thought, calls=(tool_call("a"),), model=answered),
        tool_message(tool_result("a", "A")),
    )
    assert (block in sent_messages(*messages, model=asked)[1]["content"]) is goes
    assert ("thinking" in request_body(asked, prompt_of(*messages, options={"reasoning": "low"}))) is goes


def test_an_invalid_tool_name_of_a_model_is_sent_in_an_accepted_form() -> None:
    made = sent_messages(
        user_message("Go."),
        assistant_message(calls=(tool_call("a", "functions.look up"), tool_call("b", ""))),
        tool_message(tool_result("a"), tool_result("b")),
    )
    assert [block["name"] for block in made[1]["content"]] == ["functions_look_up", "_"]


def test_citations_are_sent_back_with_their_text() -> None:
    cited = {
        "type": "char_location",
        "cited_text": "rain",
        "document_index": 0,
        "document_title": None,
        "start_char_index": 0,
        "end_char_index": 4,
    }
    ours, theirs = Citation(text="rain", opaque={"anthropic": cited}), Citation(url="https://x", opaque={"chat": {}})
    made = sent_messages(
        user_message("Go."),
        assistant_message(
            Text(text="It rains.", citations=(ours, theirs)), Text(text="So.", citations=(theirs, Citation()))
        ),
        user_message("Sure?"),
    )
    assert made[1]["content"] == [text_block("It rains.") | {"citations": [cited]}, text_block("So.")]


@pytest.mark.parametrize(
    ("first", "thinks"),
    [
        (Reasoning(opaque={"anthropic": {"type": "redacted_thinking", "data": "x"}}), True),
        (Reasoning(text="x", opaque={"chat": {}}), False),
        (Text(text="Hm."), False),
    ],
)
def test_an_answer_of_another_provider_is_continued_without_thinking(first: Part, thinks: bool) -> None:
    messages = (
        user_message("Go."),
        assistant_message(first, calls=(tool_call("a"),)),
        tool_message(tool_result("a", "A")),
    )
    for tail in ((), (user_message("And?"),)):
        assert (
            "thinking" in request_body(BUDGET_MODEL, prompt_of(*messages, *tail, options={"reasoning": "low"}))
        ) is thinks
        assert "thinking" in request_body(EFFORT_MODEL, prompt_of(*messages, *tail, options={"reasoning": "low"}))
    over = (*messages, assistant_message("Done."), user_message("More?"))
    assert "thinking" in request_body(BUDGET_MODEL, prompt_of(*over, options={"reasoning": "low"}))
    assert "thinking" in request_body(BUDGET_MODEL, prompt_of(options={"reasoning": "low"}))
