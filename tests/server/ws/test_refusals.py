"""What the WebSocket refuses, and the codes with which it closes."""

import asyncio
import json

import pytest
from websockets.exceptions import InvalidStatus

from tests.server.conftest import PRINCIPALS, Serve, Served
from tests.server.test_app import Scripted
from tests.server.ws.conftest import Connect
from vaka.core.types.ids import SessionId
from vaka.runtime.runtime import Runtime
from vaka.server.app import open_service
from vaka.server.kit.principal import Principal
from vaka.server.listen import StoppableServer, open_socket
from vaka.server.settings import ServerSettings
from vaka.testing import say


async def test_a_foreign_origin_or_host_is_refused_before_the_upgrade(
    serve: Serve, scripted: Scripted, client: Connect
) -> None:
    async with serve([scripted(say("Hi."))]) as served:
        for options in ({"headers": {"Origin": "https://evil.example"}}, {"host": "evil.example"}):
            with pytest.raises(InvalidStatus, match="HTTP 403"):
                async with client(served, **options):
                    raise AssertionError("the server has accepted it")
        async with client(served, headers={"Origin": served.url}) as socket:
            await socket.request("ping")


async def test_another_subprotocol_is_a_protocol_error(serve: Serve, scripted: Scripted, client: Connect) -> None:
    async with serve([scripted(say("Hi."))]) as served:
        for protocols in ((), ("graphql-ws",)):
            async with client(served, protocols=protocols) as socket:
                assert await socket.closed() == (4400, "the subprotocol must be agent.v1+json")
        async with client(served, protocols=("graphql-ws", "agent.v1+json")) as socket:
            assert socket.socket.subprotocol == "agent.v1+json"


async def test_frames_that_are_not_requests_close_the_connection_after_earlier_replies(
    serve: Serve, scripted: Scripted, client: Connect
) -> None:
    frames: list[str | bytes] = [
        "x",
        "[]",
        '{"method": "ping"}',
        b'{"id": 1, "method": "ping"}',
        json.dumps({"id": "x" * 1_048_576}),
        json.dumps({"id": 1, "method": "hello", "params": {"versions": [7]}}),
    ]
    async with serve([scripted(say("Hi."))]) as served:
        for frame in frames:
            async with client(served) as socket:
                ping = await socket.send("ping")
                await socket.socket.send(frame)
                assert "result" in await socket.reply(ping)
                code, reason = await socket.closed()
                assert code == 4400
                assert reason


async def test_a_request_with_an_error_is_answered_and_the_connection_goes_on(
    serve: Serve, scripted: Scripted, client: Connect
) -> None:
    async with serve([scripted(say("Hi."))]) as served, client(served) as socket:
        assert (await socket.refused("fly"))["code"] == "unknown_method"
        error = await socket.refused("subscribe", session="s", afer="1.1")
        assert (error["code"], error["retryable"]) == ("invalid_params", False)
        assert "afer" in error["message"]
        assert (await socket.refused("turn.start", session="s", agent="unknown", input="x"))["code"] == "not_found"
        assert (await socket.refused("turn.start", session="s", agent="assistant", input=" "))[
            "code"
        ] == "invalid_input"
        await socket.request("ping")


async def test_a_token_may_come_as_the_first_message_and_be_renewed(
    serve: Serve, scripted: Scripted, client: Connect
) -> None:
    async with serve([scripted(say("Hi."))]) as served, client(served, "") as socket:
        await socket.request("hello")
        assert (await socket.refused("state.get", session="s"))["code"] == "unauthenticated"
        admitted = await socket.request("auth", token="alice")
        assert (admitted["principal"], admitted["namespace"]) == ("alice", "")
        assert "runs:write" in admitted["scopes"]
        assert (await socket.refused("state.get", session="s"))["code"] == "not_found"
        assert (await socket.request("auth", token="alice"))["principal"] == "alice"
        await socket.send("auth", token="bob")
        assert (await socket.closed())[0] == 4403


async def test_wrong_tokens_are_fatal(serve: Serve, scripted: Scripted, client: Connect) -> None:
    async with serve([scripted(say("Hi."))]) as served:
        async with client(served, "mallory") as socket:
            assert await socket.closed() == (4401, "a token is needed")
        async with client(served, "", query="?ticket=mallory") as socket:
            assert (await socket.closed())[0] == 4401
        async with client(served, "") as socket:
            await socket.send("auth", token="mallory")
            assert (await socket.closed())[0] == 4401


async def test_a_client_that_sends_no_token_is_closed(serve: Serve, scripted: Scripted, client: Connect) -> None:
    settings = ServerSettings(socket_auth_seconds=0.05)
    async with serve([scripted(say("Hi."))], settings=settings) as served, client(served, "") as socket:
        assert (await socket.closed())[0] == 4401


async def test_sessions_of_other_tenants_and_owners_do_not_exist(
    serve: Serve, scripted: Scripted, client: Connect
) -> None:
    async with serve([scripted(say("Hi."))]) as served:
        await served.service.create_session(PRINCIPALS["alice"], id="hers")
        for token in ("bob", "carol"):
            async with client(served, token) as socket:
                for method in ("state.get", "session.fork", "turn.cancel"):
                    assert (await socket.refused(method, session="hers"))["code"] == "not_found"
                refused = await socket.send("subscribe", session="hers")
                assert (await socket.reply(refused))["error"]["code"] == "not_found"
                assert (await socket.closed())[0] == 4404
        async with client(served) as socket:  # a client with another subscription goes on
            await socket.request("subscribe", session="hers")
            assert (await socket.refused("subscribe", session="nothing"))["code"] == "not_found"
            await socket.request("ping")


