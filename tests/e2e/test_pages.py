"""Every page of the console: silent, within its origin, accessible, and as wide as the screen."""

from typing import Any

import pytest
from playwright.async_api import expect

from tests.e2e.conftest import ConsoleServer, OpenConsole
from tests.e2e.large_trace import make_trace
from tests.e2e.screens import find_problems

PAGES = {
    "/chat/trip": ".turn-foot",
    "/chat/waiting": "[data-decision]",
    "/chat?new=1": ".composer",
    "/sessions": ".session-row:not(.head)",
    "/sessions/trip": ".turn-foot",
    "/sessions/trip/trace": ".span-row",
    "/sessions/trip/events?at=1.6": ".event-row",
    "/sessions/trip/checkpoints": "form",
    "/sessions/trip/replay": ".scrubber",
    "/traces": ".session-row:not(.head)",
    "/approvals": "[data-decision]",
    "/compare?a=trip&b=waiting": ".compare",
    "/usage": ".chart",
    "/agents": ".card",
    "/agents/operator/deploy": ".schema-form",
    "/settings": "table",
    "/nowhere": ".empty",
}
"""The pages, and what each has once it is drawn."""
SCREENS = [
    pytest.param({"viewport": {"width": 1440, "height": 900}, "color_scheme": "light"}, id="1440 px and light"),
    pytest.param({"viewport": {"width": 320, "height": 640}, "color_scheme": "dark"}, id="320 px and dark"),
    pytest.param(
        {"viewport": {"width": 1100, "height": 800}, "color_scheme": "dark"},
        id="1100 px and dark",
        marks=pytest.mark.exhaustive,
    ),
]


@pytest.mark.parametrize("screen", SCREENS)
async def test_every_page_is_silent_accessible_and_fits(
    server: ConsoleServer, open_console: OpenConsole, screen: dict[str, Any]
) -> None:
    await server.run_turn("trip", "guide", "How do we get to Hilo?")
    await server.run_turn("waiting", "operator", background=True)
    problems: list[str] = []
    async with open_console(server, **screen) as console:
        page = console.page
        for path, drawn in PAGES.items():
            await console.open(path)
            await expect(page.locator(drawn).first, path).to_be_visible()
            problems += await find_problems(page, path)
        for keys, name in (("Control+k", "Search and commands"), ("Shift+?", "Keyboard shortcuts")):
            await page.keyboard.press(keys)
            await expect(page.get_by_role("dialog", name=name)).to_be_visible()
            problems += await find_problems(page, name)
            await page.keyboard.press("Escape")
            await expect(page.get_by_role("dialog", name=name)).to_have_count(0)
        assert "\n".join(problems) == ""
        console.check()


async def test_without_a_login_the_console_says_how_to_get_one(
    server: ConsoleServer, open_console: OpenConsole
) -> None:
    async with open_console(server, key="") as console:
        page = console.page
        await console.open("/sessions")
        await expect(page.get_by_text("vaka keys link")).to_be_visible()
        await page.get_by_placeholder("ak_…").fill("wrong")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("alert")).to_have_text("Not signed in: a token is needed")
        await page.get_by_placeholder("ak_…").fill("guest")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("alert")).to_contain_text("the key does not have the scope runs:read")
        await page.get_by_placeholder("ak_…").fill("alice")
        await page.keyboard.press("Enter")
        await expect(page.get_by_text("No session yet")).to_be_visible()
        assert await page.evaluate("[sessionStorage.length, localStorage.length, document.cookie]") == [1, 0, ""]
        assert console.requests_elsewhere == []


async def test_a_trace_of_ten_thousand_spans_keeps_few_rows_and_finds_the_first_error(
    server: ConsoleServer, open_console: OpenConsole
) -> None:
    async with open_console(server) as console:
        page, trace = console.page, make_trace(10_000)
        await page.route("**/api/v1/traces/big/trn", lambda route: route.fulfill(json=trace))
        await console.open("/traces/big/trn")
        rows = page.locator(".span-row")
        await expect(rows.first).to_be_visible()
        assert await rows.count() < 100
        await page.get_by_role("button", name="first error").click()
        await expect(page.locator(".span-row[aria-selected=true]")).to_contain_text("weather")
        await expect(page.locator(".detail")).to_contain_text("error: lost")
        assert await rows.count() < 100
        await page.get_by_role("button", name="list").click()
        await page.get_by_label("Filter spans by name").fill("tool 3")
        await expect(page.locator(".filters")).to_contain_text("278 rows")
        await page.get_by_role("listbox").focus()
        await page.keyboard.press("End")
        await expect(page.locator(".span-row[aria-selected=true]")).to_be_visible()
        console.check()
