"""Secrets are redacted by their format in all that a runtime stores and publishes, unless this is switched off."""

from typing import Any

import pytest

import vaka
from tests.matching.secret_samples import Sample, make_samples
from tests.runtime.runtime_fixtures import agent, collect_turn, read_log, runtime
from vaka.config.options import Storage
from vaka.core.ports.model import StopChunk, TextChunk
from vaka.core.types import progress
from vaka.core.types.errors import InvalidInput
from vaka.models.scripted import Scripted
from vaka.stores.memory import MemoryStore
from vaka.testing.models import FunctionModel

CHUNK = 7
SAMPLES = {sample.name: sample for sample in make_samples()}


@vaka.tool(effect="read")
async def look(context: vaka.ToolContext, settings: dict[str, Any]) -> str:
    """Look."""
    text = settings["text"]
    for at in range(0, len(text), CHUNK):
        context.emit(text[at : at + CHUNK])
    return f"{text} " + "x" * 40_000


async def run_with(sample: Sample, **options: Any) -> tuple[list[Any], bytes, list[Any]]:
    """Run a turn in which input, message, arguments, tool output and result hold a secret."""
    store, prompts = MemoryStore(), list[Any]()

    async def answer(prompt: Any) -> Any:
        prompts.append(prompt)
        if len(prompts) == 1:
            return {"tool_calls": [{"name": "look", "arguments": {"settings": {"text": sample.text}}}]}
        return [*[TextChunk(sample.text[at : at + CHUNK]) for at in range(0, len(sample.text), CHUNK)], StopChunk()]

    async with runtime(store, **options) as rt:
        events = await collect_turn(await rt.open(agent(FunctionModel(answer), look), id="s"), f"Use {sample.text} now")
    return events, b"".join([event.stored for event in await read_log(store, "s")]), prompts


@pytest.mark.parametrize("name", ["github", "aws-secret", "jwt", "yaml", "postgres", "slack-webhook", "private key"])
async def test_no_event_and_no_prompt_shows_a_secret(name: str) -> None:
    sample = SAMPLES[name]
    secret = sample.secret[-12:].encode() if len(sample.secret) < 100 else sample.secret[60:72].encode()
    events, stored, prompts = await run_with(sample)
    assert secret not in stored
    assert secret.decode() not in "".join(str(event.data) for event in events)
    assert secret.decode() not in repr(prompts[1].messages)
    deltas = [event.data.text for event in events if isinstance(event.data, progress.TextDelta)]
    assert "[redacted]" in "".join(deltas)
    output = [event.data.text for event in events if isinstance(event.data, progress.ToolOutputDelta)]
    assert "[redacted]" in "".join(output)


async def test_patterns_can_be_switched_off() -> None:
    sample = SAMPLES["github"]
    events, stored, _ = await run_with(sample, storage=Storage(redact_patterns=False))
    assert sample.secret.encode() in stored
    deltas = [event.data.text for event in events if isinstance(event.data, progress.TextDelta)]
    assert "".join(deltas) == sample.text


async def test_the_value_of_a_field_with_a_telling_name_is_redacted() -> None:
    arguments = {"settings": {"text": "x", "password": "correct-horse", "city": "correct-horse"}}
    call, store = {"tool_calls": [{"name": "look", "arguments": arguments}]}, MemoryStore()
    async with runtime(store) as rt:
        await collect_turn(await rt.open(agent(Scripted([call, {"text": "Done."}]), look), id="s"))
    called = next(event.data for event in await read_log(store, "s") if isinstance(event.data, progress.ToolStarted))
    settings: Any = called.call.arguments["settings"]
    assert settings == {"text": "x", "password": "[redacted]", "city": "correct-horse"}


def test_a_secret_that_is_too_short_is_refused() -> None:
    with pytest.raises(InvalidInput, match="a secret of 6 characters cannot be registered"):
        vaka.Runtime(storage=Storage(secrets=("secret",)))
