"""Encoders are given any part of a run, as a reader that joins late or misses live events gets it."""

from hypothesis import given
from hypothesis import strategies as st

import vaka
from tests.views import recorded_runs as runs
from tests.views.openai_clients import check
from vaka.core.types import progress
from vaka.core.types.ids import MessageId, SessionId, TurnId
from vaka.core.types.message import as_content
from vaka.genx.agent_events import AgentEvent, AgentEventProjection
from vaka.views.a2a import task_of
from vaka.views.acp import AcpEncoder
from vaka.views.anthropic import StreamEncoder
from vaka.views.lumos import LumosEncoder, StreamingConfig, from_lumos, to_lumos
from vaka.views.openai import ChatEncoder, to_completion
from vaka.views.responses import ResponseEncoder

PATHS: tuple[tuple[str, ...], ...] = ((), ("agent-1",), ("agent-1", "agent-1"))


@st.composite
def partial_runs(draw: st.DrawFn) -> list[vaka.Event]:
    """Return the events of a run from one on, some of them missing or repeated."""
    events = draw(st.sampled_from(runs.recorded_runs()))
    events = events[draw(st.integers(0, len(events) - 1)) :]
    counts = draw(st.lists(st.sampled_from([1, 1, 1, 0, 2]), min_size=len(events), max_size=len(events)))
    return [event for event, count in zip(events, counts, strict=True) for _ in range(count)]


ROUTERS = st.sampled_from([(), runs.ROUTERS])


@given(partial_runs(), st.sampled_from(PATHS), ROUTERS)
def test_blocks_and_messages_of_any_part_are_well_formed(
    events: list[vaka.Event], path: tuple[str, ...], routers: tuple[str, ...]
) -> None:
    encoder = StreamEncoder(path, routers=routers)
    in_message = False
    open_block = None
    next_index = 0
    for stream_event in (one for event in events for one in encoder.encode(event)):
        match stream_event.type:
            case "message_start":
                assert not in_message
                in_message, next_index = True, 0
            case "content_block_start":
                assert in_message
                assert (open_block, stream_event.index) == (None, next_index)
                open_block, next_index = stream_event.index, next_index + 1
            case "content_block_delta":
                assert stream_event.index == open_block
            case "content_block_stop":
                assert stream_event.index == open_block
                open_block = None
            case "message_stop":
                assert in_message
                assert open_block is None
                in_message = False
            case _:
                assert stream_event.to_json()


@given(partial_runs(), st.sampled_from(PATHS), ROUTERS, st.integers(1, 9))
def test_any_part_can_be_shown_to_lumosai_and_read_back(
    events: list[vaka.Event], path: tuple[str, ...], routers: tuple[str, ...], size: int
) -> None:
    config = StreamingConfig(text_buffer_size=size, emit_metadata=True)
    assert list(from_lumos([event.to_json() for event in to_lumos(events, config, path=path)])) == events
    encoder = LumosEncoder(config, path=path, routers=routers)
    shown = [lumos_event for event in events for lumos_event in encoder.encode(event)]
    decoded = [list(from_lumos([lumos_event.to_json()])) for lumos_event in shown]
    assert all(event.seq == 0 for events_of_one in decoded for event in events_of_one)


@given(partial_runs(), st.sampled_from(PATHS), ROUTERS, st.integers(0, 99))
def test_chunks_of_any_part_are_whole_completions(
    events: list[vaka.Event], path: tuple[str, ...], routers: tuple[str, ...], size: int
) -> None:
    encoder = ChatEncoder(path, routers=routers, reasoning=True)
    open_id = ""
    for chunk in [chunk for event in events[:size] for chunk in encoder.encode(event)] + encoder.finish():
        if "error" in chunk:
            assert open_id
            open_id = ""
            continue
        (choice,) = check("ChatCompletionChunk", chunk).choices
        assert (choice.delta.role == "assistant") == (not open_id)
        assert chunk["id"] == (open_id or chunk["id"])
        open_id = "" if choice.finish_reason else chunk["id"]
    assert not open_id
    completion = to_completion(events[:size], path, routers=routers)
    assert "error" in completion or check("ChatCompletion", completion)


@given(partial_runs(), st.sampled_from(PATHS), ROUTERS, st.integers(0, 99))
def test_events_of_any_part_are_whole_responses(
    events: list[vaka.Event], path: tuple[str, ...], routers: tuple[str, ...], size: int
) -> None:
    encoder = ResponseEncoder(path, routers=routers)
    open_items: set[int] = set()
    is_open = False
    items = 0
    last = -1
    encoded = [one for event in events[:size] for one in encoder.encode(event)] + encoder.finish()
    for event in encoded:
        match event["type"].removeprefix("response."):
            case "created":
                assert not is_open
                is_open = True
                items = 0
                last = -1
            case "output_item.added":
                assert event["output_index"] == items
                open_items.add(items)
                items += 1
            case "output_item.done":
                open_items.remove(event["output_index"])
            case "completed" | "incomplete" | "failed":
                assert (is_open, open_items) == (True, set())
                is_open = False
                check("Response", event["response"])
            case _:
                assert is_open
                assert event.get("output_index", -1) in {-1, *open_items}
        assert event["sequence_number"] > last
        last = event["sequence_number"]
    assert not is_open


@st.composite
def lossy_messages(draw: st.DrawFn) -> tuple[str, list[vaka.Event]]:
    """Return the text of a message of several blocks, and its events without some of the deltas within the blocks."""
    texts = draw(st.lists(st.text("abc", min_size=1, max_size=4), min_size=1, max_size=3))
    is_cut = draw(st.booleans())
    message = MessageId("m")
    deltas = [
        progress.TextDelta(message_id=message, block=block, offset=at, text=text[at])
        for block, text in enumerate(texts)
        for at in range(len(text))
        if at == len(text) - 1 or draw(st.booleans())
    ]
    snapshots = [
        progress.MessageSnapshot(message_id=message, block=block, of=progress.TextDelta.type, text=text)
        for block, text in enumerate(texts)
        if draw(st.booleans())
    ]
    content = as_content("".join(texts) if is_cut else [vaka.Text(text=text) for text in texts])
    whole = progress.MessageCompleted(message_id=message, content=content, stop="end", cut=is_cut)
    bodies = [progress.TurnStarted(agent="guide", inputs=()), *deltas, *snapshots, whole]
    return "".join(texts), [vaka.Event(data=body, session=SessionId("s"), ts="", turn=TurnId("t")) for body in bodies]


@given(lossy_messages())
def test_a_message_whose_deltas_were_lost_is_shown_whole_and_in_order(lossy: tuple[str, list[vaka.Event]]) -> None:
    text, events = lossy
    chat = ChatEncoder()
    lumos = LumosEncoder()
    acp = AcpEncoder()
    genx = AgentEventProjection(SessionId("s"))
    chunks = [chunk for event in events for chunk in chat.encode(event)]
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks) == text
    shown = [one.data["delta"] for event in events for one in lumos.encode(event) if one.type == "TextDelta"]
    assert "".join(shown) == text
    updates = [one["update"] for event in events for one in acp.encode(event)]
    assert "".join(update["content"]["text"] for update in updates) == text
    projected = [one for event in events for one in genx.feed(event)]
    assert "".join(str(one.chunk.part) for one in projected if isinstance(one, AgentEvent) and one.chunk) == text
    task = task_of(events) or {}
    assert "".join(part["text"] for artifact in task["artifacts"] for part in artifact["parts"]) == text
