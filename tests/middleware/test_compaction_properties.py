"""Random conversations with compaction: every prompt fits, no pair is cut, and reading the log again gives the same."""

import random
from typing import Any

import pytest

import vaka
from tests.runtime.runtime_fixtures import agent, check_log, read_log, runtime
from vaka.core.loop.prompt import Conversation
from vaka.core.ports.model import Prompt
from vaka.core.session.branches import live_events_of
from vaka.core.session.context_window import ContextWindow
from vaka.core.session.fold import fold
from vaka.core.session.snapshot import encode_state, reopen
from vaka.core.types.context import Compaction
from vaka.core.types.ids import SessionId
from vaka.core.types.message import AssistantMessage, ToolMessage, UserMessage, text_of
from vaka.core.types.state import SessionState
from vaka.core.types.tokens import estimate_message_tokens
from vaka.stores.memory import MemoryStore
from vaka.testing import FunctionModel, call, say
from vaka.testing.models import calls

SEEDS = [*range(6), *[pytest.param(seed, marks=pytest.mark.exhaustive) for seed in range(6, 150)]]


class RandomTalk:
    """A model, a tool and a user that say and do random things, and the checks of every prompt."""

    def __init__(self, seed: int) -> None:
        self.random, self.number = random.Random(seed), 0
        self.window = self.random.choice([1_500, 3_000, 8_000])
        self.model = FunctionModel(self._answer)
        self.model.context_window = self.window  # type: ignore[attr-defined]  # an attribute that models may have

    def next_input(self) -> str:
        self.number += 1
        return f"input {self.number}: {self._words(60_000 if self.random.random() < 0.05 else 6_000)}"

    def settings(self) -> Compaction:
        choose = self.random.choice
        return Compaction(
            max_retries=choose([0, 1]),
            keep_turns=choose([1, 2, 5]),
            opening_messages=choose([0, 1, 3]),
            keep_tokens=choose([0, 200, 20_000]),
            user_text_tokens=choose([0, 100, 4_000]),
        )

    def look(self) -> Any:
        @vaka.tool(effect="read")
        async def look(at: str, number: float) -> str:
            """Look at something."""
            return self._words(20_000)

        return look

    def _words(self, most: int) -> str:
        return "w" * self.random.choice([5, 50, 300, most])

    async def _answer(self, prompt: Prompt) -> Any:
        dice = self.random.random()
        if prompt.agent == "summary":
            return say("" if dice < 0.2 else f"<summary>{'s' * self.random.choice([10, 200, 3_000])}</summary>")
        self._check(prompt)
        if dice < 0.5:
            return say(self._words(4_000))
        made = [
            call("look", at=self._words(3_000), number=self.random.random())
            for _ in range(1 + (dice > 0.8) + 6 * (dice > 0.95))
        ]
        return calls(*made)

    def _check(self, prompt: Prompt) -> None:
        assert estimate_message_tokens(prompt.messages) <= self.window
        open_calls: list[str] = []
        for message in prompt.messages:
            results = [result.call for result in message.results] if isinstance(message, ToolMessage) else []
            assert results == open_calls
            open_calls = [one.id for one in message.calls] if isinstance(message, AssistantMessage) else []
        said = [text_of(message.content) for message in prompt.messages if isinstance(message, UserMessage)]
        assert any(text.startswith(f"input {self.number}: ") for text in said)


async def check_reading_again(store: MemoryStore, talk: RandomTalk) -> None:
    """Check that the state and the messages at some events are those of the whole log up to there."""
    log = await read_log(store, "s")
    for seq in talk.random.sample(range(1, len(log) + 1), min(20, len(log))):
        opened = await reopen(store, SessionId("s"), upto=seq)
        live = live_events_of(log[:seq])
        state = fold(SessionState(), live)
        state.seq, state.epoch = opened.state.seq, opened.state.epoch
        assert encode_state(state) == encode_state(opened.state)
        read = Conversation((), opened.window.events_at(()))
        folded = Conversation((), ContextWindow(live, state).events_at(()))
        assert (read.messages(), read.seqs) == (folded.messages(), folded.seqs)


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_random_conversation_fits_its_window_and_reads_as_it_was_written(seed: int) -> None:
    talk, store = RandomTalk(seed), MemoryStore()
    who = agent(talk.model, talk.look(), compaction=talk.settings())
    async with runtime(store) as rt:
        session = await rt.open(who, id="s")
        for _ in range(15):
            await session.run(talk.next_input())
            if talk.random.random() < 0.1:
                await session.compact("everything")
            if talk.random.random() < 0.1:
                ends = [event.id for event in await read_log(store, "s") if event.type == "turn.completed"]
                await session.rewind(talk.random.choice(ends))
    log = await read_log(store, "s")
    assert "context.compacted" in [event.type for event in log]
    check_log(log)
    await check_reading_again(store, talk)
