"""Facts extraction on a small set of conversations (``facts.yaml``): what is kept, what is wrong, what it costs.

Without a key a model made of rules extracts: it shows what recall, correction, corroboration and redaction make of the
proposals of a model, not how good a model is. ``VAKA_MODEL`` names a real model to measure instead.
"""

import asyncio
import os
import re
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import msgspec
import yaml

import vaka
from bench.measure import MedianRange, raised_priority
from bench.row import Row
from vaka.config.options import Storage
from vaka.core.types.message import ToolMessage, UserMessage, text_of
from vaka.memory import FactExtraction, SemanticMemory
from vaka.memory.memory_scope import memory_scope
from vaka.memory.semantic import ScopedMemory
from vaka.models import Chunk, Model, Prompt, Scripted
from vaka.models.embedders import HashingEmbedder
from vaka.runtime.clock import SystemClock
from vaka.stores.memory import MemoryStore

CASES = Path(__file__).with_name("facts.yaml")
MIN_KEPT = 0.9
MAX_ADDED_MS = 5.0

_PERSON = re.compile(r"<person>\n(.*?)\n</person>", re.DOTALL)
_SENTENCE = re.compile(r"[^.!?。？！]+[.!?。？！]?")
_OF_PERSON = re.compile(r"\b(?:I|I'm|my|we|ich|mein)\b|我|私|猫", re.IGNORECASE)
_NO_FACT = re.compile(r"^\s*(?:if|please forget|summarise|as i said)\b|\?\s*$|\s['\"]", re.IGNORECASE)
_CHANGED = re.compile(r"\b(?:not|now|instead|left|moved)\b", re.IGNORECASE)
_RECALLED = re.compile(r"- \[(mem_\w+)\] (.*?) \(\w+, [\d-]+\)")


class ConversationCase(msgspec.Struct, forbid_unknown_fields=True):
    """A conversation, and what a memory should hold after it."""

    name: str
    turns: list[dict[str, str]]
    keep: list[list[str]] = []
    gone: list[list[str]] = []
    once: list[str] = []


class RuleModel:
    """Proposes memory changes by rules: sentences about the person are facts, and some words mark corrections."""

    name = "rules"

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        """Propose all changes of an exchange at once, then end."""
        calls = [] if isinstance(prompt.messages[-1], ToolMessage) else self._propose(prompt)
        line: dict[str, Any] = {"tool_calls": calls} if calls else {"text": "done"}
        async for chunk in Scripted([{**line, "repeat": True}]).stream(
            msgspec.structs.replace(prompt, agent="", path=(), number=1)
        ):
            yield chunk

    def _propose(self, prompt: Prompt) -> list[dict[str, Any]]:
        text = "\n".join(text_of(message.content) for message in prompt.messages if isinstance(message, UserMessage))
        said = "".join(_PERSON.findall(text))
        recalled = dict(_RECALLED.findall(text))
        if re.search(r"\bforget\b", said, re.IGNORECASE):
            return [_call("memory_forget", id=id) for id in _find_related(said, recalled)[:1]]
        calls: list[dict[str, Any]] = []
        for sentence in (match.group().strip() for match in _SENTENCE.finditer(said)):
            if not _OF_PERSON.search(sentence) or _NO_FACT.search(sentence):
                continue
            related = _find_related(sentence, recalled) if _CHANGED.search(said) else []
            fact = re.sub(r", not [^.,]*", "", sentence)
            calls.append(
                _call("memory_update", id=related[0], text=fact) if related else _call("memory_add", text=fact)
            )
        return calls


def _call(name: str, **arguments: str) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


def _find_related(text: str, recalled: dict[str, str]) -> list[str]:
    """Return the ids of recalled memories that share two words with a text, the most similar first."""
    words = _words(text)
    shared = {id: len(words & _words(known)) for id, known in recalled.items()}
    return sorted((id for id in shared if shared[id] > 1), key=lambda id: -shared[id])


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.casefold()))


def answering_agent(case: ConversationCase, *, extraction: Model | str | None) -> vaka.Agent:
    """Return an agent that answers as the case says; ``extraction`` is the model that extracts facts."""
    memory = SemanticMemory(top_k=10, threshold=0.0)
    answers = Scripted([{"text": turn["answer"]} for turn in case.turns])
    middleware = [FactExtraction(memory, model=extraction)] if extraction is not None else []
    return vaka.Agent("assistant", model=answers, middleware=middleware)


async def run_case(case: ConversationCase, extraction: Model | str | None) -> tuple[list[str], list[float]]:
    """Return the memories after a conversation, and the milliseconds of each answer."""
    store = MemoryStore()
    agent = answering_agent(case, extraction=extraction)
    times = list[float]()
    for turn in case.turns:  # each in a runtime of its own: leaving it waits for the extraction
        async with vaka.Runtime(store=store, storage=Storage(redact_patterns=True)) as runtime:
            session = await runtime.open(agent, id="talk")
            if await store.sessions.find(session.id) is None:
                await session.update(owner="person")
            begun = time.perf_counter()
            await session.run(turn["user"])
            times.append((time.perf_counter() - begun) * 1e3)
    kept = ScopedMemory(store, HashingEmbedder(), memory_scope("user", user="person"), clock=SystemClock())
    return [memory.text async for memory in kept.scan()], times


def holds(memories: list[str], words: list[str]) -> bool:
    """Return whether one memory has all words."""
    return any(all(word.casefold() in memory.casefold() for word in words) for memory in memories)


async def measure() -> list[Row]:
    """Run all conversations with extraction, and again without it for the time of the answers."""
    cases = msgspec.convert(yaml.safe_load(CASES.read_text("utf-8")), list[ConversationCase])
    model: Model | str = os.environ.get("VAKA_MODEL") or RuleModel()
    kept = wanted = wrong = forbidden = 0
    missed: list[str] = []
    with_times: list[float] = []
    alone_times: list[float] = []
    with raised_priority() as how:
        for case in cases:
            memories, times = await run_case(case, model)
            with_times += times
            alone_times += (await run_case(case, None))[1]
            found = [holds(memories, words) for words in case.keep]
            bad = [holds(memories, words) for words in case.gone]
            bad += [sum(word in memory for memory in memories) != 1 for word in case.once]
            kept = kept + sum(found)
            wanted = wanted + len(found)
            wrong = wrong + sum(bad)
            forbidden = forbidden + len(bad)
            missed += [case.name] if sum(found) < len(found) or any(bad) else []
    name = model if isinstance(model, str) else "a model of rules"
    added, alone = MedianRange.of(with_times), MedianRange.of(alone_times)
    return [
        Row(
            name="facts that extraction keeps",
            value=kept / wanted,
            unit=f"of {wanted}",
            better="high",
            target=MIN_KEPT,
            store="memory",
            note=f"by {name}; not as expected: {', '.join(missed) or 'none'}",
        ),
        Row(
            name="facts that must not be kept and are",
            value=wrong,
            unit=f"of {forbidden}",
            store="memory",
            note=f"by {name}",
        ),
        Row(
            name="time that extraction adds to an answer",
            value=added.value - alone.value,
            unit="ms",
            store="memory",
            target=MAX_ADDED_MS,
            raw=alone.value,
            note=how,
        ),
    ]


def measure_extraction(quick: bool = False) -> list[Row]:
    """Return the rows of this part; ``quick`` changes nothing."""
    return asyncio.run(measure())
