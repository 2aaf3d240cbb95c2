"""``StreamingAgent``: messages and options of Lumosai in, Lumosai events out."""

from typing import Any

import pytest

import vaka
from tests.views.recorded_runs import make_router
from vaka.content import AssistantMessage, ToolMessage
from vaka.core.types.ids import MessageId
from vaka.errors import AccessDenied, InvalidInput, TurnError
from vaka.lumos import StreamingAgent
from vaka.models import Prompt
from vaka.runtime.lumos import GenerateOptions
from vaka.runtime.options import Environment
from vaka.stores.memory import MemoryStore
from vaka.testing import FakeClock, FakeIds, ScriptedModel, call, fail, say
from vaka.threads import ThreadOptions
from vaka.views.lumos import LumosEvent, StreamingConfig

LONG = [
    {"role": "System", "content": "Answer in one word."},
    {"role": "user", "content": "My boat is red."},
    {"role": "assistant", "content": "Noted."},
    {"role": "tool", "content": "calm", "name": "sea"},
    {"role": "user", "content": "Remember it."},
    {"role": "user", "content": "Which colour?"},
]


@vaka.tool
async def weather(city: str) -> str:
    """Look at the weather."""
    return f"sunny in {city}"


async def execute(runtime: vaka.Runtime, agent: vaka.Agent[Any], *arguments: Any, **config: Any) -> list[LumosEvent]:
    streaming = StreamingAgent(runtime, agent, StreamingConfig(**config))
    return [event async for event in streaming.execute_streaming(*arguments)]


async def test_the_tools_run_and_the_result_has_the_usage_of_all_steps() -> None:
    usage = {"usage": {"input": 10, "output": 2}}
    model = ScriptedModel(call("weather", city="Hilo") | usage, say("Sunny.") | usage)
    agent = vaka.Agent("guide", model=model, tools=[weather])
    async with vaka.Runtime() as runtime:
        events = await execute(runtime, agent, "Weather?", {"thread_id": "t"})
    assert [event.type for event in events] == [
        "AgentStarted",
        "ToolCallStart",
        "ToolCallComplete",
        "StepComplete",
        "TextDelta",
        "StepComplete",
        "GenerationComplete",
        "AgentStopped",
    ]
    assert events[2].data["result"]["result"] == "sunny in Hilo"
    result = events[-2].data["result"]
    assert (result["response"], result["usage"]["total_tokens"], len(result["steps"])) == ("Sunny.", 24, 2)


def texts_of(prompt: Prompt) -> list[str]:
    """Return the texts of each message of a prompt."""
    return [
        " + ".join(part.text for part in message.content if isinstance(part, vaka.Text))
        for message in prompt.messages
        if not isinstance(message, ToolMessage)
    ]


async def test_the_model_sees_the_whole_conversation_in_each_turn_of_its_thread() -> None:
    model, store = ScriptedModel(say("Red."), say("Still red."), say("Blue.")), MemoryStore()
    agent = vaka.Agent("guide", model=model, instructions="You are a guide.")
    async with vaka.Runtime(store=store) as runtime:
        await execute(runtime, agent, LONG, {"thread_id": "t", "resource_id": "boats"})
    async with vaka.Runtime(store=store) as runtime:
        answered = [*LONG, {"role": "assistant", "content": "Red."}, {"role": "user", "content": "And now?"}]
        await execute(runtime, agent, answered, {"thread_id": "t"})
        context = ({"role": "pilot", "content": "It was painted."}, {"role": "assistant", "content": "Oh."})
        await execute(runtime, agent, LONG, {"context": context, "context_window": 2, "instructions": "Be sure."})
    began = ["My boat is red.", "Noted.", "sea: calm", "Remember it. + Which colour?"]
    assert [texts_of(prompt) for prompt in model.prompts] == [
        began,
        [*began, "Red.", "And now?"],
        began[1:],
    ]
    assert [prompt.system for prompt in model.prompts] == [
        "You are a guide.\n\nAnswer in one word.",
        "You are a guide.\n\nAnswer in one word.",
        "Be sure.\n\nAnswer in one word.",
    ]


async def test_options_bind_one_answer_and_leave_the_agent_as_it_is() -> None:
    model = ScriptedModel(call("weather", city="Hilo"), say("never"), call("weather", city="Hilo"), say("Sunny."))
    agent = vaka.Agent("guide", model=model, tools=[weather], options={"top_p": 0.5})
    options = {
        "max_steps": 1,
        "tool_choice": {"tool_name": "weather"},
        "temperature": 0.0,
        "max_tokens": 9,
        "stop": ["x"],
        "extra": {"seed": 1},
        "system_message": {"role": "system", "content": "Be brief."},
        "run_id": "r1",
        "thread_id": "t",
    }
    async with vaka.Runtime(environment=Environment(ids=FakeIds())) as runtime:
        limited = await execute(runtime, agent, "Weather?", options, emit_metadata=True)
        repeated = await execute(runtime, agent, "Weather?", GenerateOptions.parse(options))
        await execute(runtime, agent, "Weather?", {"tool_choice": "required"})
    first, last = model.prompts[0], model.prompts[-1]
    expected = {"top_p": 0.5, "temperature": 0.0, "max_tokens": 9, "stop": ["x"], "seed": 1}
    assert {name: first.options[name] for name in expected} == expected
    assert (first.tool_choice, first.system, last.system, agent.limits.max_steps) == ("weather", "Be brief.", "", 50)
    assert [event.data for event in limited[:2]] == [
        {"key": "run_id", "value": "trn_1"},
        {"key": "streaming_mode", "value": "function_calling"},
    ]
    assert limited[-2].data["result"]["metadata"]["limit"] == "steps"
    assert repeated[-2].data["result"]["metadata"]["run_id"] == "trn_1"


