"""One conversation, answered by one provider after another: each gets only its own reasoning back."""

import asyncio
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

import vaka
from tests.models.oracles.history_rules import check_history
from tests.models.oracles.vendor_clients import check_request
from tests.runtime.runtime_fixtures import check_log, runtime
from vaka.config.options import Models
from vaka.core.types.errors import TurnError
from vaka.core.types.event import Event
from vaka.core.types.message import AssistantMessage, Reasoning, ToolMessage
from vaka.core.types.monitor import UsageRecorded
from vaka.models.openai_chat.model import OpenAIChat
from vaka.models.openai_chat.vendors import find_vendor
from vaka.models.transport.client import Account
from vaka.runtime.options import Environment
from vaka.testing.fake_provider import FakeProvider, Fault, ProviderRequest, render_events
from vaka.testing.models import ScriptLine, call, calls, say

NAMES = {
    "chat": "openai-chat/gpt-4o",
    "anthropic": "anthropic/claude-sonnet-5-5",
    "gemini": "gemini/gemini-3-pro",
    "responses": "openai/gpt-5.2",
}
TOUR = ("chat", "anthropic", "gemini", "responses", "gemini", "chat", "responses", "anthropic", "anthropic", "chat")
PATHS = {"completions": "chat", "responses": "responses", "messages": "anthropic"}
SECRETS = {
    "responses": re.compile(r"gAAAAA[0-9a-f]{24}"),
    "anthropic": re.compile(r'"signature":"(Eq[0-9a-f]{24})"'),
    "gemini": re.compile(r'"thoughtSignature":"([A-Za-z0-9+/=]{32,})"'),
}
"""What each provider wants back, as it stands in its answers and in our requests."""


@vaka.tool(effect="read")
async def weather(city: str) -> str:
    """Return today's weather for a city."""
    return f"rain in {city}"


def wire_of(request: ProviderRequest) -> str:
    return PATHS.get(request.path.rpartition("/")[2], "gemini")


def environ_for(url: str) -> dict[str, str]:
    return {f"{name}_BASE_URL": url for name in ("OPENAI", "ANTHROPIC", "GEMINI")}


class ConversationCheck:
    """A provider that looks twice, thinking, before it answers each question; it remembers what it said."""

    def __init__(self) -> None:
        self.said: list[tuple[ProviderRequest, ScriptLine]] = []

    def answer(self, request: ProviderRequest) -> ScriptLine:
        """Answer."""
        number = len(self.said)
        look = calls(call("weather", city=f"Hilo {number}"), call("weather", city=f"Kona {number}"))
        answer = look | {"text": f"Looking {number}.", "reasoning": f"Thought {number}."}
        if number % 2:
            answer = say(f"Answer {number}.", reasoning=f"Thought {number}.")
        self.said.append((request, answer))
        return answer

    def secrets(self, wire: str, before: int) -> list[str]:
        """Return what a provider gave away to get back, before a request."""
        found: list[str] = []
        for request, answer in self.said[:before]:
            if wire_of(request) == wire and wire in SECRETS:
                text = b"".join(render_events(answer, request)).decode()
                found += dict.fromkeys(SECRETS[wire].findall(text))
        return found


def check_conversation(talk: ConversationCheck) -> None:
    """Check what every provider was sent."""
    everything = {wire: talk.secrets(wire, len(talk.said)) for wire in SECRETS}
    for number, (request, _) in enumerate(talk.said):
        wire, sent = wire_of(request), request.raw.decode()
        check_request(wire, request.body)
        check_history(wire, request.body)
        assert [sent.count(secret) for secret in talk.secrets(wire, number)] == [1] * len(talk.secrets(wire, number))
        others = [secret for other, secrets in everything.items() if other != wire for secret in secrets]
        assert [secret for secret in others if secret in sent] == [], (number, wire)
        assert "reasoning_content" not in sent
        for earlier, (_, answer) in enumerate(talk.said[:number]):
            words = str(answer["text"])
            assert words in sent, (number, earlier, words)
            if not earlier % 2:
                assert f"rain in Hilo {earlier}" in sent
                assert f"rain in Kona {earlier}" in sent


