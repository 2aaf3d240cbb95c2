"""``ctx.generate``, ``generate_json`` and ``generate_stream``."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack
from functools import partial

import pytest

from tests.luau.surfaces.surface_fixtures import MemoryJournal, make_services, run_for_error, run_for_result, run_script
from vaka.core.ports.model import Chunk, Prompt, RetryChunk, StopChunk, TextChunk, UsageChunk
from vaka.core.types.errors import NotFound, ScriptError
from vaka.core.types.ids import JSON
from vaka.core.types.message import Usage
from vaka.core.types.monitor import UsageRecorded
from vaka.testing.models import FunctionModel, ScriptedModel, fail, say


async def test_generate_asks_a_model_by_name() -> None:
    model = ScriptedModel(say("Yes.", usage={"input": 3, "output": 1}), say("No."))
    names: list[str] = []
    costs: list[UsageRecorded] = []

    def find(name: str) -> ScriptedModel:
        names.append(name)
        return model

    source = """
        local one = ctx.generate("a/b", "Is it?", {system = "Be brief.", temperature = 0.5})
        local before = {{role = "user", content = "1"}}
        return one, ctx.generate("c", {{role = "user", content = "Sure?"}}, {messages = before})
    """
    assert await run_script(source, services=make_services(find_model=find, record_usage=costs.append)) == [
        "Yes.",
        "No.",
    ]
    assert names == ["a/b", "c"]
    first, second = model.prompts
    assert (first.system, first.options, first.number, second.number) == ("Be brief.", {"temperature": 0.5}, 1, 2)
    assert len(second.messages) == 2
    assert costs[0].usage == Usage(input=3, output=1)


@pytest.mark.parametrize(
    ("call", "why"),
    [
        ("generate()", "generate: model must be a string, not nil"),
        ("generate('')", "generate: model is required"),
        ("generate('m')", "generate: prompt must be a string, not nil"),
        ("generate('m', 'x', 1)", "generate: options must be a table, not a number"),
        ("generate('m', {})", "generate: the prompt has no message"),
        ("generate('m', {1})", "generate: a message must be a table with names, not a number"),
        ("generate('m', {promt = 'x'})", "generate: unknown prompt field 'promt'; expected system, messages or prompt"),
        ("generate('m', 'x', {system = 1})", "generate: system must be a string, not a number"),
        ("generate('m', {{role = 'user'}})", "generate: the content of a message must be a string, not nil"),
        ("generate('m', {{role = 'x', content = ''}})", "generate: unknown role 'x'"),
        ("generate('m', 'x', {f = print})", "a function is not plain data"),
        ("generate('other', 'x')", "no model 'other'"),
        ("generate_json('m', 'x')", "generate_json: schema must be a table, not nil"),
        ("generate_stream('m', 1)", "generate_stream: prompt must be a string, not a number"),
    ],
)
async def test_generate_raises_for_invalid_arguments(call: str, why: str) -> None:
    def find(name: str) -> ScriptedModel:
        if name == "other":
            raise NotFound(f"no model {name!r}")
        return ScriptedModel()

    assert why in await run_for_error(f"ctx.{call}", make_services(find_model=find))


async def test_a_model_that_fails_is_an_error_the_script_can_catch() -> None:
    model = ScriptedModel(fail(529, "busy"), {"chunks": ["a"], "cut_after": 0}, say("no", stop="refusal"))
    source = """
        local errors = {}
        for _ = 1, 3 do
            local ok, why = pcall(ctx.generate, "m", "x")
            table.insert(errors, why)
        end
        return errors
    """
    busy, cut, refused = await run_for_result(source, services=make_services(find_model=lambda _: model))
    assert "busy" in busy
    assert cut == "scripted: the answer was cut off"
    assert refused == "scripted: the model refused to answer"


def find_schema_problem(schema: JSON, value: JSON) -> str:
    """Check only required fields: enough of a schema for these tests."""
    if not isinstance(value, dict):
        return "not an object"
    lacking = [name for name in schema["required"] if name not in value]
    return f"{lacking[0]!r} is missing" if lacking else ""


async def test_generate_json_returns_a_value_that_fits_the_schema() -> None:
    model = ScriptedModel(say('```json\n{"city": "Hilo"}\n```'))
    source = "return ctx.generate_json('m', 'Where?', {type = 'object', required = {'city'}, enum = {}})"
    assert await run_for_result(
        source, services=make_services(find_model=lambda _: model, find_schema_problem=find_schema_problem)
    ) == {"city": "Hilo"}
    assert '"enum":[]' in model.prompts[0].system


async def test_generate_json_retries_once_with_the_problem() -> None:
    model = ScriptedModel(say("Hilo!"), say('{"city": "Hilo"}'))
    source = "return ctx.generate_json('m', 'Where?', {required = {'city'}})"
    assert await run_for_result(
        source, services=make_services(find_model=lambda _: model, find_schema_problem=find_schema_problem)
    ) == {"city": "Hilo"}
    *_, answer, again = model.prompts[1].messages
    assert "Hilo!" in repr(answer)
    assert "the answer is not JSON" in repr(again)
    assert [prompt.number for prompt in model.prompts] == [1, 2]


async def test_generate_json_fails_after_the_second_invalid_answer() -> None:
    model = ScriptedModel(say("[]"), say("{}"), say('{"city": 1}'))
    why = await run_for_error(
        "ctx.generate_json('m', 'x', {required = {'city'}})",
        make_services(find_model=lambda _: model, find_schema_problem=find_schema_problem),
    )
    assert why == "script:1: generate_json: m gave no answer that fits the schema: 'city' is missing"
    assert len(model.prompts) == 2


async def test_generate_stream_returns_the_answer_in_pieces() -> None:
    model = ScriptedModel({"chunks": ["日", "", "本 ", "x" * 100, "語"]})
    source = """
        local pieces = {}
        for piece in ctx.generate_stream("m", "x") do table.insert(pieces, piece) end
        return pieces
    """
    async with AsyncExitStack() as closing:
        services = make_services(find_model=lambda _: model, exit_stack=closing)
        assert await run_for_result(source, services=services) == ["日", "本 ", "x" * 100, "語"]


async def test_a_stream_that_is_not_read_to_its_end_is_closed_with_the_script() -> None:
    before = asyncio.all_tasks()
    model = ScriptedModel({"chunks": ["a", "b", "c"]})
    async with AsyncExitStack() as closing:
        source = "for piece in ctx.generate_stream('m', 'x') do return piece end"
        assert (
            await run_for_result(
                source,
                services=make_services(find_model=lambda _: model, exit_stack=closing),
            )
            == "a"
        )
    assert asyncio.all_tasks() == before


def select_model(model: ScriptedModel, _: str) -> ScriptedModel:
    return model


STREAMED = """
    local pieces = {}
    for piece in ctx.generate_stream("m", "x") do table.insert(pieces, piece) end
    return table.concat(pieces)
