"""The layers of a system prompt, and the part of the conversation that a model sees."""

from typing import Any

import pytest
from inline_snapshot import snapshot

import vaka
from tests.runtime.runtime_fixtures import agent, runtime
from vaka.config.options import Storage
from vaka.content import format_history
from vaka.core.ports.model import Prompt
from vaka.core.types.errors import InvalidInput
from vaka.core.types.ids import MessageId
from vaka.core.types.message import AssistantMessage, Text, ToolMessage, UserMessage, text_of
from vaka.genx.prompt_layers import (
    ConversationMemory,
    EnvironmentText,
    TextLayer,
    build_instructions,
    find_related,
)
from vaka.stores.memory import MemoryStore
from vaka.testing.models import RecordingModel, ScriptedModel, call, calls, say

SECRET = "sk-very-secret-value-of-a-variable"  # not a secret


@vaka.tool(effect="read")
async def look(at: str = "") -> str:
    """Look at something."""
    return f"seen {at}"


def talker(*lines: Any, **more: Any) -> tuple[RecordingModel, vaka.Agent]:
    model = RecordingModel(ScriptedModel(*lines))
    return model, agent(model, look, **more)


async def prompts_of(count: int, *lines: Any, **more: Any) -> list[Prompt]:
    """Return the prompts of a conversation of ``count`` inputs."""
    model, who = talker(*lines, **more)
    async with runtime() as rt:
        session = await rt.open(who)
        for number in range(1, count + 1):
            await session.run(f"Input {number}.")
    return model.prompts


def shown(prompt: Prompt) -> list[str]:
    return format_history(prompt.messages).splitlines()


async def test_layers_become_one_prompt_in_their_order_and_empty_ones_are_left_out() -> None:
    texts, variables = ["Rules of the house."], {"MOOD": "Be merry.", "EMPTY": "", "LEAK": f"Key {SECRET}"}
    layers: list[TextLayer] = [
        "Inline.",
        EnvironmentText("MOOD"),
        EnvironmentText("EMPTY"),
        EnvironmentText("NONE"),
        lambda: texts[0],
        "",
        EnvironmentText("LEAK"),
    ]
    model, who = talker(say("a"), say("b"), say("c"), instructions=build_instructions(layers, variables))
    async with runtime(storage=Storage(secrets=[SECRET])) as rt:
        session = await rt.open(who)
        await session.run("One.")
        await session.run("Two.")
        texts[0], variables["MOOD"] = "New rules.", "Be calm."
        await session.run("Three.")
    systems = [prompt.system for prompt in model.prompts]
    assert systems[0] == systems[1]
    assert systems[0].startswith("Inline.\n\nBe merry.\n\nRules of the house.\n\nKey ")
    assert systems[2].startswith("Inline.\n\nBe calm.\n\nNew rules.\n\nKey ")
    assert SECRET not in systems[0]
    assert build_instructions(["One.", "", "Two."]) == "One.\n\nTwo."


async def test_a_model_sees_only_the_recent_messages_and_no_call_without_its_result() -> None:
    prompts = await prompts_of(
        3,
        say("One."),
        calls(call("look", at="a"), call("look", at="b")),
        say("Two."),
        say("Three."),
        middleware=[ConversationMemory(recent=3)],
    )
    assert [shown(prompt) for prompt in prompts] == [
        ["[user]: Input 1."],
        ["[user]: Input 1.", "[model]: One.", "[user]: Input 2."],
        [
            "[user]: Input 2.",
            '[model]: look({"at":"a"}) look({"at":"b"})',
            "[tool]: seen a",
            "[tool]: seen b",
        ],
        ["[user]: Input 2.", "[model]: Two.", "[user]: Input 3."],
    ]


async def test_the_first_recent_message_moves_in_steps_so_that_prompts_can_be_cached() -> None:
    prompts = await prompts_of(40, *[say("ok")] * 40, middleware=[ConversationMemory(recent=40)])
    firsts = [shown(prompt)[0].split()[-1] for prompt in prompts]
    assert " ".join(firsts[18:28]) == snapshot("1. 1. 3. 3. 5. 5. 7. 7. 9. 9.")
    lengths = [len(prompt.messages) for prompt in prompts[20:]]
    assert (min(lengths), max(lengths)) == snapshot((37, 39))
    assert shown(prompts[-1])[-1] == "[user]: Input 40."


