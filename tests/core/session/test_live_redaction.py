"""Secrets do not reach those who watch, however they are cut into pieces."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import vaka
from tests.runtime.runtime_fixtures import agent, collect_turn, runtime
from vaka.core.ports.model import CallChunk, ReasoningChunk, StopChunk, TextChunk
from vaka.core.session.redaction import LiveRedactor, Secrets, SecretValues, StreamRedactor, redact_text
from vaka.core.types import progress
from vaka.core.types.ids import EventScope, MessageId
from vaka.testing.models import FunctionModel

SECRET = "hunter2-hunter2"
DELTAS = (progress.TextDelta, progress.ReasoningDelta, progress.ToolArgsDelta, progress.ToolOutputDelta)


def redact_in_pieces(finder: Any, pieces: list[str]) -> str:
    stage = StreamRedactor(finder)
    return "".join([*(stage.feed(piece) for piece in pieces), stage.feed("", last=True)])


words = st.lists(st.text("abc", min_size=1, max_size=6), min_size=1, max_size=4)


@given(words, st.lists(st.text("abc", max_size=5), max_size=12))
def test_pieces_come_to_what_the_whole_comes_to(registered: list[str], pieces: list[str]) -> None:
    finder = SecretValues()
    finder.add(*registered)
    assert redact_in_pieces(finder, pieces) == redact_text(finder, "".join(pieces))


class SlowSecretValues(SecretValues):
    """Looks at every piece."""

    def is_clear(self, text: str) -> bool:
        return False


@given(
    words | st.lists(st.text("abc", min_size=3, max_size=6), min_size=20, max_size=30),
    st.lists(st.text("abcd", max_size=8), max_size=12),
)
def test_a_piece_that_need_not_be_looked_at_is_shown_as_if_it_had_been(
    registered: list[str], pieces: list[str]
) -> None:
    quick, careful = SecretValues(), SlowSecretValues()
    quick.add(*registered)
    careful.add(*registered)
    one, other = StreamRedactor(quick), StreamRedactor(careful)
    assert [one.feed(piece) for piece in pieces] == [other.feed(piece) for piece in pieces]
    assert one.feed("", last=True) == other.feed("", last=True)


def test_a_delta_with_nothing_to_hide_is_shown_as_it_is() -> None:
    veil, secrets, place = LiveRedactor(), Secrets([SECRET]), EventScope()
    said = [progress.TextDelta(message_id=MessageId("m"), block=0, offset=at * 5, text="plain") for at in range(3)]
    shown = [body for delta in said for _, body in veil.redact(secrets, place, delta)]
    assert all(one is other for one, other in zip(shown, said, strict=True))


def test_only_what_may_be_the_beginning_of_a_secret_is_held_back() -> None:
    finder = SecretValues()
    finder.add("secret", "secret-key")
    stage = StreamRedactor(finder)
    shown = [stage.feed(piece) for piece in ["ab", "c se", "al", "s", "ecret", "-k", "!", "secret "]]
    assert shown == ["ab", "c ", "seal", "", "", "", "[redacted]-k!", "[redacted] "]


def test_a_secret_registered_on_the_way_is_found_from_then_on() -> None:
    secrets = Secrets()
    stage = StreamRedactor(secrets.all_finders[0])
    first = stage.feed("hunt")
    secrets.add(SECRET)
    assert (first, stage.feed(SECRET), stage.feed("", last=True)) == ("hunt", "[redacted]", "")


def deltas_by_letter(kind: Any, text: str) -> list[Any]:
    return [kind(sign) for sign in text]


@pytest.mark.parametrize("secret", [SECRET, 'quote"back\\slash'])
async def test_no_delta_of_any_kind_shows_a_secret_and_their_offsets_are_right(secret: str) -> None:
    arguments = '{"at": ' + json.dumps(f"<{secret}>") + "}"
    asked: list[int] = []

    async def answer(prompt: Any) -> Any:
        asked.append(1)
        if len(asked) > 1:
            return [*deltas_by_letter(TextChunk, f"It was {secret} and hun"), StopChunk()]
        return [
            *deltas_by_letter(ReasoningChunk, f"I know {secret}, hunt"),
            *deltas_by_letter(TextChunk, f"It is {secret}; hunter"),
            *[CallChunk(0, name="look", arguments=sign) for sign in arguments],
            StopChunk("calls"),
        ]

    @vaka.tool(effect="read")
    async def look(context: vaka.ToolContext, at: str) -> str:
        """Look."""
        for sign in f"{at} and quot":
            context.emit(sign)
        return at

    async with runtime(secrets=(secret,)) as rt:
        events = await collect_turn(await rt.open(agent(FunctionModel(answer), look)))
    shown: dict[tuple[str, str, int], str] = {}
    for event in events:
        if isinstance(event.data, DELTAS):
            key = (event.type, event.data.message_id, event.data.block)
            assert event.data.offset == len(shown.get(key, ""))
            shown[key] = shown.get(key, "") + event.data.text
    texts = [(kind, text) for (kind, _, _), text in shown.items()]
    assert texts == [
        ("reasoning.delta", "I know [redacted], hunt"), ("text.delta", "It is [redacted]; hunter"),
        ("tool.args.delta", '{"at": "<[redacted]>"}'), ("tool.output.delta", "<[redacted]> and quot"),
        ("text.delta", "It was [redacted] and hun"),
    ]  # fmt: skip
    completed = [event.data for event in events if isinstance(event.data, progress.MessageCompleted)]
    assert [message.content[1 if at == 0 else 0].text for at, message in enumerate(completed)] == [  # type: ignore[union-attr]  # texts
        "It is [redacted]; hunter", "It was [redacted] and hun",
    ]  # fmt: skip


async def test_without_secrets_pieces_are_shown_as_they_come() -> None:
    async def answer(prompt: Any) -> Any:
        return [TextChunk("hun"), TextChunk("ter2"), StopChunk()]

    async with runtime() as rt:
        events = await collect_turn(await rt.open(agent(FunctionModel(answer))))
    assert [event.data.text for event in events if isinstance(event.data, progress.TextDelta)] == ["hun", "ter2"]
