"""Secrets are redacted in live events, however they are split into deltas."""

import json
from itertools import accumulate, islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import vaka
from tests.runtime.runtime_fixtures import agent, collect_turn, runtime
from vaka.config.options import Storage
from vaka.core.ports.model import CallChunk, ReasoningChunk, StopChunk, TextChunk
from vaka.core.session.live_redaction import LiveRedactor, StreamRedactor
from vaka.core.session.redaction import Secrets, SecretValues, redact_text
from vaka.core.types import progress
from vaka.core.types.event import Event
from vaka.core.types.ids import EventScope, MessageId, SessionId
from vaka.matching.secrets import SECRET_FORMATS
from vaka.testing.models import FunctionModel

SECRET = "hunter2-hunter2"
S = SessionId("s")


def redact_in_pieces(finder: Any, pieces: list[str]) -> str:
    redactor = StreamRedactor(finder)
    return "".join([*(redactor.feed(piece) for piece in pieces), redactor.feed("", last=True)])


words = st.lists(st.text("abc", min_size=1, max_size=6), min_size=1, max_size=4)


@given(words, st.lists(st.text("abc", max_size=5), max_size=12))
def test_redacting_in_pieces_equals_redacting_the_whole_text(registered: list[str], pieces: list[str]) -> None:
    finder = SecretValues()
    finder.add(*registered)
    assert redact_in_pieces(finder, pieces) == redact_text(finder, "".join(pieces))


class SlowSecretValues(SecretValues):
    """Without the quick check."""

    def clear_context(self, text: str, start: int) -> int:
        return -1


@given(
    words | st.lists(st.text("abc", min_size=3, max_size=6), min_size=20, max_size=30),
    st.lists(st.text("abcd", max_size=8), max_size=12),
)
def test_the_quick_check_changes_no_output(registered: list[str], pieces: list[str]) -> None:
    quick, careful = SecretValues(), SlowSecretValues()
    quick.add(*registered)
    careful.add(*registered)
    one, other = StreamRedactor(quick), StreamRedactor(careful)
    assert [one.feed(piece) for piece in pieces] == [other.feed(piece) for piece in pieces]
    assert one.feed("", last=True) == other.feed("", last=True)


def test_a_delta_without_secrets_is_passed_on_unchanged() -> None:
    redactor = LiveRedactor()
    secrets = Secrets([SECRET])
    scope = EventScope()
    deltas = [progress.TextDelta(message_id=MessageId("m"), block=0, offset=at * 5, text="plain") for at in range(3)]
    redacted = [body for delta in deltas for _, body in redactor.redact_deltas(secrets, [(scope, delta)])]
    assert all(one is other for one, other in zip(redacted, deltas, strict=True))


@given(st.lists(st.sampled_from([*"plain: ", *SECRET, SECRET, "sk-ant-api03-", "x" * 90])), st.lists(st.integers(1, 5)))
def test_deltas_that_arrive_together_are_redacted_like_the_whole_text(pieces: list[str], sizes: list[int]) -> None:
    redactor = LiveRedactor()
    secrets = Secrets([SECRET], finders=[SECRET_FORMATS])
    message = MessageId("m")
    starts = [0, *accumulate(map(len, pieces))]
    deltas = iter(
        [
            (EventScope(), progress.TextDelta(message_id=message, block=0, offset=start, text=text))
            for start, text in zip(starts, pieces, strict=False)
        ]
    )
    published: list[Any] = []
    for size in [*sizes, len(pieces)]:
        if batch := list(islice(deltas, size)):
            published += redactor.redact_deltas(secrets, batch)
    completed = progress.MessageCompleted(message_id=message, content=())
    published += redactor.flush_closed([Event(data=completed, session=S, ts="")])
    text = "".join(body.text for _, body in published)
    assert text == redact_text(SECRET_FORMATS, redact_text(secrets.all_finders[0], "".join(pieces)))
    assert [body.offset for _, body in published] == [0, *accumulate(len(body.text) for _, body in published)][:-1]


@pytest.mark.parametrize("opened", [False, True])
def test_a_secret_in_the_second_of_two_blocks_that_arrive_together_is_redacted(opened: bool) -> None:
    redactor = LiveRedactor()
    secrets = Secrets([SECRET])
    scope = EventScope()
    message = MessageId("m")

    def delta(block: int, offset: int, text: str) -> tuple[EventScope, progress.TextDelta]:
        return scope, progress.TextDelta(message_id=message, block=block, offset=offset, text=text)

    published: list[Any] = []
    if opened:
        published += redactor.redact_deltas(secrets, [delta(0, 0, "plain ")])
    together = [delta(0, 6 if opened else 0, "words. "), delta(1, 0, "It is "), delta(1, 6, f"{SECRET}.")]
    published += redactor.redact_deltas(secrets, together)
    completed = progress.MessageCompleted(message_id=message, content=())
    published += redactor.flush_closed([Event(data=completed, session=S, ts="")])
    texts = ["".join(body.text for _, body in published if body.block == block) for block in (0, 1)]
    assert texts == ["plain words. " if opened else "words. ", "It is [redacted]."]


