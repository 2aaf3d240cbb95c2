"""The frames of the WebSocket: what is accepted, and what the answer to anything else says."""

import json
from typing import get_args

import jsonschema_rs
import msgspec
import pytest

from scripts import schema
from vaka.server.ws import frames
from vaka.server.ws.frames import InvalidFrame, encode_control, encode_error, encode_reply, parse_frame


def refusal(text: str) -> tuple[frames.RequestId | None, str, str]:
    with pytest.raises(InvalidFrame) as caught:
        parse_frame(text)
    return caught.value.id, caught.value.code, str(caught.value)


def test_requests_are_read_with_their_defaults() -> None:
    frame = parse_frame('{"id": 7, "method": "subscribe", "params": {"session": "s"}}')
    assert frame == frames.Subscribe(id=7, params=frames.SubscribeParams(session="s"))
    assert parse_frame('{"id": "a", "method": "ping"}') == frames.Ping(id="a")


@pytest.mark.parametrize("text", ["", "x", "[]", '"\\ud800"', "[" * 100_000, '{"id": true}', '{"id": {}}'])
def test_a_frame_that_is_not_a_request_has_no_id_to_answer(text: str) -> None:
    id, code, message = refusal(text)
    assert (id, code) == (None, "invalid_frame")
    assert '{"id", "method", "params"}' in message


def test_the_error_names_what_is_wrong_with_a_request() -> None:
    assert refusal('{"id": 1, "method": "fly"}')[:2] == (1, "unknown_method")
    assert "one of hello, auth, subscribe" in refusal('{"id": 1, "method": ["x"]}')[2]
    id, code, message = refusal('{"id": 2, "method": "subscribe", "params": {"session": "s", "afer": "1"}}')
    assert (id, code) == (2, "invalid_params")
    assert "afer" in message
    assert refusal('{"id": 3, "method": "ping", "extra": 1}')[1] == "invalid_params"
    assert refusal('{"id": 4, "method": "subscribe", "params": {"session": 5}}')[1] == "invalid_params"
    assert refusal('{"method": "ping"}')[:2] == (None, "invalid_params")


def test_the_schema_describes_the_frames_of_both_sides() -> None:
    document = json.loads((schema.FOLDER / "frames.schema.json").read_text())
    del document["$defs"]["EventFrame"]["properties"]["event"]["$ref"]  # of another file
    client = jsonschema_rs.validator_for({**document, "oneOf": [{"$ref": "#/$defs/client"}]})
    server = jsonschema_rs.validator_for({**document, "oneOf": [{"$ref": "#/$defs/server"}]})
    for text in (
        '{"id": 1, "method": "hello", "params": {"client": "c"}}',
        '{"id": 1, "method": "turn.start", "params": {"session": "s", "input": "Hi"}}',
    ):
        assert msgspec.to_builtins(parse_frame(text)) == json.loads(text)
        client.validate(json.loads(text))
    assert not client.is_valid({"id": 1, "method": "ping", "extra": 1})
    assert not client.is_valid({"id": 1, "method": "fly"})
    error = frames.FrameError(code="not_found", message="there is no session 'x'")
    for sent in (
        encode_reply(1, frames.PingResult(ts="")),
        encode_error(None, error),
        encode_control(frames.PressureControl(active=True, queued_frames=1, queued_bytes=2)),
        encode_control(frames.PingControl()),
    ):
        server.validate(json.loads(sent))
    assert len(get_args(frames.ClientFrame)) == len(frames.METHODS)
