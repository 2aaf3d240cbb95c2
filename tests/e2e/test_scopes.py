"""The console with a key that may only read: what it cannot do is disabled, with the reason, before a person tries."""

from playwright.async_api import Locator, expect

from tests.e2e.conftest import ConsoleServer, OpenConsole
from tests.e2e.screens import find_problems, visit_screens


async def expect_refused(button: Locator, scope: str) -> None:
    """Fail unless a button is disabled, says which scope it needs, and can be reached with the keyboard."""
    await expect(button).to_be_disabled()
    await expect(button).to_have_attribute("title", f"Your key does not have the scope {scope}")
    await button.focus()
    await expect(button).to_be_focused()
    await button.press("Enter")


async def test_a_key_that_may_only_read_gets_a_composer_and_actions_that_say_so(
    server: ConsoleServer, open_console: OpenConsole
) -> None:
    await server.run_turn("done", "operator", background=True)
    [decision] = (await server.get("/approvals"))["data"]
    await server.post(f"/approvals/{decision['id']}/resolve", decision="approve")
    await server.post(f"/sessions/done/turns/{decision['turn']}/wait")
    await server.post("/sessions/done/checkpoints", label="good")
    async with open_console(server, key="reader") as console:
        page = console.page
        await console.open("/chat/done")
        message = page.get_by_label("Message", exact=True)
        await expect(message).not_to_be_editable()
        await expect(message).to_have_accessible_description(
            "You can read this, but not write. Your key does not have the scope runs:write; "
            "vaka keys create --scope runs:read --scope runs:write makes a key with it."
        )
        for name in ("Send the message", "Fork after this turn", "Rename the session", "Delete the session"):
            await expect_refused(page.get_by_role("button", name=name), "runs:write")
        await expect_refused(page.get_by_role("button", name="Summarize older messages"), "runs:write")
        await console.open("/sessions/done/events?at=1.3")
        await expect_refused(page.get_by_role("button", name="Fork here"), "runs:write")
        await page.keyboard.press("f")
        await expect(page.get_by_text("Your key does not have the scope runs:write")).to_be_visible()
        await console.open("/sessions/done/checkpoints")
        for name in ("Fork", "Restore"):
            await expect_refused(page.get_by_role("button", name=name, exact=True), "runs:write")
        await expect(page.get_by_label("Label of a new checkpoint")).not_to_be_editable()
        await console.open("/agents")
        await expect_refused(page.get_by_role("button", name="Read definitions again"), "operator")
        await console.open("/agents/operator/deploy")
        await expect_refused(page.get_by_role("button", name="Run"), "tools:execute")
        await console.open("/settings")
        await expect(page.get_by_text("The configuration of the server is not shown")).to_be_visible()
        assert (await server.get("/sessions"))["data"][0]["title"] != ""
        assert [session["id"] for session in (await server.get("/sessions"))["data"]] == ["done"]
        console.check()


async def test_a_key_that_may_only_read_sees_approvals_and_cannot_decide_them(
    server: ConsoleServer, open_console: OpenConsole
) -> None:
    for session in ("first", "second"):
        await server.run_turn(session, "operator", background=True)
    await server.run_turn("asked", "asker", background=True)
    async with open_console(server, key="reader") as console:
        page = console.page
        await console.open("/approvals")
        await expect(page.locator("[data-decision]")).to_have_count(3)
        card = page.locator("[data-decision]").first
        await expect(card).to_contain_text("Your key does not have the scope approvals:write")
        for name in ("Approve once", "Approve & remember…", "Edit the arguments…", "Reject…"):
            await expect_refused(card.get_by_role("button", name=name, exact=True), "approvals:write")
        await expect_refused(page.get_by_role("button", name="Approve 2 equal calls"), "approvals:write")
        await expect_refused(page.get_by_role("button", name="coast road"), "approvals:write")
        for key in ("a", "r", "m", "e"):
            await page.keyboard.press(key)
        await expect(page.locator("[data-decision]")).to_have_count(3)
        await expect(page.get_by_label("What the model reads")).to_have_count(0)
        problems: list[str] = []
        for path in ("/approvals", "/chat/first"):
            await console.open(path)
            await expect(page.locator("[data-decision]").first).to_be_visible()
            async for screen in visit_screens(page):
                problems += await find_problems(page, f"{path} at {screen}")
        assert "\n".join(problems) == ""
        await console.open("/chat/first")
        await expect_refused(page.get_by_role("button", name="Stop"), "runs:write")
        await page.get_by_role("log").press("Escape")
        assert (await server.get("/sessions/first"))["status"] == "waiting"
        console.check()
