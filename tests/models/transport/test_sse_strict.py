"""The strict reader of event streams: a garbled line is an error and is not skipped."""

import pytest

from vaka.core.types.errors import StreamCut
from vaka.models.transport.sse import ServerSentEvent, SSEParser


def read_strict(body: bytes) -> tuple[list[bytes], str]:
    """Return the data that was read byte by byte, and what was wrong in the end."""
    parser, items = SSEParser(strict=True), list[ServerSentEvent]()
    try:
        for at in range(len(body)):
            items += parser.feed(body[at : at + 1])
        parser.end()
    except StreamCut as error:
        return [item.data for item in items], str(error)
    return [item.data for item in items], ""


@pytest.mark.parametrize(
    ("body", "before"),
    [
        (b"data: a\n\ndaua: b\n\ndata: c\n\n", [b"a"]),
        (b"data: a\n\n\xffata: b\n\ndata: c\n\n", [b"a"]),
        (b"data: a\n\nevent: x\x00data: {}\n\ndata: c\n\n", [b"a"]),
        (b"event: x\n data: a\n\ndata: b\n\n", []),
    ],
)
def test_a_line_that_was_garbled_ends_the_stream(body: bytes, before: list[bytes]) -> None:
    assert read_strict(body) == (before, "the stream is garbled: one of its lines is not a line of an event stream")


def test_all_fields_of_the_standard_are_accepted() -> None:
    body = b"\xef\xbb\xbf: ping\n\nevent: x\ndata: a\nid: 1\nretry: 5\ndata\n\nevent: ping\n\n:\n\ndata:b\r\n\r\n"
    assert read_strict(body) == ([b"a\n", b"b"], "")


def test_a_body_that_is_not_an_event_stream_is_described_in_strict_mode() -> None:
    assert read_strict(b"daua: a\n\ndata: b\n\n") == ([], "expected an event stream, got plain text: 'daua: a data: b'")
    assert read_strict(b"<html>\n<p>Bad gateway</p>\n")[1].startswith("expected an event stream, got an HTML page")
