"""Servers over HTTP: both protocol eras, the older transport, headers, and sessions that expire."""

import base64
import itertools
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

import vaka
from tests.cli.chat.chat_in_process import chat_in_process
from tests.mcp.http_servers import ForgetfulServer, TokenServer, library_server, serving
from tests.mcp.test_servers_in_turns import answering, bodies, offered
from tests.runtime.runtime_fixtures import agent, check_log, read_log, results_by_call, runtime
from vaka.core.types.message import Text, UserMessage
from vaka.core.types.monitor import McpChanged
from vaka.core.types.progress import ToolOutputDelta
from vaka.runtime.options import Project
from vaka.stores.memory import MemoryStore
from vaka.testing.models import ScriptedModel, call, calls, say


async def test_a_server_of_the_newest_protocol_is_used_with_all_it_has() -> None:
    model = ScriptedModel(
        calls(call("mcp__lib__add", a=1, b=2), call("mcp__lib__report"), call("mcp__lib__where")),
        call("mcp__lib__grow"),
        call("ListMcpResources"),
        call("ReadMcpResource", server="lib", uri="note://one"),
        call("mcp__lib__more"),
        say("Done."),
    )
    store = MemoryStore()
    allow = ["mcp__lib", "ListMcpResources", "ReadMcpResource"]
    async with (
        serving(library_server().streamable_http_app()) as url,
        runtime(
            store, project=Project(mcp={"lib": {"url": f"{url}/mcp"}}), permissions=vaka.Permissions(allow=allow)
        ) as rt,
        answering(rt, ["Hilo"]),
    ):
        session = await rt.open(agent(model), id="s")
        live = [event async for event in session.stream("/mcp__lib__greet Ada 'very kind'")]
        (status,) = rt.mcp_status()
    log = await read_log(store, "s")
    check_log(log)
    assert (status.state, status.protocol) == ("ready", "2026-07-28")
    found = results_by_call(log)
    added, reported, where, grown, listed, read, more = (found[key] for key in sorted(found))
    assert (added.text, added.value) == ("3", {"result": 3})
    assert (reported.text, where.text, grown.text, more.text) == ("done", "{'city': 'Hilo'}", "grown", "more")
    assert [(item["server"], item["uri"]) for item in listed.value] == [("lib", "note://one")]
    assert read.text == "[resource note://one]\nremember"
    assert "".join(e.data.text for e in live if isinstance(e.data, ToolOutputDelta)) == "[1/2] half\n"
    assert "mcp__lib__more" not in offered(model, 1)
    assert [body.change for body in bodies(log, McpChanged)] == ["ready", "tools"]
    first = model.prompts[0].messages[0]
    assert isinstance(first, UserMessage)
    assert first.content == (Text(text="Say something very kind to Ada."),)


async def test_a_prompt_of_a_server_is_a_command_of_the_chat() -> None:
    model = ScriptedModel(say("Hello, Ada."))
    async with (
        serving(library_server().streamable_http_app()) as url,
        runtime(project=Project(mcp={"lib": {"url": f"{url}/mcp"}}), agent=agent(model)) as rt,
        chat_in_process(rt) as chat,
    ):
        await chat.say("/mcp__lib__greet Ada")
        await chat.expect("Hello, Ada.")
    first = model.prompts[0].messages[0]
    assert isinstance(first, UserMessage)
    assert first.content == (Text(text="Say something kind to Ada."),)


async def test_a_server_of_the_older_transport_is_found_behind_the_type_http() -> None:
    model = ScriptedModel(call("mcp__lib__add", a=1, b=2), say("Done."))
    store = MemoryStore()
    async with (
        serving(library_server().sse_app()) as url,
        runtime(
            store,
            project=Project(mcp={"lib": {"type": "http", "url": f"{url}/sse"}}),
            permissions=vaka.Permissions(allow=["mcp__lib"]),
        ) as rt,
    ):
        await (await rt.open(agent(model), id="s")).run("Go.")
        (status,) = rt.mcp_status()
    assert status.state == "ready"
    assert [result.text for result in results_by_call(await read_log(store, "s")).values()] == ["3"]