"""


async def test_a_stream_continues_where_a_crash_interrupted_it() -> None:
    pieces = ["日" * 30, "b", "本" * 40, "c"]
    book = MemoryJournal()
    whole = await run_script(
        STREAMED,
        services=make_services(find_model=lambda _: ScriptedModel({"chunks": pieces})),
        journal=book,
    )
    for cut in range(1, len(book.answers) + 1):
        services = make_services(find_model=lambda _: ScriptedModel({"chunks": pieces}))
        assert await run_script(STREAMED, services=services, journal=MemoryJournal(book.answers[:cut])) == whole


async def test_a_stream_whose_second_answer_differs_is_an_error() -> None:
    book = MemoryJournal()
    await run_script(
        STREAMED,
        services=make_services(find_model=lambda _: ScriptedModel({"chunks": ["a", "b", "c"]})),
        journal=book,
    )
    for model in (ScriptedModel({"chunks": ["a", "x", "c"]}), ScriptedModel(say("a"))):
        with pytest.raises(ScriptError, match="the model's second answer differs from it"):
            await run_script(
                STREAMED,
                services=make_services(find_model=partial(select_model, model)),
                journal=MemoryJournal(book.answers[:3]),
            )


def model_with_chunks(*chunks: Chunk) -> FunctionModel:
    """A model that streams these chunks."""

    async def answer(_: Prompt) -> Sequence[Chunk]:
        return chunks

    return FunctionModel(answer)


async def test_a_model_may_restart_before_a_piece_is_delivered() -> None:
    model = model_with_chunks(TextChunk("wro"), RetryChunk("busy", "busy"), TextChunk("right"), StopChunk())
    services = make_services(find_model=lambda _: model)
    assert await run_for_result("return ctx.generate('m', 'x')", services=services) == "right"


async def test_only_the_last_usage_of_a_call_is_recorded() -> None:
    costs: list[UsageRecorded] = []
    counts = (UsageChunk(Usage(input=1)), UsageChunk(Usage(input=5, output=2), "real"))
    services = make_services(
        find_model=lambda _: model_with_chunks(counts[0], TextChunk("a"), counts[1], StopChunk()),
        record_usage=costs.append,
    )
    assert await run_for_result("return ctx.generate('m', 'x')", services=services) == "a"
    assert costs == [UsageRecorded(model="function", usage=Usage(input=5, output=2))]


async def test_the_usage_of_a_discarded_attempt_is_recorded() -> None:
    costs: list[UsageRecorded] = []
    lost, kept = UsageChunk(Usage(input=1)), UsageChunk(Usage(input=5))
    model = model_with_chunks(lost, TextChunk("wro"), RetryChunk("busy", "busy"), kept, TextChunk("right"), StopChunk())
    assert (
        await run_for_result(
            "return ctx.generate('m', 'x')",
            services=make_services(find_model=lambda _: model, record_usage=costs.append),
        )
        == "right"
    )
    assert [cost.usage.input for cost in costs] == [1, 5]


async def test_a_model_cannot_restart_after_a_piece_is_delivered() -> None:
    delivered = asyncio.Event()

    class RestartingModel(ScriptedModel):
        async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
            yield TextChunk("wro")
            await delivered.wait()
            yield RetryChunk("busy", "busy")

    async def invoke(*_: JSON) -> None:
        delivered.set()

    source = "for piece in ctx.generate_stream('m', 'x') do ctx.invoke('delivered', {}) end"
    async with AsyncExitStack() as closing:
        services = make_services(find_model=lambda _: RestartingModel(), exit_stack=closing, invoke=invoke)
        with pytest.raises(ScriptError, match="started its answer again after a part of it was delivered"):
            await run_script(source, services=services)
