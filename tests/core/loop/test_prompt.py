"""The prompt of a model call: large parts, secrets, compactions."""

import base64
from typing import Any

import pytest

import vaka
from tests.runtime.runtime_fixtures import agent, collect_turn, last_body, read_log, runtime
from vaka.config.options import Storage
from vaka.core.ports.model import Chunk, Prompt, ReasoningChunk, StopChunk, TextChunk
from vaka.core.types.context import ContextCompacted
from vaka.core.types.message import AssistantMessage, Image, Reasoning, Text, UserMessage
from vaka.stores.memory import MemoryStore
from vaka.testing.models import FunctionModel, ScriptedModel, say


async def test_a_large_picture_is_a_blob_in_the_log_and_whole_in_the_prompt() -> None:
    store, data = MemoryStore(), base64.b64encode(b"p" * 50_000).decode()
    picture = Image(media_type="image/png", data=data)
    model = ScriptedModel(say("nice"))
    async with runtime(store) as rt:
        await collect_turn(await rt.open(agent(model), id="s"), (Text(text="Look."), picture))  # type: ignore[arg-type]  # parts
    assert max(len(event.stored) for event in await read_log(store, "s")) < 32 * 1024
    assert model.prompts[0].messages == (UserMessage(content=(Text(text="Look."), picture)),)


async def test_large_reasoning_is_a_blob_in_the_log_and_complete_in_the_prompt_until_erased() -> None:
    store, thought = MemoryStore(), ReasoningChunk("hm", "signed", {"w": {"data": "x" * 50_000}})
    prompts: list[Prompt] = []

    async def answer(prompt: Prompt) -> list[Chunk]:
        prompts.append(prompt)
        return [thought, TextChunk("Yes."), StopChunk()]

    async with runtime(store) as rt:
        session = await rt.open(agent(FunctionModel(answer)), id="s")
        for _ in range(2):
            await session.run("Think.")
        store.hub.shared.blobs.clear()
        await session.run("Think.")
    assert max(len(event.stored) for event in await read_log(store, "s")) < 32 * 1024
    whole, erased = prompts[1].messages[1], prompts[2].messages[1]
    assert isinstance(whole, AssistantMessage)
    assert whole.content[0] == Reasoning(text="hm", signature="signed", opaque=thought.opaque)
    assert isinstance(erased, AssistantMessage)
    assert erased.content == (Reasoning(), Text(text="Yes."))


async def test_a_picture_that_is_none_is_refused() -> None:
    async with runtime() as rt:
        session = await rt.open(agent(ScriptedModel(say("x"))), id="s")
        with pytest.raises(vaka.VakaError, match="the data of the image is not base64"):
            await session.run(Image(media_type="image/png", data="!" * 50_000))


async def test_a_text_just_short_of_large_stays_in_the_log() -> None:
    store, text = MemoryStore(), "a" * 20_000
    async with runtime(store) as rt:
        await collect_turn(await rt.open(agent(ScriptedModel(say("x"))), id="s"), text)
    assert text.encode() in (await read_log(store, "s"))[1].stored


async def test_a_registered_secret_reaches_neither_log_nor_blob() -> None:
    store, secret = MemoryStore(), "hunter2-hunter2"
    model = ScriptedModel(say("x"))
    async with runtime(store, storage=Storage(secrets=(secret,))) as rt:
        session = await rt.open(agent(model, instructions=f"The key is {secret}."), id="s")
        await collect_turn(session, f"{secret} " * 5_000)
    kept = b"".join(data for data, _ in store.hub.shared.blobs.values())
    kept += b"".join(event.stored for event in await read_log(store, "s"))
    assert secret.encode() not in kept
    assert model.prompts[0].system == f"The key is {secret}."


async def test_after_a_compaction_the_prompt_has_the_summary_and_the_kept_messages() -> None:
    model = ScriptedModel(*(say(f"answer {n}") for n in range(4)))
    store = MemoryStore()
    async with runtime(store) as rt:
        session = await rt.open(agent(model), id="s")
        await session.run("one")
        await session.run("two")
        log = await read_log(store, "s")
        second = [event.seq for event in log if event.type == "turn.started"][1]
        await rt._drivers.write(session.id, ContextCompacted(summary="They said one.", keep_from=second))
        await session.run("three")
    seen: list[Any] = [text for message in model.prompts[2].messages for text in _texts(message)]
    assert seen == ["They said one.", "two", "answer 1", "three"]
    assert last_body(await read_log(store, "s")).text == "answer 2"


def _texts(message: Any) -> list[str]:
    return [part.text for part in message.content]


async def test_an_input_that_waited_is_seen_whole() -> None:
    seen: list[Any] = []

    async def notes(turn: Any, content: Any) -> Any:
        seen.append(content)
        return content

    store = MemoryStore()
    async with runtime(store) as rt:
        who = agent(
            ScriptedModel(say("x", repeat=True)), middleware=[vaka.Middleware.from_functions("n", before_agent=notes)]
        )
        session = await rt.open(who, id="s")
        await session.run("first")
        await session.run("z" * 40_000, key="k")
        heard = await session.messages()
    assert heard[2] == UserMessage(content=(Text(text="z" * 40_000),))
    assert seen[1] == (Text(text="z" * 40_000),)
    assert max(len(event.stored) for event in await read_log(store, "s")) < 32 * 1024
