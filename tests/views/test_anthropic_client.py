"""What Anthropic's own client reads from stream events."""

from typing import Any

import httpx2
import pytest

from tests.models.oracles.vendor_clients import anthropic_message
from tests.views import recorded_runs as runs
from vaka.views.anthropic import PING, StreamEncoder


async def test_anthropics_client_reads_each_message() -> None:
    pytest.importorskip("anthropic")
    encoder = StreamEncoder()
    events = [one for event in await runs.record_tools() for one in encoder.encode(event)]
    starts, ends = (
        [at for at, one in enumerate(events) if one.type == f"message_{name}"] for name in ("start", "stop")
    )
    messages: list[Any] = []
    for start, end in zip(starts, ends, strict=True):
        body = b"".join(event.to_sse() for event in (PING, *events[start : end + 1]))
        answer = httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=body)
        with httpx2.Client(transport=httpx2.MockTransport(lambda _, answer=answer: answer)) as http:
            messages.append(anthropic_message(http))
    calls = [(block.name, block.input) for block in messages[0].content[2:]]
    assert calls == [("weather", {"city": "Hilo"}), ("weather", {"city": "Atlantis"}), ("tide", {}), ("fly", {})]
    assert [block.type for block in messages[0].content[:3]] == ["thinking", "text", "tool_use"]
    assert (messages[1].content[0].text, messages[1].stop_reason) == ("Grüße, 世界.", "end_turn")
    assert (messages[0].usage.output_tokens, messages[0].stop_reason) == (2, "tool_use")
