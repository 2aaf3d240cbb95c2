"""The names of agentsdk: a request opens or continues a session and runs one turn of it."""

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import vaka
from vaka.agentsdk import ModeContext, Options, Request, Runtime
from vaka.content import Image, Text, UserMessage
from vaka.errors import TurnError
from vaka.events import TurnStarted
from vaka.stores.memory import MemoryStore
from vaka.testing import ScriptedModel, call, fail, say

MODE = ModeContext(entry_point="platform", platform={"project": "p"})


@vaka.tool
async def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


@vaka.tool
async def sell(what: str) -> str:
    """Sell something."""
    return f"sold {what}"


def clerk(*lines: Any) -> vaka.Agent:
    return vaka.Agent("clerk", model=ScriptedModel(*lines), tools=[pay, sell])


async def test_a_request_may_name_everything_or_nothing() -> None:
    async with Runtime(Options(agent=clerk(say("default") | {"repeat": True}))) as runtime:
        response = await runtime.run(Request(prompt="Hi."))
        assert response.text == "default"
        assert response.session_id.startswith("ses_cli_")
        other = Request(prompt=(Text(text="Hi."),), agent=clerk(say("other")), metadata={"a": 1}, session_id="mine")
        answer = await runtime.run(other)
        assert (answer.text, answer.session_id) == ("other", "mine")


async def test_a_request_that_is_sent_twice_gets_the_first_response() -> None:
    async with Runtime(Options(agent=clerk(say("once"), say("twice")))) as runtime:
        request = Request(prompt="Pay.", session_id="s", request_id="r")
        first = await runtime.run(request)
        assert await runtime.run(request) == first
        events = [event async for event in runtime.run_stream(request)]
    assert (first.request_id, first.text) == ("r", "once")
    assert events[-1].turn == first.turn_id


async def test_a_response_has_the_generated_id_of_a_request_without_one() -> None:
    async with Runtime(Options(agent=clerk(say("Hello.")))) as runtime:
        response = await runtime.run(Request(prompt="Hi."))
        turn = await (await runtime.open(id=response.session_id)).last_turn()
    [inputs] = [event.data.inputs for event in turn if isinstance(event.data, TurnStarted)]
    assert inputs == (response.request_id,)


async def test_a_request_names_the_tools_of_its_turn_and_the_response_repeats_its_mode_and_tags() -> None:
    async with Runtime(Options(mode=MODE)) as runtime:
        request = Request(
            prompt="Pay.",
            agent=clerk(call("pay", amount=1), say("Done.")),
            request_id="k",
            tool_whitelist=("sell",),
            tags={"team": "x"},
        )
        response = await runtime.run(request)
        events = [event.to_json() async for event in runtime.run_stream(request)]
    assert (response.request_id, response.tags, response.mode) == ("k", {"team": "x"}, MODE)
    assert any(b"there is no tool 'pay'; the tools are: sell" in event for event in events)
    assert any(b'"tags":{"team":"x"}' in event for event in events)


async def test_content_blocks_follow_the_prompt() -> None:
    picture = Image(url="https://example.com/boat.png")
    async with Runtime(Options(agent=clerk(say("A boat.")))) as runtime:
        await runtime.run(Request(prompt="What is this?", content_blocks=(picture,), session_id="s"))
        [asked, _] = await (await runtime.open(id="s")).messages()
    assert isinstance(asked, UserMessage)
    assert asked.content == (Text(text="What is this?"), picture)


@pytest.mark.parametrize(("asked", "seen"), [(None, True), (False, False)])
async def test_a_request_overrides_the_cache_setting_of_the_runtime(asked: bool | None, seen: bool) -> None:
    model = ScriptedModel(say("Hi."))
    async with Runtime(Options(model=model, default_enable_cache=True)) as runtime:
        await runtime.run(Request(prompt="Hi.", enable_prompt_cache=asked))
    assert model.prompts[0].options.get("cache") is seen


