"""AskUserQuestion: a person decides, in this process or a later one; without an answer the model decides."""

import asyncio
from typing import Any

import pytest

from tests.runtime.runtime_fixtures import agent, collect, read_log, results_by_call, runtime
from vaka.config.options import Permissions
from vaka.core.types.control import QuestionAsked
from vaka.core.types.errors import Suspended
from vaka.core.types.ids import JSON
from vaka.core.types.message import ToolResult
from vaka.runtime.options import Environment
from vaka.stores.memory import MemoryStore
from vaka.testing.clock import FakeClock
from vaka.testing.models import ScriptedModel, call, say
from vaka.tools.builtin import builtin_tools

TOOL = builtin_tools(["AskUserQuestion"])


def question(text: str = "Which database?", *labels: str, **more: Any) -> dict[str, Any]:
    options = [{"label": label, "description": f"about {label}"} for label in labels or ("SQLite", "PostgreSQL")]
    return {"question": text, "header": "Storage", "options": options, **more}


def model(*questions: dict[str, Any]) -> ScriptedModel:
    return ScriptedModel(call("AskUserQuestion", questions=list(questions)), say("done"))


async def ask_questions(*questions: dict[str, Any], answers: list[JSON]) -> ToolResult:
    store, left = MemoryStore(), list(answers)
    async with runtime(store, permissions=Permissions(allow=("AskUserQuestion",))) as rt:
        session = await rt.open(agent(model(*questions), *TOOL), id="s")
        async for event in session.stream("Go."):
            if isinstance(event.data, QuestionAsked):
                await rt.answer(event.data.question, left.pop(0))
    return results_by_call(await read_log(store, "s"))["call_1"]


async def test_a_person_is_asked_and_the_answer_returned() -> None:
    result = await ask_questions(question(), answers=["PostgreSQL"])
    assert (result.text, result.failed) == ("Which database?\n  PostgreSQL", False)
    assert result.value == {"answers": {"Which database?": "PostgreSQL"}}


async def test_each_question_is_asked_in_turn() -> None:
    result = await ask_questions(question(), question("Which language?", "Python", "Go"), answers=["sqlite", "2"])
    assert result.value == {"answers": {"Which database?": "SQLite", "Which language?": "Go"}}


@pytest.mark.parametrize(
    ("answer", "meant"),
    [
        ("A", ["A"]),
        ("a, C", ["A", "C"]),
        ("1,3", ["A", "C"]),
        (["A", "B"], ["A", "B"]),
        ("2", ["B"]),
        (2, ["B"]),
        ([1, 3], ["A", "C"]),
        (4, [4]),
        (True, [True]),
        ("neither, thanks", ["neither, thanks"]),
        (["A", "and tea"], ["A", "and tea"]),
        ({"x": 1}, [{"x": 1}]),
    ],
)
async def test_several_chosen_options_are_a_list(answer: JSON, meant: JSON) -> None:
    result = await ask_questions(question("Which?", "A", "B", "C", multiSelect=True), answers=[answer])
    assert result.value == {"answers": {"Which?": meant}}


@pytest.mark.parametrize(
    ("answer", "meant"),
    [
        ("4", "4"),
        ("1", "1"),
        ("3", "4"),
        (["8"], "8"),
        ("5", "5"),
        ("9" * 5000, "9" * 5000),
        (4, "4"),
        (3, "4"),
        (5, 5),
        (10**12, 10**12),
    ],
)
async def test_a_number_means_the_option_with_that_label_before_the_option_with_that_position(
    answer: JSON, meant: JSON
) -> None:
    result = await ask_questions(question("How many?", "1", "2", "4", "8"), answers=[answer])
    assert result.value == {"answers": {"How many?": meant}}


async def test_an_answer_may_be_free_text() -> None:
    assert (await ask_questions(question(), answers=["  a plain file "])).text == "Which database?\n  a plain file"
    assert (await ask_questions(question(), answers=[["SQLite"]])).text == "Which database?\n  SQLite"


