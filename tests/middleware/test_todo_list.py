"""TodoList: the prompt contains a reminder of open tasks every few steps."""

from typing import Any

import msgspec
import pytest

import vaka
from tests.runtime.runtime_fixtures import agent, read_log, runtime
from vaka.core.types.errors import ConfigError
from vaka.core.types.message import UserMessage, text_of
from vaka.middleware import TodoList
from vaka.stores.memory import MemoryStore
from vaka.testing.models import ScriptedModel, call, say
from vaka.tools.builtin import builtin_tools


@vaka.tool(effect="idempotent", name="TodoWrite")
async def todo_write(todos: list[dict[str, Any]]) -> str:
    """Write the list."""
    if not todos:
        raise ValueError("an empty list")
    return "written"


@vaka.tool(effect="read", poll=True)
async def look() -> str:
    """Look."""
    return "seen"


TODOS = [
    {"content": "wash", "status": "completed"},
    {"content": "dry\nit", "status": "in_progress"},
    *({"content": f"fold {n}", "status": "pending"} for n in range(10)),
]


async def reminders_of(*answers: Any, turns: int = 1, **more: Any) -> list[str]:
    """Return the reminder of each prompt, ``""`` where there is none."""
    store, model = MemoryStore(), ScriptedModel(*answers)
    async with runtime(store, permissions=vaka.Permissions(mode="bypassPermissions")) as rt:
        bot = agent(model, look, middleware=[TodoList(todo_write, **more)])
        for _ in range(turns):
            await (await rt.open(bot, id="s")).run("Go.")
    assert b"system-reminder" not in b"".join([event.stored for event in await read_log(store, "s")])
    last = [prompt.messages[-1] for prompt in model.prompts]
    texts = [text_of(message.content) if isinstance(message, UserMessage) else "" for message in last]
    return [text if "system-reminder" in text else "" for text in texts]


async def test_the_reminder_comes_some_steps_after_the_list_was_written() -> None:
    reminders = await reminders_of(call("TodoWrite", todos=TODOS), *[call("look")] * 5, say("done"), every=2)
    assert [bool(text) for text in reminders] == [False, False, False, True, False, True, False]
    assert "[>] dry it\n[ ] fold 0\n" in reminders[3]
    assert "fold 9" not in reminders[3]
    assert "… and 1 more" in reminders[3]
    assert "wash" not in reminders[3]


async def test_a_new_turn_starts_with_the_reminder() -> None:
    reminders = await reminders_of(call("TodoWrite", todos=TODOS), say("later"), say("done"), turns=2, every=50)
    assert [bool(text) for text in reminders] == [False, False, True]
    reminders = await reminders_of(
        call("TodoWrite", todos=TODOS), say("a"), say("b"), turns=2, every=50, at_start=False
    )
    assert not any(reminders)


async def test_there_is_no_reminder_without_open_tasks_or_a_list() -> None:
    done = [{"content": "wash", "status": "completed"}]
    assert not any(await reminders_of(call("TodoWrite", todos=done), *[call("look")] * 3, say("done"), every=1))
    assert not any(await reminders_of(*[call("look")] * 3, say("done"), every=1))
    assert not any(await reminders_of(call("TodoWrite", todos=[]), *[call("look")] * 3, say("done"), every=1))


async def test_a_list_outside_the_context_window_is_read_from_the_session() -> None:
    async def forget(turn: Any, prompt: Any) -> Any:
        return msgspec.structs.replace(prompt, messages=prompt.messages[-1:])

    model = ScriptedModel(call("TodoWrite", todos=[{"content": "wash", "status": "pending"}]), say("a"), say("b"))
    middleware = [
        vaka.Middleware.from_functions("forget", before_model=forget),
        TodoList(builtin_tools(["TodoWrite"])[0], every=50),
    ]
    async with runtime(permissions=vaka.Permissions(mode="bypassPermissions")) as rt:
        for _ in range(2):
            await (await rt.open(agent(model, middleware=middleware), id="s")).run("Go.")
    last = model.prompts[-1].messages[-1]
    assert isinstance(last, UserMessage)
    assert "[ ] wash" in text_of(last.content)


def test_the_interval_must_be_at_least_one_step() -> None:
    with pytest.raises(ConfigError):
        TodoList(every=0)
    assert TodoList().tools() == ()
