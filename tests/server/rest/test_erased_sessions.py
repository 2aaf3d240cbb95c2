"""An erased session through the native API."""

from collections.abc import Callable

from tests.server.conftest import Serve
from tests.server.rest.test_turns import API, start
from vaka.agents.react import Agent
from vaka.testing import say

Scripted = Callable[..., Agent]


async def test_an_erased_session_is_read_and_cannot_be_continued(serve: Serve, scripted: Scripted) -> None:
    async with serve([scripted(say("Hello Kim."))]) as served, served.client() as client:
        await start(client, session="s", input="I am Kim.")
        await served.service.runtime.erase("s")
        found = await client.get(f"{API}/sessions/s")
        assert (found.status_code, found.json()["title"], found.json()["status"]) == (200, "", "closed")
        for address in ("events", "messages", "export", "turns", "stats", "checkpoints"):
            read = await client.get(f"{API}/sessions/s/{address}", headers={"Accept": "application/json"})
            assert (read.status_code, "Kim" in read.text) == (200, False), address
        refused = await client.post(f"{API}/sessions/s/turns", json={"input": "Who am I?"})
        assert (refused.status_code, refused.json()["code"]) == (410, "erased")
        assert (await client.delete(f"{API}/sessions/s")).status_code == 204