async def test_an_answer_that_was_not_streamed_is_cut_into_pieces_with_pauses_between() -> None:
    async def answer(turn: vaka.Turn, prompt: Prompt) -> AssistantMessage:
        return AssistantMessage(id=MessageId("x"), content=(vaka.Text(text="Grüße, 世界"),))

    clock = FakeClock(auto=True)
    middleware = vaka.Middleware.from_functions("canned", before_model=answer)
    agent = vaka.Agent("guide", model=ScriptedModel(), middleware=[middleware])
    async with vaka.Runtime(environment=Environment(clock=clock)) as runtime:
        before = clock.monotonic()
        events = await execute(runtime, agent, "Hi.", None, text_buffer_size=4, text_delta_delay_ms=250)
        waited = clock.monotonic() - before
    pieces = [event.data for event in events if event.type == "TextDelta"]
    assert [(piece["delta"], piece["simulated"]) for piece in pieces] == [("Grüß", True), ("e, 世", True), ("界", True)]
    assert waited == 0.5


async def test_the_text_of_a_router_is_streamed_as_its_agents_write_it() -> None:
    async with vaka.Runtime() as runtime:
        events = await execute(runtime, make_router(), "Book a room and play music.", {"thread_id": "t"})
    texts = [event.data["delta"] for event in events if event.type == "TextDelta"]
    assert (texts, events[-2].data["result"]["response"]) == (["Booked.", "Playing."], "Booked.\n\nPlaying.")


async def test_callbacks_get_each_step_and_the_result() -> None:
    steps: list[str] = []
    results: list[dict[str, Any]] = []

    async def finish(result: dict[str, Any]) -> None:
        results.append(result)

    thread = {"thread_id": "t"}
    model = ScriptedModel(call("weather", city="Hilo"), say("Sunny."), say("Yes."), fail(400, "no such model"))
    async with vaka.Runtime() as runtime:
        streaming = StreamingAgent(runtime, vaka.Agent("guide", model=model, tools=[weather]))
        result = await streaming.execute_with_callbacks(
            "Weather?", thread, on_step_finish=lambda step: steps.append(step["step_type"]), on_finish=finish
        )
        assert (await streaming.execute_with_callbacks("Sure?", thread))["response"] == "Yes."
        with pytest.raises(TurnError, match="no such model") as raised:
            await streaming.execute_with_callbacks("Weather?", thread, on_finish=finish)
    assert (steps, results, result["response"]) == (["initial", "final"], [result], "Sunny.")
    assert raised.value.code == "model_refused"


@pytest.mark.parametrize(
    ("messages", "options", "problem"),
    [
        ([], None, "the last message must be one of the user"),
        ([{"role": "assistant", "content": "x"}], None, "the last message must be one of the user"),
        ([{"role": "user"}], None, "needs 'role' and 'content'"),
        ("Hi.", {"thread": "t"}, "there is no option 'thread'; did you mean 'thread_id'"),
        ("Hi.", {"zzz": 1}, "the options are instructions, "),
        ("Hi.", {"max_steps": "many"}, "the options cannot be used: "),
        (" ", None, "the input is empty"),
    ],
)
async def test_messages_and_options_that_cannot_be_used_are_refused(messages: Any, options: Any, problem: str) -> None:
    async with vaka.Runtime() as runtime:
        with pytest.raises(InvalidInput, match=problem):
            await execute(runtime, vaka.Agent("guide", model=ScriptedModel(say("x"))), messages, options)


async def test_a_turn_in_a_thread_uses_its_last_messages_and_checks_its_owner() -> None:
    model = ScriptedModel(say("Red."), say("Blue."))
    async with vaka.Runtime(store=MemoryStore()) as runtime:
        streaming = StreamingAgent(runtime, vaka.Agent("guide", model=model))
        await runtime.threads.create(id="t", resource_id="kim")
        said = [{"role": "user", "content": "My boat is red."}, {"role": "assistant", "content": "Noted."}]
        await runtime.threads.append_many("t", [*said, *said])
        question = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Which colour?"}]
        response = await streaming.generate_with_memory(question, "t", {"resource_id": "kim", "context_window": 2})
        assert response.text == "Red."
        assert texts_of(model.prompts[0]) == ["My boat is red.", "Noted.", "Which colour?"]
        assert model.prompts[0].system == "Be short."
        await streaming.generate_with_memory("And now?", "t", memory=ThreadOptions(load_context=False))
        assert texts_of(model.prompts[1]) == ["And now?"]
        with pytest.raises(InvalidInput, match="the thread has those before them"):
            await streaming.generate_with_memory(LONG, "t")
        with pytest.raises(AccessDenied):
            await streaming.generate_with_memory("Which?", "t", {"resource_id": "lee"})
