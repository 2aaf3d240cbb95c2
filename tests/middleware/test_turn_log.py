"""Logging: one record for each middleware point of a turn, without secrets."""

import json
import logging
from typing import Any

import pytest

import vaka
from tests.middleware.stop_reason import stop_reason_of
from tests.runtime.runtime_fixtures import agent, runtime
from vaka.config.options import Models, Storage
from vaka.middleware import Logging
from vaka.runtime.options import Environment
from vaka.testing.clock import FakeClock
from vaka.testing.models import ScriptedModel, call, fail, say

SECRET = "hunter2-hunter2"


@vaka.tool(effect="read")
async def look(at: str) -> str:
    """Look."""
    return f"{SECRET} " + "x" * 5_000


async def records(*answers: Any, **more: Any) -> list[dict[str, Any]]:
    written: list[dict[str, Any]] = []
    bot = agent(ScriptedModel(*answers), look, middleware=[Logging(written.append, **more)])
    async with runtime(
        environment=Environment(clock=FakeClock()), storage=Storage(secrets=(SECRET,)), models=Models(retries=0)
    ) as rt:
        await stop_reason_of((await rt.open(bot, id="s")).run(f"It is {SECRET}."))
    return written


async def test_every_middleware_point_has_a_record() -> None:
    logged = await records(call("look", at="a"), say("done"))
    assert [record["point"] for record in logged] == [
        "before_agent",
        "before_model",
        "after_model",
        "before_tool",
        "after_tool",
        "before_model",
        "after_model",
        "after_agent",
    ]
    assert {(record["session"], record["agent"]) for record in logged} == {("s", "assistant")}
    tool = logged[4]
    assert (tool["tool"], tool["call"], tool["failed"], tool["duration_ms"]) == ("look", "call_1", False, 0)
    assert tool["output"] == {"characters": 5_016}
    assert logged[-1]["stop"] == "completed"
    assert "done" not in json.dumps(logged)


async def test_texts_are_logged_only_with_content_truncated_and_redacted() -> None:
    logged = await records(call("look", at=SECRET), say(f"It is {SECRET}"), content=True)
    assert SECRET not in json.dumps(logged)
    assert logged[0]["input"]["text"] == "It is [redacted]."
    assert logged[3]["arguments"]["text"] == '{"at": "[redacted]"}'
    assert len(logged[4]["output"]["text"]) == 2_001


async def test_a_failed_turn_is_logged_with_its_error() -> None:
    logged = await records(fail(400, "bad things"))
    assert logged[-1]["stop"] == "failed"
    assert "bad things" in logged[-1]["error"]


async def test_without_a_sink_the_logger_gets_json(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="vaka.turn"):
        async with runtime() as rt:
            await (await rt.open(agent(ScriptedModel(say("Hi.")), middleware=[Logging()]))).run("Hi.")
    assert [json.loads(line)["point"] for line in caplog.messages] == [
        "before_agent",
        "before_model",
        "after_model",
        "after_agent",
    ]