async def test_each_provider_gets_the_whole_conversation_and_only_its_own_reasoning() -> None:
    talk = ConversationCheck()
    async with (
        FakeProvider(talk.answer) as provider,
        runtime(environment=Environment(environ=environ_for(provider.url))) as rt,
    ):
        session = await rt.open(vaka.Agent("assistant", model=NAMES["chat"], tools=[weather], instructions="Be brief."))
        answers = [(await session.run(f"Question {turn}?", model=NAMES[wire])).text for turn, wire in enumerate(TOUR)]
        messages = await session.messages()
        log = [event async for event in rt.store.events.read(session.id)]
    assert answers == [f"Answer {2 * turn + 1}." for turn in range(len(TOUR))]
    assert [wire_of(request) for request, _ in talk.said] == [wire for wire in TOUR for _ in range(2)]
    check_conversation(talk)
    check_log(log)
    assert len([message for message in messages if isinstance(message, ToolMessage)]) == len(TOUR)
    thoughts = [
        part
        for message in messages
        if isinstance(message, AssistantMessage)
        for part in message.content
        if isinstance(part, Reasoning)
    ]
    assert "".join(part.text for part in thoughts) == "".join(f"Thought {number}." for number in range(2 * len(TOUR)))
    assert models_with_usage(log) == {NAMES[wire] for wire in TOUR}


def models_with_usage(log: Sequence[Event]) -> set[str]:
    """Return the models that the log has costs of."""
    return {event.data.model for event in log if isinstance(event.data, UsageRecorded)}


@pytest.mark.parametrize("first", NAMES)
@pytest.mark.parametrize("second", NAMES)
async def test_any_provider_takes_over_in_the_middle_of_a_turn(first: str, second: str) -> None:
    """The first provider calls tools and then breaks off; the second one gets their results."""
    look = calls(call("weather", city="Hilo"), call("weather", city="Kona"), reasoning="Hm.")
    faults = [None, Fault(cut=-1), None]
    async with (
        FakeProvider(look, say("Half of"), say("Both wet."), fault=faults) as provider,
        runtime(environment=Environment(environ=environ_for(provider.url)), models=Models(retries=0)) as rt,
    ):
        session = await rt.open(vaka.Agent("assistant", model=NAMES[first], tools=[weather]))
        with pytest.raises(vaka.VakaError, match="cut"):
            await session.run("Where does it rain?")
        response = await session.run("Go on.", model=NAMES[second])
    assert response.text == "Both wet."
    last = provider.requests[2]
    assert wire_of(last) == second
    check_request(second, last.body)
    check_history(second, last.body)
    assert b"rain in Kona" in last.raw
    assert b"Half of" not in last.raw


async def test_a_fallback_to_another_provider_is_a_switch_too() -> None:
    def answer(request: ProviderRequest) -> ScriptLine:
        if wire_of(request) == "anthropic":
            return {"error": {"status": 529, "message": "overloaded"}}
        return say("Yes.", reasoning="Hm.") if b"rain in Hilo" in request.raw else call("weather", city="Hilo")

    async with FakeProvider(answer) as provider:
        settings = {"mine": {"model": NAMES["anthropic"], "fallback": [NAMES["gemini"]], "retries": 0}}
        async with runtime(
            environment=Environment(environ=environ_for(provider.url)), models=Models(entries=settings)
        ) as rt:
            session = await rt.open(vaka.Agent("assistant", model="mine", tools=[weather]))
            assert (await session.run("Is it raining?")).text == "Yes."
    assert [wire_of(request) for request in provider.requests] == ["anthropic", "gemini", "anthropic", "gemini"]
    for request in provider.requests:
        check_request(wire_of(request), request.body)
        check_history(wire_of(request), request.body)


