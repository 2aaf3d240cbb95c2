"""The formats of streamed events: vaka's own and the formats of other libraries."""

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

import msgspec

from vaka.core.types.event import Event
from vaka.core.types.ids import SessionId
from vaka.feature import require_feature
from vaka.views.anthropic import StreamEncoder
from vaka.views.lumos.encode import LumosEncoder

StreamFormat: TypeAlias = Literal["vaka", "lumos", "genx", "agentsdk"]
EncodeEvents: TypeAlias = Callable[[Sequence[Event]], bytes]


def encode_events(events: Sequence[Event]) -> bytes:
    """Return events as server-sent events in vaka's own form."""
    if len(events) == 1:
        return events[0].to_sse()
    return b"".join([event.to_sse() for event in events])


def make_encoder(format: StreamFormat, session: SessionId, agent: str) -> EncodeEvents:
    """Return the function that turns the next events of a session into server-sent events."""
    match format:
        case "vaka":
            return encode_events
        case "lumos":
            return _lumos_encoder()
        case "genx":
            return _genx_encoder(session, agent)
        case "agentsdk":
            encoder = StreamEncoder()
            return lambda events: b"".join([each.to_sse() for event in events for each in encoder.encode(event)])


def _lumos_encoder() -> EncodeEvents:
    encoder = LumosEncoder()

    def encode(events: Sequence[Event]) -> bytes:
        return b"".join(
            [_join_frames(event, [(each.type, each.to_json()) for each in encoder.encode(event)]) for event in events]
        )

    return encode


def _genx_encoder(session: SessionId, agent: str) -> EncodeEvents:
    require_feature("genx", "the format genx")
    from vaka.genx.agent_events import AgentEvent, AgentEventProjection, RoundFailure

    projection = AgentEventProjection(session, agent)

    def name_of(each: AgentEvent | RoundFailure) -> str:
        return each.type.value if isinstance(each, AgentEvent) else "error"

    def encode(events: Sequence[Event]) -> bytes:
        return b"".join(
            [
                _join_frames(event, [(name_of(each), msgspec.json.encode(each)) for each in projection.feed(event)])
                for event in events
            ]
        )

    return encode


def _join_frames(event: Event, parts: Sequence[tuple[str, bytes]]) -> bytes:
    """Return what was made of one event as frames; the last one has its cursor, if it is stored."""
    frames = [f"event: {name}\ndata: ".encode() + data + b"\n\n" for name, data in parts]
    if frames and event.id:
        frames[-1] = f"id: {event.id}\n".encode() + frames[-1]
    return b"".join(frames)
