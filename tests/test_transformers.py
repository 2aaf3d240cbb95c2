"""Transformers: text that is split, merged and mapped; streams that are divided and united; hostile input."""

import asyncio
from collections.abc import AsyncGenerator, Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vaka.content import Image, Text
from vaka.core.types.errors import InvalidInput
from vaka.transformers import MapText, MergeText, SplitText, StreamChunk, TextUnit, Transformer, merge, split

IMAGE = Image(url="https://example.com/a.png")


def text(content: str, stream: str = "", **marks: bool) -> StreamChunk:
    return StreamChunk(part=Text(text=content), stream=stream, **marks)


async def stream_of(chunks: Iterable[StreamChunk | str]) -> AsyncGenerator[StreamChunk]:
    for chunk in chunks:
        yield text(chunk) if isinstance(chunk, str) else chunk


async def run(transformer: Transformer, *chunks: StreamChunk | str) -> list[StreamChunk]:
    return [chunk async for chunk in transformer.transform(stream_of(chunks))]


async def texts_of(transformer: Transformer, *chunks: StreamChunk | str) -> list[str]:
    return [chunk.part.text for chunk in await run(transformer, *chunks) if isinstance(chunk.part, Text)]


@pytest.mark.parametrize(
    ("by", "content", "segments"),
    [
        ("sentence", 'One. "Two!" Three', ["One. ", '"Two!" ', "Three"]),
        ("sentence", "Pi is 3.14, e.g. this… And\nnext", ["Pi is 3.14, e.g. ", "this… ", "And\n", "next"]),
        ("sentence", "你好！“走吧。”再见", ["你好！", "“走吧。”", "再见"]),
        ("sentence", "...", ["..."]),
        ("line", "a\n\nb\r\nc", ["a\n", "\n", "b\r\n", "c"]),
        ("paragraph", "a\nb\n \n\n c\n", ["a\nb\n \n\n ", "c\n"]),
    ],
)
async def test_text_is_split_the_same_however_it_arrives(by: TextUnit, content: str, segments: list[str]) -> None:
    assert await texts_of(SplitText(by), content) == segments
    assert await texts_of(SplitText(by), *content) == segments


@given(
    st.lists(st.text(alphabet="aB.!?。”) \n\t", max_size=6), max_size=12),
    st.sampled_from(["sentence", "line", "paragraph"]),
)
def test_splitting_loses_nothing_and_does_not_depend_on_the_pieces(pieces: list[str], by: TextUnit) -> None:
    async def check() -> None:
        whole = "".join(pieces)
        split_whole = await texts_of(SplitText(by), whole)
        assert "".join(split_whole) == whole
        assert await texts_of(SplitText(by), *pieces) == split_whole

    asyncio.run(check())


async def test_marks_are_passed_on_and_none_is_invented() -> None:
    begun, ended = text("a. b", "1", begin=True), text(". c", "1", end=True)
    assert await run(SplitText(), begun, text("x", "2"), ended) == [
        StreamChunk(stream="1", begin=True),
        text("a. ", "1"),
        text("b. ", "1"),
        text("c", "1"),
        StreamChunk(stream="1", end=True),
        text("x", "2"),
    ]
    image, end = StreamChunk(part=IMAGE, end=True), StreamChunk(end=True)
    assert await run(MergeText(), "a", "b", image, "c", "d", end, "e") == [
        text("ab"),
        image,
        text("cd"),
        end,
        text("e"),
    ]
    assert await run(MergeText()) == []


async def test_hostile_text_is_cut_and_lost_nowhere() -> None:
    assert list(map(len, await texts_of(SplitText(max_chars=40), *"x" * 100))) == [40, 40, 20]
    assert list(map(len, await texts_of(MergeText(max_chars=1000), *["." * 7] * 300, " y"))) == [1000, 1000, 102]
    for transformer in (SplitText(), MergeText()):
        for content in ("." * 12_000, "\n \t" * 4000):
            assert "".join(await texts_of(transformer, *content)) == content
        streams = [text(f"{number}.", str(number)) for number in range(2500)]
        assert sorted(await run(transformer, *streams), key=lambda chunk: int(chunk.stream)) == streams
    for wrong in (lambda: SplitText("word"), lambda: MergeText(max_chars=0)):  # type: ignore[arg-type]  # the fault
        with pytest.raises(InvalidInput, match=r"text can be split by|max_chars must be at least 1"):
            wrong()


