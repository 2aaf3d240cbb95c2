"""Turns in threads with some of their messages as context, processors of messages, and threads as JSON lines."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import msgspec
import pytest

import vaka
from tests.runtime.runtime_fixtures import IDS
from vaka.config.options import Models
from vaka.core.loop.middleware import Middleware
from vaka.core.ports.model import Prompt
from vaka.core.types.ids import CallId, MessageId
from vaka.core.types.message import (
    AssistantMessage,
    Message,
    Text,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
    text_of,
)
from vaka.errors import AccessDenied, Busy, Interrupted, InvalidInput, NotFound, Suspended, TurnError
from vaka.middleware import ToolSource
from vaka.models.scripted import ScriptLine
from vaka.runtime.options import Environment
from vaka.runtime.runtime import Runtime
from vaka.stores.memory import MemoryStore
from vaka.testing.models import FunctionModel, call, fail, say
from vaka.threads import Composite, Deduplication, MessageLimit, RoleFilter, ThreadOptions, ThreadPolicy


@pytest.fixture
async def runtime() -> AsyncIterator[Runtime]:
    async with vaka.Runtime(store=MemoryStore(), environment=Environment(ids=IDS), models=Models(retries=0)) as made:
        yield made


class Answers(FunctionModel):
    """Answers the calls of all sessions with lines, one after the other, and records the prompts."""

    def __init__(self, *lines: ScriptLine) -> None:
        self.prompts: list[Prompt] = []

        async def answer(prompt: Prompt) -> dict[str, Any]:
            self.prompts.append(prompt)
            return dict(lines[len(self.prompts) - 1])

        super().__init__(answer)


def texts_of(prompt: Prompt) -> list[str]:
    return ["result" if isinstance(message, ToolMessage) else text_of(message.content) for message in prompt.messages]


async def add_exchanges(runtime: Runtime, count: int) -> None:
    await runtime.threads.append_many(
        "t",
        [
            message
            for n in range(count)
            for message in ({"role": "user", "content": f"q{n}"}, {"role": "assistant", "content": f"a{n}"})
        ],
    )


async def said(runtime: Runtime, id: str = "t") -> list[str]:
    return [row.text for row in (await runtime.threads.get_messages(id)).messages]


async def test_a_turn_in_a_thread_sees_its_last_messages_and_becomes_part_of_it(runtime: Runtime) -> None:
    model = Answers(say("One."), say("Two."))
    agent = vaka.Agent("helper", model=model)
    await runtime.threads.create(id="t", resource_id="kim")
    await add_exchanges(runtime, 20)
    response = await runtime.threads.generate_with_memory(agent, "t", "Now?", resource_id="kim", key="k")
    assert response.text == "One."
    assert texts_of(model.prompts[0]) == [*(f"{who}{n}" for n in range(15, 20) for who in "qa"), "Now?"]
    again = await runtime.threads.generate_with_memory(agent, "t", "Now?", key="k")
    assert (again.text, len(model.prompts)) == ("One.", 1)
    await runtime.threads.generate_with_memory(agent, "t", "And?", {"context_limit": 2})
    assert texts_of(model.prompts[1]) == ["Now?", "One.", "And?"]
    assert (await said(runtime, "t"))[-4:] == ["Now?", "One.", "And?", "Two."]


async def test_a_turn_can_leave_out_the_context_and_the_thread(runtime: Runtime) -> None:
    model = Answers(call("look"), say("One."), say("Two."), say("Three."))

    def look() -> str:
        """Look."""
        return "seen"

    agent = vaka.Agent("helper", model=model, tools=[look])
    await runtime.threads.create(id="t")
    await add_exchanges(runtime, 2)
    await runtime.threads.generate_with_memory(agent, "t", "Alone?", ThreadOptions(load_context=False))
    assert texts_of(model.prompts[0]) == ["Alone?"]
    before = await said(runtime)
    aside = ThreadOptions(save_to_memory=False, context_limit=5, processors=(RoleFilter(("user", "assistant")),))
    assert (await runtime.threads.generate_with_memory(agent, "t", "Aside?", aside)).text == "Two."
    assert texts_of(model.prompts[2]) == ["q1", "a1", "Alone?", "One.", "Aside?"]
    assert await said(runtime) == before
    assert [each.id for each in (await runtime.threads.list()).threads] == ["t"]
    whole = ThreadOptions(save_to_memory=False)
    await runtime.threads.generate_with_memory(agent, "t", "Again?", whole)
    assert texts_of(model.prompts[3])[-5:] == ["Alone?", "", "result", "One.", "Again?"]


async def test_a_failed_turn_leaves_both_sides_out_unless_a_tool_has_run(runtime: Runtime) -> None:
    ran: list[int] = []

    def act() -> str:
        """Act."""
        ran.append(1)
        return "done"

    lines = (fail(400), say("One."), call("act"), fail(400), say("Two."), fail(400))
    model = Answers(*lines)
    agent = vaka.Agent("helper", model=model, tools=[act])
    threads = runtime.threads
    await threads.create(id="t")
    with pytest.raises(TurnError):
        await threads.generate_with_memory(agent, "t", "Lost?")
    assert (await threads.generate_with_memory(agent, "t", "Kept?")).text == "One."
    assert texts_of(model.prompts[1]) == ["Kept?"]
    with pytest.raises(TurnError):
        await threads.generate_with_memory(agent, "t", "Act!")
    assert (await threads.generate_with_memory(agent, "t", "What happened?")).text == "Two."
    assert texts_of(model.prompts[4]) == ["Kept?", "One.", "Act!", "", "result", "What happened?"]
    assert ran == [1]
    with pytest.raises(TurnError):
        await threads.generate_with_memory(agent, "t", "Aside?", ThreadOptions(save_to_memory=False))
    assert [each.id for each in (await threads.list()).threads] == ["t"]


async def test_a_turn_in_a_thread_needs_an_active_thread_and_usable_options(runtime: Runtime) -> None:
    agent, threads = vaka.Agent("helper", model=Answers(say("Hi."))), runtime.threads
    with pytest.raises(NotFound):
        await threads.generate_with_memory(agent, "t", "Hello")
    await threads.create(id="t", resource_id="kim", policy=ThreadPolicy(max_messages=2))
    with pytest.raises(AccessDenied):
        await threads.generate_with_memory(agent, "t", "Hello", resource_id="lee")
    for options, error in (
        ({"contextlimit": 1}, "there is no option 'contextlimit'"),
        ({"context_limit": -1}, "0 or more messages"),
        ({"use_semantic_search": True}, "needs semantic_memory"),
    ):
        with pytest.raises(InvalidInput, match=error):
            await threads.generate_with_memory(agent, "t", "Hello", options)
    assert (await threads.generate_with_memory(agent, "t", "Hello")).text == "Hi."
    with pytest.raises(InvalidInput, match="is ended"):
        await threads.generate_with_memory(agent, "t", "Hello")


async def test_semantic_and_working_memory_are_middleware_of_the_turn(runtime: Runtime) -> None:
    class Recall(Middleware, ToolSource):
        def __init__(self, text: str) -> None:
            self.text = text

        async def prompt_for_step(self, turn: Any) -> str:
            return self.text

    model = Answers(say("Hi."), say("Ho."))
    agent, threads = vaka.Agent("helper", model=model), runtime.threads
    await threads.create(id="t")
    both = ThreadOptions(use_semantic_search=True, semantic_memory=Recall("found"), working_memory=Recall("kept"))
    await threads.generate_with_memory(agent, "t", "Hello", both)
    assert model.prompts[0].system == "found\n\nkept"
    await threads.generate_with_memory(agent, "t", "Hello", ThreadOptions(semantic_memory=Recall("found")))
    assert model.prompts[1].system == ""


def conversation() -> list[Message]:
    called = ToolCall(id=CallId("call_1"), name="look")
    return [
        UserMessage(content=(Text(text="a"),)),
        AssistantMessage(id=MessageId("1"), content=(Text(text="b"),), calls=(called,)),
        ToolMessage(results=(ToolResult(call=called.id),)),
        AssistantMessage(id=MessageId("2"), content=(Text(text="c"),)),
        UserMessage(content=(Text(text="a"),)),
        AssistantMessage(id=MessageId("3"), content=(Text(text="c"),)),
    ]


def test_processors_never_cut_a_call_from_its_result() -> None:
    messages = conversation()
    for limit in range(8):
        shown = MessageLimit(limit).process(messages)
        assert len(shown) <= limit
        assert not shown or isinstance(shown[0], UserMessage)
    assert MessageLimit(6).process(messages) == messages
    assert RoleFilter(("user",)).process(messages) == [messages[0], messages[4]]
    spoken = RoleFilter({"user", "assistant"}).process(messages)
    assert [getattr(message, "calls", ()) for message in spoken] == [()] * 5
    assert RoleFilter("tool").process(messages) == []
    assert RoleFilter(("user", "assistant", "tool")).process(messages) == messages
    silent = AssistantMessage(id=MessageId("4"), calls=(ToolCall(id=CallId("call_2"), name="look"),))
    assert RoleFilter("assistant").process([silent]) == []
    assert Deduplication().process(messages) == messages[:4]
    assert Composite(Deduplication(), MessageLimit(4), RoleFilter("user")).process(messages) == messages[:1]
    assert Composite().process(messages) == messages
    with pytest.raises(InvalidInput, match="there is no role 'system'"):
        RoleFilter(["system"])
    with pytest.raises(InvalidInput, match="0 or more"):
        MessageLimit(-1)
    with pytest.raises(InvalidInput, match=r"a processor has a method process\(messages\)"):
        Composite((MessageLimit(1),))  # type: ignore[arg-type]  # as untyped callers may


async def export(runtime: Runtime, id: str) -> list[bytes]:
    async with aclosing(runtime.threads.export(id)) as lines:
        return [line async for line in lines]


async def test_a_thread_is_exported_and_imported_again(runtime: Runtime) -> None:
    def look() -> str:
        """Look."""
        return "seen " * 20_000

    agent = vaka.Agent("helper", model=Answers(call("look"), say("One."), say("Gone."), say("Two.")), tools=[look])
    threads = runtime.threads
    await threads.create(id="t", title="Talk", agent_id="helper", resource_id="kim", metadata={"n": 1})
    await threads.append_many("t", [{"role": "user", "content": "Before.", "id": "mine", "metadata": {"k": "v"}}])
    session = await runtime.open(agent, id="t")
    await session.run("Look.")
    place = await session.checkpoint("here")
    await session.run("Rewound?")
    await session.rewind(place)
    await session.run("Then?")
    await threads.set_state("t", "ended")
    lines = await export(runtime, "t")
    head, *messages = [msgspec.json.decode(line) for line in lines]
    assert (head["type"], head["title"], head["resource_id"], head["state"]) == ("thread", "Talk", "kim", "ended")
    assert [(each["role"], first_text(each)[:9]) for each in messages] == [
        ("user", "Before."),
        ("user", "Look."),
        ("assistant", ""),
        ("tool", "seen seen"),
        ("assistant", "One."),
        ("user", "Then?"),
        ("assistant", "Two."),
    ]
    assert messages[2]["tool_calls"][0]["id"] == messages[3]["id"]
    copied = await threads.import_lines(lines, id="copy", resource_id="lee")
    assert (copied.title, copied.resource_id, copied.metadata, copied.state) == ("Talk", "lee", {"n": 1}, "ended")
    assert await said(runtime, "copy") == [row for row in await said(runtime, "t") if row not in ("Rewound?", "Gone.")]
    again = (await export(runtime, "copy"))[1:]
    assert [without_turn(line) for line in again] == [without_turn(line) for line in lines[1:]]
    assert (await threads.import_lines(lines, id="copy", resource_id="lee")).version == copied.version
    assert len(await said(runtime, "copy")) == 7
    with pytest.raises(AccessDenied):
        await threads.import_lines(lines, id="copy")


def first_text(message: dict[str, Any]) -> str:
    return "".join(part["text"] for part in message.get("content", [])[:1])


def without_turn(line: bytes) -> dict[str, Any]:
    document = msgspec.json.decode(line)
    return {name: value for name, value in document.items() if name != "turn"}


async def test_an_import_that_was_interrupted_is_finished_by_another_one(runtime: Runtime) -> None:
    lines = [
        b'{"type":"thread","id":"t"}\n',
        *(
            msgspec.json.encode({"type": "message", "role": "user", "content": [{"type": "text", "text": f"{n}"}]})
            + b"\n"
            for n in range(450)
        ),
        b"\n",
    ]
    broken = [*lines[:420], b'{"type":"message","role":"king"}\n']
    with pytest.raises(InvalidInput, match=r"line 421 is not a line of exported messages.*adds none twice"):
        await runtime.threads.import_lines(broken)
    assert (await runtime.threads.stats("t")).message_count == 400
    await runtime.threads.import_lines(lines)
    assert (await runtime.threads.stats("t")).message_count == 450

    async def stream() -> AsyncIterator[bytes]:
        for line in lines:
            yield line

    await runtime.threads.import_lines(stream())
    assert (await runtime.threads.stats("t")).message_count == 450


@pytest.mark.parametrize(
    ("lines", "error"),
    [
        ([], "the first line must be the thread"),
        ([b'{"type":"message","role":"user"}'], "the first line must be the thread"),
        ([b"not json"], "line 1 is not a line"),
        ([b"\xff\xfe"], "line 1 is not a line"),
        ([b"[" * 100_000], "line 1 is not a line"),
        ([b'{"type":"thread","id":"t"}', b'{"type":"thread","id":"u"}'], "line 2 is a second thread"),
        ([b'{"type":"thread","id":"../x\\u0000"}'], "session"),
    ],
)
async def test_lines_that_are_not_of_a_thread_are_refused(runtime: Runtime, lines: list[bytes], error: str) -> None:
    with pytest.raises(InvalidInput, match=error):
        await runtime.threads.import_lines(lines)


async def test_deleting_a_message_keeps_later_turns_with_their_calls_and_session_values(runtime: Runtime) -> None:
    async def remember(context: vaka.ToolContext, what: str) -> str:
        """Remember."""
        context.state.set("what", what)
        context.state.set("old", None)
        return f"kept {what} " + "x" * 40_000

    lines = (say("One."), call("remember", what="boat"), say("Two."), say("Three."))
    model = Answers(*lines)
    agent = vaka.Agent("helper", model=model, tools=[remember])
    await runtime.threads.create(id="t")
    session = await runtime.open(agent, id="t")
    await session.run("My name is Kim.", key="name")
    await session.run("Remember the boat.")
    assert (await runtime.threads.delete_messages("t", ["name"])).affected_count == 1
    assert await session.state_values() == {"what": "boat"}
    await session.run("And?")
    assert texts_of(model.prompts[-1]) == ["One.", "Remember the boat.", "", "result", "Two.", "And?"]
    results = [message for message in model.prompts[-1].messages if isinstance(message, ToolMessage)]
    assert len(results[0].results[0].text) > 40_000
    events = [event async for event in runtime.store.events.read(session.id)]
    assert any(b"Kim" in event.stored for event in events)
    assert (await runtime.threads.delete_messages("t", [])).success


async def test_messages_of_an_unfinished_turn_are_not_deleted(runtime: Runtime) -> None:
    entered, leave = asyncio.Event(), asyncio.Event()

    async def wait() -> str:
        """Wait."""
        entered.set()
        await leave.wait()
        return "done"

    agent = vaka.Agent("helper", model=Answers(say("One."), call("wait"), say("Two.")), tools=[wait])
    await runtime.threads.create(id="t")
    session = await runtime.open(agent, id="t")
    await session.run("First.", key="first")
    turn = asyncio.create_task(session.run("Second."))
    await entered.wait()
    for refused in (
        runtime.threads.delete_messages("t", ["first"]),
        runtime.threads.add_message("t", {"role": "user", "content": "x"}),
    ):
        with pytest.raises(Busy):
            await refused
    assert (await runtime.threads.update("t", title="While it runs")).title == "While it runs"
    leave.set()
    assert (await turn).text == "Two."
    assert (await runtime.threads.delete_messages("t", ["first"])).affected_count == 1


async def test_a_turn_that_waits_or_is_interrupted_stays_in_the_thread() -> None:
    def pay() -> str:
        """Pay."""
        return "paid"

    agent = vaka.Agent("helper", model=Answers(*[call("pay")] * 2), tools=[pay])
    async with vaka.Runtime(
        store=MemoryStore(),
        environment=Environment(ids=IDS),
        permissions=vaka.Permissions(ask="suspend", confirm=["pay"]),
    ) as runtime:
        threads = runtime.threads
        await threads.create(id="t")
        for memory in (None, ThreadOptions(save_to_memory=False)):
            with pytest.raises(Suspended):
                await threads.generate_with_memory(agent, "t", "Pay.", memory)
        assert len((await threads.list()).threads) == 2  # the turn beside the thread goes on in its own session
        session = await runtime.open(agent, id="t")
        await session.interrupt()
        with pytest.raises(Interrupted):
            await session.resume().wait()
        assert [row.role for row in (await threads.get_messages("t")).messages] == ["user", "assistant", "tool"]


async def test_the_conversation_of_a_child_is_not_part_of_an_export_and_dies_with_the_answer(runtime: Runtime) -> None:
    child = vaka.Agent("child", model=Answers(say("From the child.")), description="Knows.")
    agent = vaka.Agent("helper", model=Answers(call("child", prompt="Ask."), say("One.")), tools=[child])
    await runtime.threads.create(id="t")
    await (await runtime.open(agent, id="t")).run("Go.", key="go")
    lines = [msgspec.json.decode(line) for line in await export(runtime, "t")]
    assert [line.get("role") for line in lines] == [None, "user", "assistant", "tool", "assistant"]
    rows = (await runtime.threads.get_messages("t")).messages
    assert (await runtime.threads.delete_messages("t", [rows[1].id])).affected_count == 1
    assert await said(runtime) == ["Go.", "One."]
    assert (await runtime.threads.stats("t")).message_count == 2
