"""Earlier messages of other models: a provider gets the parts it supports, and a session continues with any model."""

from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec
import pytest

import vaka
from tests.models.local.local_fixtures import OWN_SETTINGS
from tests.runtime.runtime_fixtures import check_log, runtime
from vaka.core.loop.assemble import MessageAssembly
from vaka.core.ports.model import Chunk, CitationChunk, Closeable, Model, NoticeChunk, Prompt
from vaka.core.types.errors import BadRequest, TurnError
from vaka.core.types.ids import CallId, MessageId
from vaka.core.types.message import (
    AssistantMessage,
    Audio,
    Citation,
    Content,
    Document,
    Image,
    Message,
    Reasoning,
    Text,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
)
from vaka.core.types.monitor import Logged
from vaka.models.anthropic.model import Anthropic
from vaka.models.compatibility import HistoryAdapter, omitted_media_note, origin_of
from vaka.models.gemini.model import Gemini
from vaka.models.local.model import LocalModel
from vaka.models.openai_chat.model import OpenAIChat
from vaka.models.openai_chat.vendors import PROFILES
from vaka.models.openai_responses.model import OpenAIResponses, ResponsesCapabilities
from vaka.models.text_calls.model import TextCalls
from vaka.models.transport.client import Account
from vaka.runtime.options import Environment
from vaka.testing.fake_provider import FakeProvider
from vaka.testing.models import drain_stream, say

PICTURE = Image(data="iVBORw0KGgo=", media_type="image/png")
SOUND = Audio(data="SUQz", media_type="audio/mpeg")
PAPER = Document(data="JVBERi0=", media_type="application/pdf", name="plan.pdf")
TEXT_ONLY_MODELS = msgspec.structs.replace(PROFILES["deepseek"], documents=False)

Make = Callable[[str], Model]


def chat(url: str) -> Model:
    return OpenAIChat("m", Account(base_url=f"{url}/v1"), profile=TEXT_ONLY_MODELS)


def responses(url: str) -> Model:
    return OpenAIResponses(
        "gpt-5", Account(base_url=f"{url}/v1"), facts=ResponsesCapabilities(images=False, files=False)
    )


def anthropic(url: str) -> Model:
    return Anthropic("claude-sonnet-4-5", Account(base_url=url))


def gemini(url: str) -> Model:
    return Gemini("gemini-3-pro", Account(base_url=f"{url}/v1beta"))


def user_message(*content: Any) -> UserMessage:
    return UserMessage(content=tuple(Text(text=part) if isinstance(part, str) else part for part in content))


def assistant_message(text: str = "A cat.") -> AssistantMessage:
    return AssistantMessage(id=MessageId("m"), content=(Text(text=text),))


def prompt_of(*messages: Message, session: str = "s") -> Prompt:
    return Prompt(messages=messages, session=session)


async def request_of(make: Make, *prompts: Prompt) -> tuple[list[str], list[Any]]:
    """Return the requests that prompts became, and the notices."""
    logged: list[Any] = []
    async with FakeProvider(say("Yes.")) as provider:
        model = make(provider.url)
        assert isinstance(model, Closeable)
        for each in prompts:
            logged += [chunk.event for chunk in await drain_stream(model, each) if isinstance(chunk, NoticeChunk)]
        await model.close()
    return [request.raw.decode() for request in provider.requests], logged


@pytest.mark.parametrize(
    ("make", "part"),
    [
        (chat, PICTURE),
        (chat, SOUND),
        (chat, PAPER),
        (responses, PICTURE),
        (responses, SOUND),
        (responses, PAPER),
        (anthropic, SOUND),
        (anthropic, Image(data="Qk0=", media_type="image/bmp")),
        (gemini, Document(data="UEs=", media_type="application/zip")),
    ],
)
async def test_unsupported_media_of_earlier_messages_become_notes_and_of_the_newest_an_error(
    make: Make, part: Any
) -> None:
    before = prompt_of(user_message("What is this?", part), assistant_message(), user_message("And its color?"))
    sent, logged = await request_of(make, before, before)
    assert [omitted_media_note(part).replace('"', '\\"') in body and part.data not in body for body in sent] == [
        True,
        True,
    ]
    assert sent[0] == sent[1]
    kind = type(part).__name__.lower()
    assert [type(event) for event in logged] == [Logged]  # once
    assert f"cannot take 1 {kind} of this conversation" in logged[0].message
    with pytest.raises(BadRequest, match=f"cannot take this {kind}"):
        await request_of(make, prompt_of(user_message("Hi."), assistant_message(), user_message("What is this?", part)))


