"""The page of tokens and cost."""

import asyncio

from playwright.async_api import expect

from tests.e2e.conftest import ConsoleServer, OpenConsole
from tests.e2e.demo_server import FIRST


async def test_a_model_is_shown_once_whatever_the_provider_calls_it(
    server: ConsoleServer, open_console: OpenConsole
) -> None:
    """The model reports a dated name at the end of an answer, and none when it is stopped before."""
    whole = await server.run_turn("whole", "tides", background=True)
    await asyncio.to_thread(server.gate.write_text, "go on")
    await server.post(f"/sessions/whole/turns/{whole['key']}/wait")
    await server.run_turn("stopped", "tides", background=True)
    async with open_console(server) as console:
        page = console.page
        await console.open("/chat/stopped")
        await expect(page.locator(".message.assistant .markdown")).to_have_text(FIRST.strip())
        await page.get_by_role("button", name="Stop").click()
        await expect(page.locator(".turn-foot")).to_contain_text("interrupted")
        await console.open("/usage")
        rows = page.get_by_role("region", name="Usage by model").get_by_role("row")
        await expect(rows).to_have_count(2)  # the head, and one model
        await expect(rows.last).to_contain_text("gated")
        assert {row["model"] for row in (await server.get("/usage"))["data"]} == {"gated"}
        assert (await server.get("/stats"))["calls"] == 2
        console.check()