async def test_a_vendor_that_needs_reasoning_text_gets_text_without_signatures() -> None:
    """DeepSeek and its kind sign nothing, and refuse a call that was made without a thought."""
    profile = find_vendor("deepseek")
    assert profile is not None
    talk = ConversationCheck()
    async with FakeProvider(talk.answer) as provider:
        vendor = OpenAIChat("deepseek-reasoner", Account(base_url=provider.url), profile=profile)
        async with runtime(environment=Environment(environ=environ_for(provider.url))) as rt:
            session = await rt.open(vaka.Agent("assistant", model=vendor, tools=[weather]))
            for turn, name in enumerate((NAMES["anthropic"], "", NAMES["gemini"], "", NAMES["responses"])):
                await session.run(f"Question {turn}?", model=name)
        await vendor.close()
    for number, (request, _) in enumerate(talk.said):
        check_history(wire_of(request), request.body)
        if wire_of(request) == "chat":
            spoken = [message for message in request.body["messages"] if message["role"] == "assistant"]
            assert [message["reasoning_content"] for message in spoken] == [f"Thought {n}." for n in range(number)]
            assert not any(pattern.search(request.raw.decode()) for pattern in SECRETS.values())
        else:
            assert b"reasoning_content" not in request.raw


TOOLS = '''
import vaka

@vaka.tool(effect="read")
async def weather(city: str) -> str:
    """Return today's weather for a city."""
    return f"rain in {city}"
'''


async def vaka_run(folder: Path, url: str, *words: str) -> tuple[int | None, bytes, bytes]:
    """Run the real command in a process of its own."""
    keep = {name: value for name, value in os.environ.items() if not re.search(r"_(KEY|TOKEN|BASE_URL)$|^VAKA_", name)}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "vaka",
        "run",
        *words,
        cwd=folder,
        env={**keep, **environ_for(url), "HOME": str(folder)},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    return process.returncode, out, err


async def test_the_command_switches_provider_from_run_to_run(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(TOOLS, "utf-8")
    talk = ConversationCheck()
    tour = ("responses", "chat", "anthropic", "gemini", "responses", "anthropic")
    async with FakeProvider(talk.answer) as provider:
        for turn, wire in enumerate(tour):
            code, out, err = await vaka_run(
                tmp_path,
                provider.url,
                f"Question {turn}?",
                "--model",
                NAMES[wire],
                "--tools",
                "tools.py",
                "--session",
                "one",
                "--store",
                "sqlite:///vaka.db",
                "--output",
                "json",
            )
            result = msgspec.json.decode(out)
            assert (code, result["text"]) == (0, f"Answer {2 * turn + 1}."), err
            assert {call["name"] for call in result["tool_calls"]} == {"weather"}
    assert [wire_of(request) for request, _ in talk.said] == [wire for wire in tour for _ in range(2)]
    check_conversation(talk)


@pytest.mark.parametrize("wire", NAMES)
async def test_the_command_fails_as_it_should_when_a_stream_is_cut(wire: str, tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(TOOLS, "utf-8")
    (tmp_path / "vaka.toml").write_text("retries = 0\n", "utf-8")
    async with FakeProvider(call("weather", city="Hilo"), fault=Fault(cut=-1)) as provider:
        code, out, err = await vaka_run(
            tmp_path, provider.url, "Is it raining?", "--model", NAMES[wire], "--tools", "tools.py"
        )
    assert (code, out) == (75, b""), err
    assert b"weather" not in err


@pytest.mark.parametrize("name", NAMES.values())
async def test_a_refusal_of_any_provider_fails_the_turn_with_its_code(name: str) -> None:
    for words in ("I cannot help with that.", ""):
        async with (
            FakeProvider(say(words, stop="refusal")) as server,
            runtime(environment=Environment(environ=environ_for(server.url))) as rt,
        ):
            session = await rt.open(vaka.Agent("clerk", model=name))
            with pytest.raises(TurnError, match=r"^the model of clerk refused to answer$") as caught:
                await session.run("Go on.")
        assert (caught.value.code, caught.value.exit_code) == ("model_refused", 6)
        assert words in caught.value.result.text