async def test_a_failed_turn_raises_with_its_result() -> None:
    async with Runtime(Options(agent=clerk(fail(400)))) as runtime:
        with pytest.raises(TurnError) as caught:
            await runtime.run(Request(prompt="Hi.", session_id="s"))
    assert isinstance(caught.value.result, vaka.Response)
    assert caught.value.result.session_id == "s"


async def test_the_sessions_of_requests_are_those_of_every_other_runtime() -> None:
    store = MemoryStore()
    async with Runtime(store=store) as requests:
        await requests.run(Request(prompt="Hi.", agent=clerk(say("Hello.")), session_id="s"))
    async with vaka.Runtime(store=store) as runtime:
        session = await runtime.open(clerk(say("Hello."), say("Again.")), id="s")
        assert (await session.run("And now?")).text == "Again."
        assert len(await session.messages()) == 4


async def test_the_options_of_agentsdk_make_a_runtime(tmp_path: Path) -> None:
    (tmp_path / ".claude").mkdir()
    (tmp_path / "CLAUDE.md").write_text("Answer in verse.")
    (tmp_path / "strict.json").write_text('{"permissions": {"deny": ["pay"]}}')
    model = ScriptedModel(call("pay", amount=1), call("sell", what="rope"), say("Sold."))
    options = Options(
        project_root=str(tmp_path),
        settings_path=str(tmp_path / "strict.json"),
        model=model,
        system_prompt="You keep a shop.",
        enabled_builtin_tools=(),
        custom_tools=(pay, sell),
        max_iterations=5,
    )
    async with Runtime(options) as runtime:
        response = await runtime.run(Request(prompt="Sell."))
    assert (response.text, response.tool_calls, len(response.denied)) == ("Sold.", ("pay", "sell"), 1)
    assert "You keep a shop." in model.prompts[0].system
    assert "Answer in verse." in model.prompts[0].system


async def test_the_iterations_of_agentsdk_are_steps_and_zero_is_no_limit() -> None:
    def looking() -> ScriptedModel:
        return ScriptedModel(call("sell", what="rope"), call("sell", what="sail"), say("Sold."))

    stops = []
    for limit in (1, 0):
        async with Runtime(Options(model=looking(), tools=(sell,), max_iterations=limit)) as runtime:
            stops.append((await runtime.run(Request(prompt="Sell."))).stop)
    assert stops == ["limit", "end"]


async def test_keywords_of_a_runtime_win_over_the_options() -> None:
    async with Runtime(
        Options(entry_point="ci", agent=clerk(say("Hi."))), environment=vaka.Environment(entry_point="platform")
    ) as runtime:
        assert (await runtime.run(Request(prompt="Hi."))).session_id.startswith("ses_platform_")


async def test_a_group_of_a_runtime_keeps_the_options_that_it_does_not_set() -> None:
    options = Options(max_iterations=1, timeout=9.0, model=ScriptedModel(call("sell", what="rope"), say("Sold.")))
    async with Runtime(options, tools=(sell,), limits=vaka.Limits(timeout=5.0)) as runtime:
        assert (await runtime.run(Request(prompt="Sell."))).stop == "limit"
        assert runtime.options.limits == vaka.Limits(max_steps=1, timeout=5.0)


def leaves_of(value: Any) -> Iterator[Any]:
    """Yield the values of the fields of a struct, also of those in its fields."""
    if not isinstance(value, msgspec.Struct):
        yield value
        return
    for part in msgspec.structs.asdict(value).values():
        yield from leaves_of(part)


def test_every_option_has_its_place_in_a_runtime() -> None:
    everything: dict[str, Any] = {name: (name,) for name in Options.__struct_fields__ if name != "tools"}
    everything |= {"approval_whitelist_ttl": 60.0, "task_store": "memory:"}
    arguments = Options(**everything).to_runtime()
    assert set(arguments) <= set(inspect.signature(vaka.Runtime).parameters)
    reached = [leaf for argument in arguments.values() for leaf in leaves_of(argument)]
    assert [name for name, value in everything.items() if value not in reached] == []


def test_an_unknown_option_is_an_error() -> None:
    unchecked: Any = Options
    with pytest.raises(TypeError, match="Unexpected keyword argument 'max_turns'"):
        unchecked(max_turns=3)
