"""Runs the Luau tests of the SDK against a fake of the services, on a blocking and a suspending host."""

import asyncio
import os
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

import pyluau
import vaka
from tests.luau.haivivi import suspending_host
from tests.luau.haivivi.blocking_host import BlockingHost
from tests.luau.haivivi.fake_services import serve_fake_services
from vaka.config.options import NetworkAccess, Scripts
from vaka.core.types.progress import ToolCompleted
from vaka.net.connector import Connector
from vaka.net.rules import NetworkRules
from vaka.testing.models import ScriptedModel, call, say

HERE = Path(__file__).parent
SENTENCE = re.compile(r'^test(_async)?\("(.+)", function\(\)$', re.MULTILINE)
LIBRARIES = [HERE.parents[2] / "src" / "vaka" / "luau" / "lib", HERE]
GUIDE = HERE.parents[2] / "docs" / "guides" / "haivivi.md"
RUN = 'local module, sentence = ...; require(module); require("testing").run(sentence)'
LIVE = ("HAIVIVI_KEY", "HAIVIVI_AUTH_URL", "HAIVIVI_PAL_URL", "HAIVIVI_AIOT_URL", "HAIVIVI_PROJECT_KEY")


def luau_cases(pattern: str, *, concurrent: bool) -> list[ParameterSet]:
    """Return the tests of some files; those that need concurrency only with ``concurrent``."""
    return [
        pytest.param(file.stem, sentence, id=f"{file.stem.removeprefix('test_')}: {sentence}")
        for file in sorted(HERE.glob(pattern))
        for needs_concurrency, sentence in SENTENCE.findall(file.read_text("utf-8"))
        if concurrent or not needs_concurrency
    ]


def environment(address: str) -> dict[str, str]:
    services = {f"HAIVIVI_{name.upper()}_URL": f"{address}/{name}" for name in ("auth", "pal", "aiot")}
    return {"HAIVIVI_ADDRESS": address, "HAIVIVI_KEY": "key-of-ada", **services}


async def run_suspending(env: Mapping[str, str], rules: NetworkRules, module: str, sentence: str) -> list[str]:
    async with Connector(rules) as network:
        return await suspending_host.run_suspending_script(LIBRARIES, env, network, RUN, module, sentence)


async def run_blocking(env: Mapping[str, str], module: str, sentence: str) -> None:
    host = BlockingHost(LIBRARIES, env)
    try:
        await asyncio.to_thread(host.run, RUN, module, sentence)
    finally:
        host.close()


@pytest.mark.parametrize(("module", "sentence"), luau_cases("test_*.luau", concurrent=False))
async def test_the_sdk_works_where_calls_block(module: str, sentence: str) -> None:
    async with serve_fake_services() as address:
        await run_blocking(environment(address), module, sentence)


@pytest.mark.parametrize(("module", "sentence"), luau_cases("test_*.luau", concurrent=True))
async def test_the_sdk_works_where_calls_suspend(module: str, sentence: str) -> None:
    async with serve_fake_services() as address:
        await run_suspending(environment(address), NetworkRules(trusted=("127.0.0.1",)), module, sentence)


async def test_a_tool_keeps_its_session_until_the_stored_key_is_deleted() -> None:
    source = """
    local haivivi = require("haivivi")
    function invoke(ctx, args)
        if args.delete then __builtin.kvs_del("haivivi:auth:session") end
        local client = haivivi.auth.new_client(__builtin.env("HAIVIVI_AUTH_URL"), __builtin.env("HAIVIVI_KEY"))
        local stored = client.session ~= nil
        local token = client:get_token()
        assert(token == client:get_token() and client:http_client() ~= nil)
        return `{stored} {token}`
    end"""
    model = ScriptedModel(call("auth"), call("auth", again=1), call("auth", delete=True), say("done"))
    who = vaka.Agent("clerk", model=model, tools=[vaka.LuauTool(source, name="auth")])
    async with (
        serve_fake_services() as address,
        vaka.Runtime(
            agent=who, network=NetworkAccess(trusted_hosts=("127.0.0.1",)), scripts=Scripts(env=environment(address))
        ) as rt,
    ):
        events = [event async for event in (await rt.open()).stream("Go.")]
    results = [event.data.result for event in events if isinstance(event.data, ToolCompleted) and not event.path]
    assert [result.text for result in results] == [
        "false token-of-ada-1",
        "true token-of-ada-1",
        "false token-of-ada-2",
    ]


async def test_a_renewal_that_fails_in_the_background_is_logged() -> None:
    async with serve_fake_services() as address:
        sentence = "a renewal that fails is not tried again at once"
        logged = await run_suspending(environment(address), NetworkRules(trusted=("127.0.0.1",)), "test_auth", sentence)
    assert logged == ["haivivi: the token could not be renewed: HTTP 500"] * 2


async def test_the_luau_of_the_guide_runs() -> None:
    source = "\n".join(re.findall(r"^```luau\n(.*?)^```$", GUIDE.read_text("utf-8"), re.MULTILINE | re.DOTALL))
    async with serve_fake_services() as address, Connector(NetworkRules(trusted=("127.0.0.1",))) as network:
        assert await suspending_host.run_suspending_script(LIBRARIES, environment(address), network, source) == [
            "Otto the Otter",
            "月亮",
        ]


@pytest.mark.parametrize(("module", "sentence"), luau_cases("live.luau", concurrent=True))
async def test_the_live_tests_pass_against_the_fake_services(module: str, sentence: str) -> None:
    async with serve_fake_services() as address:
        await run_suspending(environment(address), NetworkRules(trusted=("127.0.0.1",)), module, sentence)


@pytest.mark.skipif(not os.environ.get("HAIVIVI_KEY"), reason="the real services need a key: set HAIVIVI_KEY")
@pytest.mark.parametrize(("module", "sentence"), luau_cases("live.luau", concurrent=True))
async def test_the_live_tests_pass_against_the_real_services(module: str, sentence: str) -> None:
    env = {name: os.environ[name] for name in LIVE if os.environ.get(name)}
    await run_suspending(env, NetworkRules(), module, sentence)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            'require("testing").equal({ a = { 1 } }, { a = { 1, 2 } })',
            "expected {a = {1 = 1, 2 = 2}}, got {a = {1 = 1}}",
        ),
        ('require("testing").raises("this", function() error("that") end)', 'expected an error with "this", got "'),
        ('require("testing").run("the sea is dry")', 'there is no test "the sea is dry"'),
    ],
)
async def test_a_failed_expectation_is_an_error(source: str, message: str) -> None:
    host = BlockingHost(LIBRARIES, {})
    with pytest.raises(pyluau.LuauError, match=re.escape(message)):
        host.run(source)
    host.close()
