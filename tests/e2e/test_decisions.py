"""Approvals and questions in the console: in the chat, in the inbox, with the mouse and with the keyboard alone."""

from playwright.async_api import Page, expect

from tests.e2e.conftest import ConsoleServer, OpenConsole


async def result_of(server: ConsoleServer, session: str) -> str:
    """Return what the last call of a session gave."""
    events = (await server.get(f"/sessions/{session}/events?limit=1000&types=tool.completed,tool.failed"))["data"]
    return str(events[-1]["data"]["result"]["content"][0]["text"])


async def wait_for_card(page: Page) -> None:
    await expect(page.locator("[data-decision]").first).to_be_visible()


async def test_a_call_is_approved_edited_rejected_and_remembered(
    server: ConsoleServer, open_console: OpenConsole
) -> None:
    for name in ("approved", "edited", "rejected", "remembered"):
        await server.run_turn(name, "operator", background=True)
    async with open_console(server) as console:
        page = console.page
        await console.open("/chat/approved")
        await wait_for_card(page)
        await expect(page.locator("[data-decision]")).to_contain_text('"production"')
        await page.get_by_role("button", name="Approve once", exact=True).click()
        await expect(page.locator(".markdown").last).to_have_text("It is deployed.")
        assert await result_of(server, "approved") == "roads runs on production with 4 replicas"

        await console.open("/chat/edited")
        await page.get_by_role("button", name="Edit the arguments…").click()
        arguments = page.get_by_label("Edited arguments")
        await arguments.fill('{"service": "roads", "to": ')
        await expect(page.get_by_role("button", name="Approve with these arguments")).to_be_disabled()
        await arguments.fill('{"service": "roads", "to": "staging", "replicas": 1}')
        await page.get_by_role("button", name="Approve with these arguments").click()
        await expect(page.locator(".markdown").last).to_have_text("It is deployed.")
        assert await result_of(server, "edited") == "roads runs on staging with 1 replicas"

        await console.open("/chat/rejected")
        await page.get_by_role("button", name="Reject…").click()
        await page.get_by_label("What the model reads").fill("not on a Friday")
        await page.get_by_role("button", name="Reject the call").click()
        await expect(page.locator("[data-decision]")).to_have_count(0)
        assert "not on a Friday" in await result_of(server, "rejected")

        await console.open("/chat/remembered")
        await page.get_by_role("button", name="Approve & remember…").click()
        await expect(page.get_by_label("This rule will be stored")).to_have_value("deploy")
        await page.get_by_role("button", name="Approve and store the rule").click()
        await expect(page.locator(".markdown").last).to_have_text("It is deployed.")
        await page.get_by_label("Message", exact=True).fill("And the tides.")
        await page.keyboard.press("Enter")
        await expect(page.locator(".markdown").last).to_have_text("That one is deployed, too.")
        await expect(page.locator(".rail .count")).to_have_count(0)
        console.check()


async def test_the_inbox_works_with_the_keyboard_alone(server: ConsoleServer, open_console: OpenConsole) -> None:
    await server.run_turn("first", "operator", background=True)
    async with open_console(server) as console:
        page = console.page
        await console.open("/chat?new=1")
        await expect(page.locator(".rail .count")).to_have_text("1")
        await server.run_turn("second", "operator", background=True)
        await server.run_turn("asked", "asker", background=True)
        await expect(page.locator(".rail .count")).to_have_text("3")
        await page.keyboard.press("Control+k")
        await expect(page.get_by_role("combobox", name="Search pages")).to_be_focused()
        await page.keyboard.type("approvals")
        await page.keyboard.press("Enter")
        selected = page.locator(".decision.selected")
        await expect(page.locator("[data-decision]")).to_have_count(3)
        await expect(selected).to_contain_text("first")
        await page.keyboard.press("j")
        await expect(selected).to_contain_text("second")
        await page.keyboard.press("r")
        await expect(page.get_by_label("What the model reads")).to_be_focused()
        await page.keyboard.type("no")
        await page.keyboard.press("Tab")
        await page.keyboard.press("Enter")
        await expect(page.locator("[data-decision]")).to_have_count(2)
        assert "no" in await result_of(server, "second")
        await page.keyboard.press("k")
        await page.keyboard.press("k")
        await page.keyboard.press("a")
        await expect(page.locator("[data-decision]")).to_have_count(1)
        await page.get_by_role("button", name="saddle road").press("Enter")
        await expect(page.get_by_text("Nothing waits for you")).to_be_visible()
        await expect(page.locator(".rail .count")).to_have_count(0)
        await page.keyboard.press("Shift+?")
        await expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
        await page.keyboard.press("Escape")
        await page.keyboard.press("g")
        await page.keyboard.press("s")
        await expect(page.get_by_role("heading", name="Sessions")).to_be_visible()
        console.check()


async def test_a_call_that_waits_for_a_client_is_no_approval(server: ConsoleServer, open_console: OpenConsole) -> None:
    tool = {"name": "locate", "parameters": {"type": "object", "properties": {"exact": {"type": "boolean"}}}}
    await server.post(
        "/sessions/left/turns", input="Where am I?", agent="locator", client_tools=[tool], background=True
    )
    async with open_console(server) as console:
        page = console.page
        await console.open("/chat/left")
        card = page.get_by_role("article", name="Waiting for a client")
        await expect(card).to_be_visible()
        await expect(page.locator("details.tool")).to_contain_text("waiting for a client")
        await expect(page.locator(".turn-foot")).to_contain_text("waiting for a client")
        await expect(page.locator(".rail .count")).to_have_count(0)
        await console.open("/approvals")
        await expect(page.get_by_text("Nothing waits for you")).to_be_visible()
        await console.open("/chat/left")
        await card.get_by_label("The result").fill("in Hilo")
        await card.get_by_role("button", name="Send the result").click()
        await expect(page.locator(".markdown").last).to_have_text("Found.")
        console.check()
