"""The cost of a run on the command line includes the models that tools ask."""

import json
from asyncio import to_thread
from typing import Any

import pytest

from tests.cli.shell import CommandResult, Shell, call_line, say_line
from tests.cli.test_models import run_vaka
from tests.net.http_server import encode_response, respond_by_path, serve
from vaka.testing.fake_provider import FakeProvider, ProviderRequest
from vaka.testing.models import say as words

WEB_PAGE = encode_response(
    b"<p>The number is 42. " + b"There is more. " * 400 + b"</p>", headers=[("Content-Type", "text/html")]
)
TIER_SETTINGS = """
model = "openai-chat/root"
[tiers]
low = "openai-chat/small"
[prices."openai-chat/root"]
input = 10.0
output = 20.0
[prices."openai-chat/small"]
input = 1.0
output = 2.0
"""


async def run_with_provider(shell: Shell, *more: str) -> tuple[CommandResult, FakeProvider]:
    """Run a turn in which the agent asks about a page; every model is at one provider."""
    async with serve(respond_by_path({"/": WEB_PAGE})) as web:

        def reply(request: ProviderRequest) -> Any:
            if request.model == "small":
                return words("It is 42.") | {"usage": {"input": 1000, "output": 100}}
            if "42" in json.dumps(request.body["messages"][-1]) or len(request.body["messages"]) > 2:
                return words("The page says 42.") | {"usage": {"input": 100, "output": 10}}
            asked = call_line("WebFetch", url=web.url("/"), prompt="Which number?")
            return asked | {"usage": {"input": 100, "output": 10}}

        async with FakeProvider(reply) as provider:
            done = await run_vaka(
                shell,
                provider,
                "run",
                "What does the page say?",
                "--output",
                "json",
                "--permission-mode",
                "bypassPermissions",
                "--allow-host",
                web.authority,
                "--session",
                "s",
                *more,
            )
    return done, provider


async def test_the_question_about_a_page_is_in_the_result_the_usage_and_the_log(shell: Shell) -> None:
    shell.write_file("conf/vaka/config.toml", TIER_SETTINGS)
    done, provider = await run_with_provider(shell)
    result = done.json
    assert (done.code, result["text"]) == (0, "The page says 42.")
    assert [request.model for request in provider.requests] == ["root", "small", "root"]
    totals = {name: used["total"] for name, used in result["models"].items()}
    assert totals == {"openai-chat/root": 220, "openai-chat/small": 1100}
    root, small = 2 * (100 * 10 + 10 * 20) / 1e6, (1000 * 1 + 100 * 2) / 1e6
    assert result["cost"] == pytest.approx(root + small)
    shown = shell.vaka("sessions", "stats", "s", "--json").json
    assert (shown["request_count"], shown["usage"]["cost"]) == (3, pytest.approx(root + small))
    assert shown["by_agent"]["web"]["usage"]["cost"] == pytest.approx(small)
    asked = [event for event in shell.events("s") if event["type"] == "usage" and "call" in event["data"]]
    assert [(event["data"]["call"], event["data"]["model"], event["turn"]) for event in asked] == [
        ("call_1", "openai-chat/small", result["turn_id"])
    ]


async def test_a_question_that_the_money_of_a_run_cannot_pay_is_not_asked(shell: Shell) -> None:
    """The page has 1500 tokens: more than is left after the first answer."""
    shell.write_file("conf/vaka/config.toml", TIER_SETTINGS.replace("input = 1.0", "input = 99.0"))
    done, provider = await run_with_provider(shell, "--max-budget-usd", "0.1")
    assert [request.model for request in provider.requests] == ["root", "root"]
    assert "the budget of this turn (cost) has no room left" in json.dumps(provider.requests[1].body)
    assert done.json["cost"] == pytest.approx(0.0024)


async def test_a_run_that_was_killed_counts_what_it_had_and_what_it_asks_again(shell: Shell) -> None:
    slow = {"agent": "web", "stall": 600}
    quick = {"agent": "web", "text": "42", "usage": {"input": 7}}
    async with serve(respond_by_path({"/": WEB_PAGE})) as web:
        first = call_line("WebFetch", url=web.url("/"), prompt="Which?") | {"usage": {"input": 100}}
        lines = [first, say_line("Done.") | {"usage": {"input": 1}}]
        model = shell.write_script(*lines, slow, quick)
        more = ["--permission-mode", "bypassPermissions", "--allow-host", web.authority, "--session", "s"]
        more += ["--builtin-tools", "WebFetch"]
        running = await to_thread(shell.start_run, "Go.", *more, model=model, agent="assistant")
        await to_thread(running.read_until, "tool.started")
        running.process.kill()
        await to_thread(running.wait_result)
        shell.write_script(*lines, quick)
        await to_thread(shell.vaka, "run", "--resume", *more, "--model", model)
    log = shell.events("s")
    assert [event["data"]["usage"]["input"] for event in log if event["type"] == "usage"] == [100, 7, 1]
    assert log[-1]["data"]["usage"]["input"] == 108
