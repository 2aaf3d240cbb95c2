"""The panel about a session: child agents by name, and a button that opens the panel where it has no room."""

from playwright.async_api import expect

from tests.e2e.conftest import ConsoleServer, OpenConsole
from tests.e2e.screens import find_problems, visit_screens


async def test_a_child_agent_is_shown_by_its_name(server: ConsoleServer, open_console: OpenConsole) -> None:
    await server.run_turn("trip", "guide", "How do we get to Hilo?")
    async with open_console(server) as console:
        page = console.page
        await console.open("/chat/trip")
        await expect(page.locator(".subagent .kind-subagent")).to_have_text("scout")
        panel = page.get_by_role("complementary", name="About this session")
        await expect(panel.get_by_role("listitem").filter(has_text="scout")).to_contain_text("completed")
        await console.open("/sessions/trip/trace")
        await expect(page.locator(".span-row").filter(has_text="scout").first).to_be_visible()
        await expect(page.locator(".span-row").filter(has_text="agent-")).to_have_count(0)
        console.check()


async def test_a_button_opens_the_panel_of_the_session_where_it_has_no_room(
    server: ConsoleServer, open_console: OpenConsole
) -> None:
    await server.run_turn("trip", "guide", "How do we get to Hilo?")
    problems: list[str] = []
    async with open_console(server) as console:
        page = console.page
        await console.open("/chat/trip")
        button = page.get_by_role("button", name="About this session")
        panel = page.get_by_role("complementary", name="About this session")
        await expect(panel).to_be_visible()
        async for screen in visit_screens(page):
            if screen.startswith("1440"):
                await expect(button).to_be_hidden()
                await expect(panel).to_be_visible()
                problems += await find_problems(page, screen)
                continue
            await expect(panel).to_be_hidden()
            await button.press("Enter")
            await expect(panel.get_by_role("button", name="Close")).to_be_focused()
            await expect(panel.get_by_role("button", name="Rename the session")).to_be_visible()
            problems += await find_problems(page, screen)
            await page.keyboard.press("Escape")
            await expect(panel).to_be_hidden()
            await expect(button).to_be_focused()
        await page.set_viewport_size({"width": 768, "height": 800})
        await page.get_by_role("log").press("i")
        await panel.get_by_role("button", name="Close").click()
        await expect(panel).to_be_hidden()
        assert "\n".join(problems) == ""
        console.check()
