"""The rules that approvals have stored, on the page of settings."""

from playwright.async_api import expect

from tests.e2e.conftest import ConsoleServer, OpenConsole
from tests.e2e.screens import find_problems, visit_screens


async def test_a_remembered_rule_is_shown_and_taken_back(server: ConsoleServer, open_console: OpenConsole) -> None:
    await server.run_turn("first", "fetcher", background=True)
    [decision] = (await server.get("/approvals"))["data"]
    await server.post(f"/approvals/{decision['id']}/resolve", decision="approve", remember={"scope": "user"})
    await server.post(f"/sessions/first/turns/{decision['turn']}/wait")
    problems: list[str] = []
    async with open_console(server) as console:
        page = console.page
        await console.open("/settings")
        panel = page.get_by_role("region", name="Remembered rules")
        rule = panel.get_by_role("row").last
        for text in ("WebFetch(domain:127.0.0.1)", "all folders", "alice"):
            await expect(rule).to_contain_text(text)
        async for screen in visit_screens(page):
            problems += await find_problems(page, screen)
        await panel.get_by_label("Owner of the rules").fill("another")
        await page.keyboard.press("Enter")
        await expect(panel).to_contain_text("No approval for the project or the user is remembered.")
        await panel.get_by_label("Owner of the rules").fill("")
        await page.keyboard.press("Enter")
        await panel.get_by_role("button", name="Remove").click()
        await expect(panel).to_contain_text("No approval for the project or the user is remembered.")
        assert "\n".join(problems) == ""
        console.check()
    assert (await server.get("/rules"))["data"] == []
    assert (await server.run_turn("second", "fetcher"))["status"] == "waiting"
