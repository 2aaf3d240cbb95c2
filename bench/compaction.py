"""What compaction keeps of a long conversation, counted, and what the turns of one cost with it."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Sequence

import vaka
from bench import stores
from bench.planted_facts import FACTS, WINDOW, ScriptedTalk
from bench.row import Row
from vaka.config.options import Storage
from vaka.core.ports.model import CallChunk, Chunk, Prompt, StopChunk, TextChunk, UsageChunk
from vaka.core.types.message import AssistantMessage, Message, ToolMessage, Usage, text_of

BEST_PEER = 26
"""The facts that the best of the peers keeps; ``make bench-memory`` measures them."""
SUMMARY_AGENT = "summary"
"""The name under which summaries are asked for."""
CHECKPOINTS = (10, 100, 1_000, 5_000)
QUICK_CHECKPOINTS = (10, 100, 1_000)
SAMPLE = 120
"""Turns that are measured from each checkpoint on, in which the context is compacted at least once."""
MOST_GROWTH = 1.5


def text_of_message(message: Message) -> str:
    """Return all that a model is shown of a message: texts and the arguments of calls."""
    if isinstance(message, ToolMessage):
        return "\n".join([result.text for result in message.results])
    calls = message.calls if isinstance(message, AssistantMessage) else ()
    return "\n".join([text_of(message.content), *[json.dumps(call.arguments) for call in calls]])


class TalkingModel:
    """Plays the scripted conversation, and its summary model."""

    name = "fake"
    context_window = WINDOW

    def __init__(self, talk: ScriptedTalk) -> None:
        self._talk = talk

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        """Answer ``prompt``."""
        shown = "\n".join([prompt.system, *map(text_of_message, prompt.messages)])
        if prompt.agent == SUMMARY_AGENT:
            argument, answer = "", self._talk.summarise(shown)
        else:
            argument, answer = self._talk.reply(shown, has_result=isinstance(prompt.messages[-1], ToolMessage))
        if argument:
            yield CallChunk(0, name="look_up", arguments=json.dumps({"query": argument}), id=f"c{self._talk.at}")
        else:
            yield TextChunk(answer)
        yield UsageChunk(Usage(input=len(shown) // 4, output=(len(answer) + len(argument)) // 4))
        yield StopChunk("calls" if argument else "end")


async def run_talk(talk: ScriptedTalk) -> None:
    """Run the scripted conversation with the default compaction."""

    async def look_up(query: str) -> str:
        """Look something up."""
        return talk.look_up()

    async with vaka.Runtime() as runtime:
        session = await runtime.open(vaka.Agent("walker", model=TalkingModel(talk), tools=[look_up]))
        for _ in talk.turns:
            await session.run(talk.next_input())


def measure_memory(quick: bool) -> list[Row]:
    """Count the planted facts that are left at the end."""
    talk = ScriptedTalk()
    asyncio.run(run_talk(talk))
    found = talk.report("vaka")
    note = f"{talk.summaries} summaries; inputs, results, arguments, answers: {found['places']}"
    name = f"compaction: facts kept, of {FACTS} in {len(talk.turns) - 1} turns"
    return [
        Row(name=name, value=float(str(found["kept"])), unit="", target=BEST_PEER, better="high", note=note),
        Row(name="compaction: largest prompt", value=talk.most_tokens, unit="tokens", target=WINDOW),
    ]


class ChattingModel:
    """Calls a tool in every turn; its window holds some tens of turns, and a summary has 200 words."""

    name = "fake"
    context_window = WINDOW
    summaries = 0

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        """Answer ``prompt``."""
        if prompt.agent == SUMMARY_AGENT:
            self.summaries += 1
            yield TextChunk("a word " * 200)
        elif isinstance(prompt.messages[-1], ToolMessage):
            yield TextChunk("done")
        else:
            yield CallChunk(0, name="read_page", arguments="{}", id="c1")
            yield StopChunk("calls")
            return
        yield StopChunk("end")


async def read_page() -> str:
    """Return a page of text."""
    return "a line of output that a tool has printed\n" * 20


async def measure_turns(kind: stores.StoreKind, url: str, checkpoints: Sequence[int]) -> list[Row]:
    """Return the CPU time of a turn at each checkpoint of one session that is compacted again and again."""
    model = ChattingModel()
    agent = vaka.Agent("reader", model=model, tools=[read_page])
    async with vaka.Runtime(store=url, storage=Storage(durability=kind.durability)) as runtime:
        warm = await runtime.open(agent)
        for _ in range(100):  # imports, caches and a first compaction
            await warm.run("hi")
        session = await runtime.open(agent, id="long")
        done = 0
        found = dict[int, float]()
        for checkpoint in checkpoints:
            while done < checkpoint:
                await session.run("hi")
                done += 1
            begun = time.process_time()
            for _ in range(SAMPLE):
                await session.run("hi")
            found[checkpoint] = (time.process_time() - begun) / SAMPLE * 1e3
            done += SAMPLE
    first = found[checkpoints[0]]
    note = f"CPU of this process, mean of {SAMPLE} turns with {model.summaries} compactions in all"
    return [
        kind.row(
            f"turn {at:,} of a session that is compacted",
            cost,
            "ms",
            ratio=cost / first,
            raw=first,
            target=MOST_GROWTH * first,
            note=note,
        )
        for at, cost in found.items()
    ]


def measure_compaction(quick: bool) -> list[Row]:
    """Measure the turns of long sessions on each local store."""
    rows: list[Row] = []
    for kind in (stores.MEMORY, stores.PROCESS):
        with stores.temporary_folder() as home:
            url = stores.store_url_of(kind, home)
            rows += asyncio.run(measure_turns(kind, url, QUICK_CHECKPOINTS if quick else CHECKPOINTS))
    return rows