async def test_scopes_limit_what_a_connection_may_do(serve: Serve, scripted: Scripted, client: Connect) -> None:
    async with serve([scripted(say("Hi."))]) as served:
        await served.service.create_session(PRINCIPALS["alice"], id="hers")
        async with client(served, "reader") as socket:
            await socket.request("subscribe", session="hers")
            for method, params in (
                ("turn.start", {"session": "hers", "input": "x"}),
                ("session.fork", {"session": "hers"}),
                ("approval.resolve", {"id": "apr_1", "decision": "approve"}),
            ):
                error = await socket.refused(method, **params)
                assert (error["code"], error["data"]["status"]) == ("forbidden", 403)
        async with client(served, "carol") as socket:
            assert (await socket.refused("approval.resolve", id="apr_1", decision="approve"))["code"] == "forbidden"


async def test_the_numbers_of_connections_and_subscriptions_are_bounded(
    serve: Serve, scripted: Scripted, client: Connect
) -> None:
    settings = ServerSettings(max_streams=2, max_subscriptions=1)
    async with serve([scripted(say("Hi."))], settings=settings) as served:
        await served.service.create_session(PRINCIPALS["alice"], id="s")
        async with client(served) as first, client(served) as second:
            await first.request("ping")
            await second.request("ping")
            async with client(served) as third:
                assert (await third.closed())[0] == 4100
            await first.request("subscribe", session="s")
            error = await first.refused("subscribe", session="s")
            assert (error["code"], error["retryable"]) == ("too_many_subscriptions", True)
        async with client(served) as next_one:
            await next_one.request("ping")


async def test_a_silent_client_is_asked_twice_and_then_closed(
    serve: Serve, scripted: Scripted, client: Connect
) -> None:
    settings = ServerSettings(socket_heartbeat=0.05)
    async with serve([scripted(say("Hi."))], settings=settings) as served, client(served) as socket:
        await socket.control("ping")
        await socket.request("ping")  # an answer counts
        await socket.control("ping")
        assert (await socket.closed())[0] == 4101


async def test_a_server_that_stops_tells_its_clients_to_connect_again(
    serve: Serve, scripted: Scripted, client: Connect
) -> None:
    async with serve([scripted(say("Hi."))]) as served, client(served) as socket:
        await socket.request("turn.start", session="demo", agent="assistant", input="Hi.")
        await socket.request("subscribe", session="demo")
        await socket.until("turn.completed")
        served.service.drain()
        served.service.drain()  # again: nothing more happens
        drain = await socket.control("drain")
        assert 0 < drain["reconnect_after_ms"] <= 2000
        assert (await socket.closed())[0] == 4200
        assert len(served.service.streams) == 0


def count_tasks() -> int:
    return len(asyncio.all_tasks())


@pytest.mark.parametrize("cycles", [40, pytest.param(1000, marks=pytest.mark.exhaustive)])
async def test_clients_that_vanish_leave_nothing_behind(
    serve: Serve, scripted: Scripted, client: Connect, cycles: int
) -> None:
    async with serve([scripted(say("Hi."))]) as served:
        await served.service.create_session(PRINCIPALS["alice"], id="s")
        before = count_tasks()
        for number in range(cycles):
            async with client(served) as socket:
                session = "*" if number % 3 == 0 else "s"
                await socket.request("subscribe", session=session)
                if number % 2:
                    socket.socket.transport.abort()
        while count_tasks() > before or len(served.service.streams):  # noqa: ASYNC110  # tasks end without an event
            await asyncio.sleep(0)
        assert not served.service.runtime.hub.fanout_of(SessionId("s")).followers


async def test_a_token_that_is_revoked_ends_the_connection(serve: Serve, scripted: Scripted, client: Connect) -> None:
    settings = ServerSettings(credential_seconds=0.05)
    PRINCIPALS["guest"] = Principal(id="guest", key="guest", scopes=frozenset({"runs:read"}))
    async with serve([scripted(say("Hi."))], settings=settings) as served, client(served, "guest") as socket:
        await socket.request("ping")
        del PRINCIPALS["guest"]
        assert (await socket.closed())[0] == 4201


async def test_a_server_that_is_stopped_says_so_before_it_closes_connections(
    scripted: Scripted, client: Connect
) -> None:
    listener = open_socket("127.0.0.1", 0)
    async with Runtime(store="memory:") as runtime:
        service = await open_service(runtime, [scripted(say("Hi."))], insecure=True)
        server = StoppableServer(service)
        serving = asyncio.create_task(server.serve([listener]))
        served = Served(service, listener.getsockname()[1], server)
        async with client(served, "") as socket:
            await socket.request("turn.start", session="demo", agent="assistant", input="Hi.")
            await socket.request("subscribe", session="demo")
            await socket.until("turn.completed")
            server.should_exit = True
            assert (await socket.control("drain"))["reconnect_after_ms"] > 0
            assert (await socket.closed())[0] == 4200
        await serving
    listener.close()


async def test_a_client_that_comes_while_the_server_stops_is_sent_on(
    serve: Serve, scripted: Scripted, client: Connect
) -> None:
    async with serve([scripted(say("Hi."))]) as served:
        served.service.drain()
        async with client(served) as socket:
            await socket.control("drain")
            assert (await socket.closed())[0] == 4200
