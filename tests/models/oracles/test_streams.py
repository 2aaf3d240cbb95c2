"""The same bytes give the same answer here and in the vendors' own clients."""

from collections.abc import Sequence

import msgspec
import pytest

from tests.models.hostile.adapters import WIRES, adapter, answer_events, close_model
from tests.models.oracles.vendor_clients import CLIENTS, VendorAnswer, check_event
from vaka.core.ports.model import Chunk
from vaka.testing.adapters import FULL_ANSWER
from vaka.testing.fake_provider import FakeProvider, Fault
from vaka.testing.models import ScriptLine, call, calls, fail, join_chunks, say, try_stream

ANSWERS: dict[str, ScriptLine] = {
    "words": say("It will rain tomorrow, and the day after."),
    "nothing": say(""),
    "all of Unicode": {"chunks": ["日本", "語 🌺", "", "\u202e", " \\ \" ' \n\t", "é"]},
    "ends of lines that are none": {"chunks": ["a\u2028", "b\x85", "c\x0b\x0c"]},
    "thought": say("Yes.", reasoning="It is the wet side of the island."),
    "only thought": {"reasoning": "It is the wet side of the island.", "stop": "length"},
    "a call": call("weather", city="Hilo 🌺", more={"a": [1, None, True, 2.5]}),
    "a call of nothing": call("weather"),
    "calls": calls(*(call("weather", city=f"City {number}") for number in range(5))),
    "everything": FULL_ANSWER,
    "a long answer": say("word " * 2000),
    "an end by length": say("Once upon a", stop="length"),
    "a refusal": say("I would rather not.", stop="refusal"),
    "what it costs": say("Hi.", usage={"input": 1000, "output": 50, "cache_read": 600, "cache_write": 100}),
}


def answer_of(chunks: Sequence[Chunk]) -> VendorAnswer:
    found = join_chunks(chunks)
    made = [
        (id, name, msgspec.json.decode(arguments or "{}"))
        for id, (name, arguments) in zip(found.ids, found.calls, strict=True)
    ]
    [stop] = found.stops
    return VendorAnswer(found.text, found.reasoning, made, stop, found.usage.input, found.usage.output)


async def compare_answers(wire: str, body: bytes) -> tuple[VendorAnswer, VendorAnswer]:
    """Return what we and they make of the same bytes."""
    async with FakeProvider(say("Hi."), fault=Fault(body=body)) as provider:
        model = adapter(wire, provider.url)
        chunks, error = await try_stream(model)
        await close_model(model)
        assert error is None
        return answer_of(chunks), await CLIENTS[wire](provider.url)


@WIRES
async def test_the_decoder_reads_what_the_vendors_client_reads(wire: str) -> None:
    different: list[tuple[str, VendorAnswer, VendorAnswer]] = []
    for name, answer in ANSWERS.items():
        if (wire, name) == ("gemini", "ends of lines that are none"):
            continue  # Google's client splits lines at them and fails; other tests cover the decoder
        ours, theirs = await compare_answers(wire, b"".join(answer_events(wire, answer)))
        if wire == "gemini":  # its calls have no ids, ours are generated
            ours = msgspec.structs.replace(ours, calls=[("", *made[1:]) for made in ours.calls])
        if ours != theirs:
            different.append((name, ours, theirs))
    assert different == []


@WIRES
def test_the_events_of_the_fake_provider_fit_the_types_of_the_vendors_client(wire: str) -> None:
    for answer in ANSWERS.values():
        for event in answer_events(wire, answer):
            data = event.rpartition(b"data: ")[2]
            if data.strip() != b"[DONE]" and b'"type":"ping"' not in data:
                check_event(wire, msgspec.json.decode(data))


@WIRES
async def test_arguments_in_any_pieces_are_the_same_to_both(wire: str) -> None:
    answer = call("weather", city="a" * 300, deep={"b": ["c" * 200]})
    ours, theirs = await compare_answers(wire, b"".join(answer_events(wire, answer)))
    assert [made[1:] for made in ours.calls] == [made[1:] for made in theirs.calls]


@WIRES
async def test_an_error_of_the_fake_provider_is_one_to_the_vendors_client(wire: str) -> None:
    for status in (400, 401, 403, 404, 409, 429, 500, 529):
        async with FakeProvider(fail(status, "the reason")) as provider:
            with pytest.raises(Exception, match="the reason") as caught:
                await CLIENTS[wire](provider.url)
        assert (getattr(caught.value, "status_code", None) or getattr(caught.value, "code", None)) == status