async def test_the_question_of_a_long_turn_is_always_shown() -> None:
    lines = [call("look", at=str(number)) for number in range(8)]
    prompts = await prompts_of(1, *lines, say("done"), middleware=[ConversationMemory(recent=4)])
    assert all(shown(prompt)[0] == "[user]: Input 1." for prompt in prompts)
    assert max(len(prompt.messages) for prompt in prompts) <= 4
    assert all(isinstance(prompt.messages[-1], ToolMessage) for prompt in prompts[1:])
    alone = await prompts_of(2, say("a"), say("b"), middleware=[ConversationMemory(recent=0)])
    assert shown(alone[1]) == ["[user]: Input 2."]


class BlobReads:
    """A blob store that counts what is read."""

    def __init__(self, inner: Any) -> None:
        self._inner, self.count = inner, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def get(self, digest: Any) -> bytes:
        self.count += 1
        found: bytes = await self._inner.get(digest)
        return found


async def test_long_messages_that_are_not_shown_are_not_loaded() -> None:
    store = MemoryStore()
    reads: Any = BlobReads(store.blobs)
    store.blobs = reads
    model, who = talker(*[say("ok")] * 12, middleware=[ConversationMemory(recent=3)])
    counts: list[int] = []
    async with runtime(store) as rt:
        session = await rt.open(who)
        for number in range(12):
            before = reads.count
            await session.run(f"{number} " + "long " * 10_000)
            counts.append(reads.count - before)
    assert counts[-1] == counts[4] < 8
    sizes = [len(text_of(m.content)) for m in model.prompts[-1].messages if isinstance(m, UserMessage)]
    assert sizes == [50_003, 50_003]


async def test_the_summary_follows_the_instructions_if_the_session_has_one() -> None:
    @vaka.tool(effect="read")
    async def summarize(context: vaka.ToolContext) -> str:
        """Summarize the conversation."""
        context.state.set("$summary", "They met.")
        return "done"

    model = RecordingModel(ScriptedModel(call("summarize"), say("b")))
    memory = ConversationMemory(summary=True)
    async with runtime() as rt:
        await (await rt.open(agent(model, summarize, instructions="Be brief.", middleware=[memory]))).run("One.")
    assert [prompt.system for prompt in model.prompts] == [
        "Be brief.",
        "Be brief.\n\nSummary of the conversation so far:\nThey met.",
    ]


async def test_a_query_finds_earlier_messages_that_share_words_with_the_input() -> None:
    inputs = ["My cat is called Tiberius.", "Sunshine today.", "Tea, please.", "What is the name of my cat?"]
    model, who = talker(
        say("A fine cat."),
        say("Indeed."),
        say("Here."),
        call("look"),
        say("Tiberius."),
        middleware=[ConversationMemory(recent=1, query=True)],
    )
    async with runtime() as rt:
        session = await rt.open(who)
        for text in inputs:
            await session.run(text)
    first, second = model.prompts[-2:]
    assert first.system == second.system
    assert first.system.splitlines()[1:] == ["[user]: My cat is called Tiberius.", "[model]: A fine cat."]
    assert shown(first) == ["[user]: What is the name of my cat?"]


def test_a_search_is_bounded_and_knows_languages_without_spaces() -> None:
    messages = [UserMessage(content=(Text(text=text),)) for text in ("我的猫叫小白", "今天天气很好", "a b c")]
    assert find_related(messages, "小白在哪里") == ["[user]: 我的猫叫小白"]
    assert find_related(messages, "?") == []
    assert find_related(messages, "nothing alike") == []
    many = [UserMessage(content=(Text(text=f"needle {number} {'x' * 5000}"),)) for number in range(1000)]
    found = find_related(
        [*many, AssistantMessage(id=MessageId("m"), content=(Text(text="hay"),), calls=())], "needle 5"
    )
    assert len(found) == 5
    assert all(len(line) <= 510 for line in found)
    assert found[0].startswith("[user]: needle 995")


def test_history_is_one_line_for_each_message() -> None:
    assert format_history([]) == ""
    message = UserMessage(content=(Text(text="two\nlines"),))
    assert format_history([message]) == "[user]: two lines"


def test_a_negative_number_of_messages_is_an_error() -> None:
    with pytest.raises(InvalidInput, match="recent must be 0 or more messages, not -1"):
        ConversationMemory(recent=-1)