@pytest.mark.parametrize("make", [chat, responses])
async def test_unsupported_media_of_a_tool_result_become_notes(make: Make) -> None:
    """The media are of an earlier message; an error would recur with each turn."""
    call = ToolCall(id=CallId("c1"), name="Read")
    result = ToolResult(call=call.id, content=(Text(text="Here: "), PICTURE))
    made = AssistantMessage(id=MessageId("m"), calls=(call,))
    sent, logged = await request_of(make, prompt_of(user_message("Read it."), made, ToolMessage(results=(result,))))
    assert omitted_media_note(PICTURE) in sent[0]
    assert "Here: " in sent[0]
    assert len(logged) == 1


async def test_a_refused_image_does_not_fail_the_next_turn() -> None:
    sent, _ = await request_of(chat, prompt_of(user_message(PICTURE), user_message("Then without.")))
    assert omitted_media_note(PICTURE) in sent[0]


async def test_earlier_media_are_replaced_for_models_with_text_calls_as_well() -> None:
    call = ToolCall(id=CallId("c1"), name="Read")
    shown = ToolMessage(results=(ToolResult(call=call.id, content=(PICTURE,)),))
    made = AssistantMessage(id=MessageId("m"), calls=(call,))
    prompts = [
        prompt_of(user_message(PICTURE), user_message("Then without.")),
        prompt_of(user_message("Read it."), made, shown),
    ]
    sent, _ = await request_of(lambda url: TextCalls(chat(url)), *prompts)
    assert [body.count(omitted_media_note(PICTURE)) for body in sent] == [1, 1]
    with pytest.raises(BadRequest, match="cannot take this image"):
        await request_of(lambda url: TextCalls(chat(url)), prompt_of(user_message("And this?", PICTURE)))


async def test_supported_media_stay_without_a_notice() -> None:
    shown = prompt_of(user_message("What is this?", PICTURE), assistant_message(), user_message("And now?"))
    sent, logged = await request_of(lambda url: OpenAIChat("m", Account(base_url=f"{url}/v1")), shown)
    assert PICTURE.data in sent[0]
    assert logged == []


async def test_each_session_gets_one_notice_and_a_prompt_without_one_each_time() -> None:
    def of(session: str) -> Prompt:
        return prompt_of(
            user_message(PICTURE, PICTURE),
            assistant_message(),
            user_message(SOUND),
            assistant_message(),
            user_message("?"),
            session=session,
        )

    _, logged = await request_of(chat, of("a"), of("b"), of("a"), of(""), of(""))
    assert len(logged) == 4
    assert "cannot take 1 audio, 2 images of this conversation" in logged[0].message


async def test_a_conversation_that_this_model_has_answered_gets_no_notice() -> None:
    mine = AssistantMessage(id=MessageId("m"), content=(Text(text="No."),), model="m-2026-11-15")
    logged = [
        await request_of(chat, prompt_of(user_message(PICTURE), made, user_message("?")))
        for made in (assistant_message(), mine)
    ]
    assert [len(notices) for _, notices in logged] == [1, 0]
    later = prompt_of(mine, user_message(PICTURE), assistant_message(), user_message("?"))
    assert len((await request_of(chat, later))[1]) == 1


def test_the_number_of_remembered_conversations_is_limited() -> None:
    def take(part: Any) -> None:
        raise BadRequest("no")

    past = HistoryAdapter("m", "https://a.example/v1", take)
    seen = [
        past.adapt(prompt_of(user_message(PICTURE), assistant_message(), user_message("?"), session=str(number)))[1]
        for number in range(1025)
    ]
    assert all(seen)
    assert past.adapt(prompt_of(user_message(PICTURE), assistant_message(), user_message("?"), session="1024"))[1] == ()
    assert past.adapt(prompt_of(user_message(PICTURE), assistant_message(), user_message("?"), session="0"))[1] != ()


async def test_a_session_continues_with_a_model_without_images() -> None:
    async with FakeProvider(say("Yes.")) as provider:
        environ = {"OPENAI_BASE_URL": provider.url, "DEEPSEEK_BASE_URL": provider.url}
        async with runtime(environment=Environment(environ=environ)) as rt:
            session = await rt.open(vaka.Agent("a", model="openai/gpt-5"))
            await session.run((Text(text="What is this?"), PICTURE))
            for _ in range(2):
                assert (await session.run("And now?", model="deepseek/deepseek-chat")).text == "Yes."
            with pytest.raises(TurnError, match="cannot take this image"):
                await session.run((PICTURE,), model="deepseek/deepseek-chat")
            assert (await session.run("Without.", model="deepseek/deepseek-chat")).text == "Yes."
            assert (await session.run("You again.")).text == "Yes."
            log = [event async for event in rt.store.events.read(session.id)]
    check_log(log)
    notes = [request.raw.decode().count("left out: this model cannot take it") for request in provider.requests]
    assert notes == [0, 1, 1, 2, 0]
    assert provider.requests[-1].raw.decode().count(PICTURE.data) == 2  # the log kept them
    assert len([event for event in log if isinstance(event.data, Logged)]) == 1