def test_the_rest_of_a_secret_is_redacted_when_it_arrives_behind_output_of_the_other_stream() -> None:
    redactor = LiveRedactor()
    secrets = Secrets([SECRET])
    scope = EventScope()
    message = MessageId("call_1")

    def delta(block: int, offset: int, text: str) -> tuple[EventScope, progress.ToolOutputDelta]:
        return scope, progress.ToolOutputDelta(message_id=message, block=block, offset=offset, text=text)

    published: list[Any] = []
    for batch in (
        [delta(0, 0, "plain")],
        [delta(1, 0, f"It is {SECRET[:8]}")],
        [delta(0, 5, " words."), delta(1, 14, f"{SECRET[8:]}.")],
    ):
        published += redactor.redact_deltas(secrets, batch)
    texts = ["".join(body.text for _, body in published if body.block == block) for block in (0, 1)]
    assert texts == ["plain words.", "It is [redacted]."]


def test_only_a_possible_beginning_of_a_secret_is_withheld() -> None:
    finder = SecretValues()
    finder.add("secret", "secret-key")
    redactor = StreamRedactor(finder)
    output = [redactor.feed(piece) for piece in ["ab", "c se", "al", "s", "ecret", "-k", "!", "secret "]]
    assert output == ["ab", "c ", "seal", "", "", "", "[redacted]-k!", "[redacted] "]


def test_a_secret_registered_during_a_stream_is_found_from_then_on() -> None:
    secrets = Secrets()
    redactor = StreamRedactor(secrets.all_finders[0])
    first = redactor.feed("hunt")
    secrets.add(SECRET)
    assert (first, redactor.feed(SECRET) + redactor.feed("", last=True)) == ("hunt", "[redacted]")


def deltas_by_letter(kind: Any, text: str) -> list[Any]:
    return [kind(sign) for sign in text]


@pytest.mark.parametrize("secret", [SECRET, 'quote"back\\slash'])
async def test_deltas_of_every_kind_are_redacted_and_have_correct_offsets(secret: str) -> None:
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

    async with runtime(storage=Storage(secrets=(secret,))) as rt:
        events = await collect_turn(await rt.open(agent(FunctionModel(answer), look)))
    text_by_block: dict[tuple[str, str, int], str] = {}
    for event in events:
        if isinstance(event.data, progress.Delta):
            key = (event.type, event.data.message_id, event.data.block)
            assert event.data.offset == len(text_by_block.get(key, ""))
            text_by_block[key] = text_by_block.get(key, "") + event.data.text
    texts = [(kind, text) for (kind, _, _), text in text_by_block.items()]
    assert texts == [
        ("reasoning.delta", "I know [redacted], hunt"),
        ("text.delta", "It is [redacted]; hunter"),
        ("tool.args.delta", '{"at": "<[redacted]>"}'),
        ("tool.output.delta", "<[redacted]> and quot"),
        ("text.delta", "It was [redacted] and hun"),
    ]
    completed = [event.data for event in events if isinstance(event.data, progress.MessageCompleted)]
    assert [message.content[1 if at == 0 else 0].text for at, message in enumerate(completed)] == [  # type: ignore[union-attr]  # texts
        "It is [redacted]; hunter",
        "It was [redacted] and hun",
    ]


async def test_without_secrets_deltas_are_published_unchanged() -> None:
    async def answer(prompt: Any) -> Any:
        return [TextChunk("hun"), TextChunk("ter2"), StopChunk()]

    async with runtime() as rt:
        events = await collect_turn(await rt.open(agent(FunctionModel(answer))))
    assert [event.data.text for event in events if isinstance(event.data, progress.TextDelta)] == ["hun", "ter2"]


def test_a_secret_in_the_arguments_of_a_call_is_redacted_although_those_of_another_come_between() -> None:
    redactor = LiveRedactor()
    secrets = Secrets([SECRET])
    scope = EventScope()
    message = MessageId("m")
    head, tail = SECRET[:1], SECRET[1:]

    def delta(block: int, offset: int, text: str) -> tuple[EventScope, progress.ToolArgsDelta]:
        return scope, progress.ToolArgsDelta(message_id=message, block=block, offset=offset, text=text)

    published: list[Any] = []
    for together in (
        [delta(0, 0, "plain ")],
        [delta(0, 6, "words "), delta(1, 0, head), delta(0, 12, "and more.")],
        [delta(1, 1, tail)],
        [delta(0, 21, " The end.")],
    ):
        published += redactor.redact_deltas(secrets, together)
    completed = progress.MessageCompleted(message_id=message, content=())
    published += redactor.flush_closed([Event(data=completed, session=S, ts="")])
    for number, expected in enumerate(("plain words and more. The end.", "[redacted]")):
        bodies = [body for _, body in published if body.block == number]
        assert "".join(body.text for body in bodies) == expected
        assert [body.offset for body in bodies] == [
            len("".join(b.text for b in bodies[:n])) for n in range(len(bodies))
        ]