async def test_the_question_shows_the_description_of_each_option() -> None:
    store = MemoryStore()
    async with runtime(store, permissions=Permissions(allow=("AskUserQuestion",), ask="suspend")) as rt:
        with pytest.raises(Suspended):
            await collect((await rt.open(agent(model(question(multiSelect=True)), *TOOL), id="s")).stream("Go."))
        (pending,) = await rt.decisions("s")
    body = pending.event.data
    assert isinstance(body, QuestionAsked)
    assert body.options == ("SQLite", "PostgreSQL")
    assert body.text == (
        "Storage: Which database?\n  SQLite: about SQLite\n  PostgreSQL: about PostgreSQL\n"
        "(choose one or more, separated by commas, or answer in your own words)"
    )


async def test_a_question_outlives_the_process_that_asked_it() -> None:
    store, lines = MemoryStore(), (question(), question("Which language?", "Python", "Go"))
    async with runtime(store, permissions=Permissions(allow=("AskUserQuestion",), ask="suspend")) as rt:
        with pytest.raises(Suspended):
            await collect((await rt.open(agent(model(*lines), *TOOL), id="s")).stream("Go."))
        (pending,) = await rt.decisions("s")
        await rt.answer(pending.id, "SQLite")
    async with runtime(store, permissions=Permissions(allow=("AskUserQuestion",), ask="suspend")) as rt:
        with pytest.raises(Suspended):
            await collect((await rt.open(agent(model(*lines), *TOOL), id="s")).resume())
        (pending,) = await rt.decisions("s")
        await rt.answer(pending.id, "Go")
        await collect((await rt.open(agent(model(*lines), *TOOL), id="s")).resume())
    log = await read_log(store, "s")
    assert results_by_call(log)["call_1"].value == {"answers": {"Which database?": "SQLite", "Which language?": "Go"}}
    assert sum(isinstance(event.data, QuestionAsked) for event in log) == 2


async def test_without_an_answer_the_model_is_asked_to_decide() -> None:
    store = MemoryStore()
    async with runtime(store, permissions=Permissions(allow=("AskUserQuestion",), ask="deny")) as rt:
        await (await rt.open(agent(model(question()), *TOOL), id="s")).run("Go.")
    result = results_by_call(await read_log(store, "s"))["call_1"]
    assert result.failed
    assert result.text.startswith("the question was not answered; decide yourself")
    assert result.value == {"answers": {}, "unanswered": ["Which database?"]}


async def test_a_question_expires_when_the_person_takes_too_long() -> None:
    clock, store = FakeClock(), MemoryStore()
    async with runtime(
        store,
        permissions=Permissions(allow=("AskUserQuestion",), question_timeout=60),
        environment=Environment(clock=clock),
    ) as rt:
        session = await rt.open(agent(model(question()), *TOOL), id="s")
        task = asyncio.create_task(collect(session.stream("Go.")))
        await clock.wait_for_sleeps()
        clock.advance(61)
        await task
    result = results_by_call(await read_log(store, "s"))["call_1"]
    assert result.text.startswith("the question was not answered; decide yourself")


@pytest.mark.parametrize(
    "questions",
    [
        [],
        [question()] * 5,
        [question(), question()],
        [question("Q?", "A")],
        [question("Q?", *"ABCDE")],
        [question("Q?", "A", "A")],
        [{**question(), "header": "x" * 13}],
        [{"question": "Q?"}],
    ],
    ids=["none", "five", "twice", "one option", "five options", "same option", "long header", "no options"],
)
async def test_invalid_questions_are_an_error(questions: list[dict[str, Any]]) -> None:
    store = MemoryStore()
    async with runtime(store, permissions=Permissions(allow=("AskUserQuestion",), ask="deny")) as rt:
        await (await rt.open(agent(model(*questions), *TOOL), id="s")).run("Go.")
    result = results_by_call(await read_log(store, "s"))["call_1"]
    assert result.failed
    assert "was not answered" not in result.text
