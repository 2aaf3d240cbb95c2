"""The estimated size of a prompt."""

from vaka.core.ports.model import Prompt
from vaka.core.types.ids import CallId, Digest, MessageId
from vaka.core.types.message import (
    AssistantMessage,
    Audio,
    CallRef,
    Document,
    Image,
    Reasoning,
    Stored,
    Text,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
)
from vaka.core.types.tokens import estimate_message_tokens
from vaka.core.types.tool import ToolSpec
from vaka.models.tokens import estimate_prompt_tokens


def test_the_size_of_a_prompt_is_about_a_token_for_four_characters() -> None:
    result = ToolResult(call=CallId("c"), content=(Text(text="x" * 40), Stored(blob=Digest("d"), size=9, preview="x")))
    prompt = Prompt(
        system="x" * 8,
        messages=(
            UserMessage(
                content=(Text(text="x" * 400), Image(url="https://x"), Document(data="x" * 60), Audio(data=""))
            ),
            AssistantMessage(
                id=MessageId("m"),
                content=(Reasoning(text="x" * 20),),
                calls=(ToolCall(id=CallId("c"), name="look", arguments={"at": 1}),),
            ),
            ToolMessage(results=(result,)),
        ),
    )
    assert estimate_prompt_tokens(prompt) == 2 + 100 + 5 + 3 + 13 + 1600 + 510 + 1600
    assert estimate_prompt_tokens(Prompt(messages=(), tools=(ToolSpec(name="look"),))) > 0
    assert estimate_prompt_tokens(Prompt(messages=())) == 0


def test_calls_count_as_they_were_written_and_their_places_do_not() -> None:
    call = ToolCall(id=CallId("c"), name="look", raw='{"at": "1234567')
    said = AssistantMessage(id=MessageId("m"), content=(CallRef(id=call.id),), calls=(call,))
    assert estimate_message_tokens((said,)) == 5


def test_a_value_that_cannot_be_encoded_has_no_size() -> None:
    call = ToolCall(id=CallId("c"), name="look", arguments={"at": object()})
    assert estimate_message_tokens((AssistantMessage(id=MessageId("m"), calls=(call,), content=()),)) == 1