async def test_text_is_mapped_by_a_function_of_any_kind() -> None:
    async def slowly(content: str) -> str:
        return content.upper()

    closed: list[str] = []

    async def in_pieces(content: str) -> AsyncGenerator[str]:
        try:
            for letter in content:
                yield letter
        finally:
            closed.append(content)

    functions: list[Any] = [str.upper, slowly]
    for function in functions:
        assert await texts_of(MapText(function), "ab", "c", StreamChunk(end=True), "d") == ["ABC", "D"]
    assert await texts_of(MapText(in_pieces), "ab", "c") == ["a", "b", "c"]
    result = MapText(in_pieces).transform(stream_of(["xyz"]))
    assert await anext(result) == text("x")
    await result.aclose()
    assert closed == ["abc", "xyz"]

    def fail(content: str) -> str:
        raise ValueError(content)

    with pytest.raises(ValueError, match="bad"):
        await run(MapText(fail), "bad")


class Source:
    """A stream that is fed by hand; ``closed`` says whether it was cancelled or closed."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[StreamChunk | Exception | None] = asyncio.Queue()
        self.closed = False

    async def chunks(self) -> AsyncGenerator[StreamChunk]:
        try:
            while (item := await self.queue.get()) is not None:
                if isinstance(item, Exception):
                    raise item
                yield item
        finally:
            self.closed = True


def is_upper(chunk: StreamChunk) -> bool:
    return isinstance(chunk.part, Text) and chunk.part.text.isupper()


async def test_a_divided_stream_survives_a_cancelled_reader() -> None:
    source = Source()
    upper, lower = split(source.chunks(), is_upper)
    first = asyncio.create_task(anext(upper))
    second = asyncio.create_task(anext(lower))
    await asyncio.sleep(0)
    first.cancel()
    for content in ("A", "b", "C"):
        source.queue.put_nowait(text(content))
    assert await second == text("b")
    source.queue.put_nowait(None)
    assert [chunk async for chunk in lower] == []
    assert source.closed


async def test_both_sides_of_a_divided_stream_see_its_chunks_and_its_error() -> None:
    source = Source()
    upper, lower = split(source.chunks(), is_upper)
    for content in ("A", "b", "C"):
        source.queue.put_nowait(text(content))
    source.queue.put_nowait(ValueError("cut"))
    assert [await anext(lower), await anext(upper), await anext(upper)] == [text("b"), text("A"), text("C")]
    for side in (upper, lower):
        with pytest.raises(ValueError, match="cut"):
            await anext(side)


async def test_a_side_that_is_not_read_is_an_error_and_a_closed_one_is_not() -> None:
    many = [text("A")] * 1500
    upper, lower = split(stream_of([*many, text("b")]), is_upper)
    with pytest.raises(InvalidInput, match="1000 chunks wait; read or close it"):
        await anext(lower)
    upper, lower = split(stream_of([*many, text("b")]), is_upper)
    await upper.aclose()
    assert [chunk async for chunk in lower] == [text("b")]


async def test_streams_are_merged_as_their_chunks_arrive() -> None:
    sources = [Source(), Source()]
    merged = merge(*(source.chunks() for source in sources))
    sources[1].queue.put_nowait(text("1"))
    assert await anext(merged) == text("1")
    sources[0].queue.put_nowait(text("2"))
    assert await anext(merged) == text("2")
    sources[0].queue.put_nowait(None)
    sources[1].queue.put_nowait(ValueError("cut"))
    with pytest.raises(ValueError, match="cut"):
        await anext(merged)
    sources = [Source(), Source()]
    merged = merge(*(source.chunks() for source in sources))
    waiting = asyncio.create_task(anext(merged))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert [source.closed for source in sources] == [True, True]