async def test_an_expired_session_is_opened_again_and_only_a_safe_call_is_repeated() -> None:
    server = ForgetfulServer()

    @vaka.tool(effect="read")
    def forget() -> str:
        """Let the server forget its sessions."""
        server.forget()
        return "forgotten"

    names = [
        "mcp__f__act",
        "forget",
        "mcp__f__look",
        "forget",
        "mcp__f__act",
        "mcp__f__act",
        "mcp__f__drop",
        "mcp__f__act",
    ]
    model = ScriptedModel(*(call(name) for name in names), say("Done."))
    store = MemoryStore()
    async with serving(server.app) as url:
        mcp = {"f": {"type": "http", "url": f"{url}/mcp", "headers": {"X-Key": "the key"}}}
        async with runtime(store, project=Project(mcp=mcp), permissions=vaka.Permissions(allow=["mcp__f"])) as rt:
            await (await rt.open(agent(model, forget), id="s")).run("Go.")
    log = await read_log(store, "s")
    texts = [result.text for result in results_by_call(log).values() if result.text != "forgotten"]
    verify = "verify whether it happened before you repeat it"
    assert texts == [
        "session 1",
        "session 2",
        "mcp__f__act: the server has ended the session, the call was not repeated",
        "session 3",
        f"mcp__f__drop: the connection ended, the call was not repeated; {verify}",
        "session 4",
    ]
    assert server.calls == ["act", "look", "act", "drop", "act"]
    assert {headers.get("x-key") for headers in server.headers} == {"the key"}


async def test_a_response_without_an_end_is_not_read_whole() -> None:
    async def flood(_: Request) -> StreamingResponse:
        pieces = (b"[" * (1 << 20) for _ in itertools.count())
        return StreamingResponse(pieces, media_type="application/json")

    model = ScriptedModel(say("Done."))
    async with (
        serving(Starlette(routes=[Route("/mcp", flood, methods=["POST"])])) as url,
        runtime(project=Project(mcp={"f": {"type": "http", "url": f"{url}/mcp", "timeoutSeconds": 60}})) as rt,
    ):
        session = await rt.open(agent(model), id="s")
        assert (await session.run("Go.")).text == "Done."
        (status,) = rt.mcp_status()
    assert (status.state, "a message that is too large" in status.reason) == ("failed", True)


async def test_a_server_that_wants_other_credentials_says_so() -> None:
    async def refuse(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            for answer in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{answer}.complete"})
            return
        await send({"type": "http.response.start", "status": 401, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async with serving(refuse) as url:
        headers = {"Authorization": "Bearer secret-token"}
        async with runtime(
            project=Project(mcp={"x": {"url": f"{url}/mcp", "headers": headers, "required": True}})
        ) as rt:
            session = await rt.open(agent(ScriptedModel(say("Done."))), id="s")
            with pytest.raises(vaka.TurnError, match="HTTP 401: the server wants other credentials"):
                await session.run("Go.")


async def test_a_program_gets_an_access_token_with_its_own_credentials() -> None:
    server = TokenServer(library_server().streamable_http_app())
    model = ScriptedModel(call("mcp__lib__add", a=1, b=2), say("Done."))
    store = MemoryStore()
    async with serving(server) as url:
        server.address = url
        oauth = {"clientId": "vaka", "clientSecret": "very secret", "issuer": url}
        async with runtime(
            store,
            project=Project(mcp={"lib": {"url": f"{url}/mcp", "oauth": oauth}}),
            permissions=vaka.Permissions(allow=["mcp__lib"]),
        ) as rt:
            await (await rt.open(agent(model), id="s")).run("Go.")
    assert [result.text for result in results_by_call(await read_log(store, "s")).values()] == ["3"]
    assert server.credentials == [f"Basic {base64.b64encode(b'vaka:very%20secret').decode()}"]