async def test_the_local_model_gets_notes_for_media() -> None:
    model = LocalModel(settings=OWN_SETTINGS)
    chunks = await drain_stream(
        model,
        msgspec.structs.replace(
            prompt_of(user_message(PICTURE), assistant_message(), user_message("Hi.")), options={"max_tokens": 1}
        ),
    )
    await model.close()
    assert [type(chunk.event) for chunk in chunks if isinstance(chunk, NoticeChunk)] == [Logged]


THINKING = say("Look.", reasoning="The wet side.")


def assemble_message(chunks: Sequence[Chunk]) -> AssistantMessage:
    assembly = MessageAssembly(MessageId("m"))
    for chunk in chunks:
        assembly.feed(chunk)
    return AssistantMessage(id=MessageId("m"), content=tuple(assembly.parts()))  # type: ignore[arg-type]  # no calls


def thinking_provider(wire: str) -> Make:
    """Return a maker of models that think, over a wire."""
    makes: dict[str, Make] = {
        "responses": lambda url: OpenAIResponses("gpt-5", Account(base_url=f"{url}/v1")),
        "anthropic": anthropic,
        "gemini": gemini,
    }
    return makes[wire]


@pytest.mark.parametrize("wire", ["responses", "anthropic", "gemini"])
async def test_reasoning_goes_back_only_to_the_provider_it_came_from(wire: str) -> None:
    make = thinking_provider(wire)
    async with FakeProvider(THINKING) as one, FakeProvider(THINKING) as other:
        models = [make(one.url), make(one.url), make(other.url)]
        first = assemble_message(await drain_stream(models[0], prompt_of(user_message("Hi."))))
        blobs = [word for part in first.content if isinstance(part, Reasoning) for word in _long_texts(part.opaque)]
        follow = prompt_of(user_message("Hi."), first, user_message("Sure?"))
        old = msgspec.structs.replace(first, content=tuple(_without_origin(part) for part in first.content))
        for model in models[1:]:
            await drain_stream(model, follow)
            await drain_stream(model, prompt_of(user_message("Hi."), old, user_message("Sure?")))
        for model in models:
            assert isinstance(model, Closeable)
            await model.close()
    assert blobs
    requests = [*one.requests[1:], *other.requests]
    known = [all(blob in request.raw.decode() for blob in blobs) for request in requests]
    assert known == [True, True, False, True]  # a log from before blocks had marks goes to any provider of the wire
    assert [blob for blob in blobs if blob in other.requests[0].raw.decode()] == []
    assert "Look." in other.requests[0].raw.decode()


def test_citations_are_sent_only_to_their_provider() -> None:
    here, there = (HistoryAdapter("m", url, lambda part: part) for url in ("https://a.example", "https://b.example"))
    citation = CitationChunk(Citation(url="https://c.example", opaque={"anthropic": {"encrypted_index": "x"}}))
    marked = here.tag_origin(citation)
    assert isinstance(marked, CitationChunk)
    spoken: Content = (Text(text="So.", citations=(marked.citation, Citation(url="https://plain.example"))),)
    asked = prompt_of(AssistantMessage(id=MessageId("m"), content=spoken), user_message("?"))
    assert here.adapt(asked) == (asked, ())
    kept = there.adapt(asked)[0].messages[0].content[0]  # type: ignore[union-attr]  # the answer
    assert kept == Text(
        text="So.", citations=(Citation(url="https://c.example"), Citation(url="https://plain.example"))
    )


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("https://api.example.com", "https://API.example.com/v1/", True),
        ("https://user:pw@api.example.com/v1beta", "https://api.example.com", True),
        ("https://api.example.com/openai/v1", "https://api.example.com/other/v1", False),
        ("http://127.0.0.1:1", "http://127.0.0.1:2", False),
        ("https://[bad", "https://[bad", True),
    ],
)
def test_an_address_has_one_origin_in_every_spelling(one: str, other: str, same: bool) -> None:
    assert (origin_of(one) == origin_of(other)) is same
    assert "example" not in origin_of(one)


def _without_origin(part: Any) -> Any:
    if not isinstance(part, Reasoning) or part.opaque is None:
        return part
    opaque: dict[str, Any] = {**cast("dict[str, Any]", part.opaque)}
    del opaque["from"]
    return msgspec.structs.replace(part, opaque=opaque)


def _long_texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value] if len(value) >= 24 else []
    inner = list(cast("dict[str, Any]", value).values()) if isinstance(value, dict) else []
    return [word for item in inner for word in _long_texts(item)]
