"""Fork at an event, go another way, compare both, and replay one."""

from playwright.async_api import expect

from tests.e2e.conftest import ConsoleServer, OpenConsole


async def test_a_fork_at_an_event_is_compared_with_its_origin_and_replayed(
    server: ConsoleServer, open_console: OpenConsole
) -> None:
    await server.run_turn("trip", "guide", "How do we get to Hilo?")
    turn = (await server.get("/sessions/trip/turns"))["data"][0]
    await server.run_turn("trip", "guide", "Thank you!")
    async with open_console(server) as console:
        page = console.page
        await console.open(f"/sessions/trip/events?at={turn['cursor']}")
        await page.get_by_role("button", name="Fork here").click()
        await expect(page.get_by_text("forked from trip")).to_be_visible()
        fork = page.url.rpartition("/")[2]
        await expect(page.locator(".message.user")).to_have_count(1)
        await page.get_by_label("Message", exact=True).fill("Many thanks, see you!")
        await page.keyboard.press("Enter")
        await expect(page.locator(".markdown").last).to_have_text("You are welcome. 🌺")

        await console.open("/chat/trip")
        await page.get_by_role("button", name="Fork after this turn").first.click()
        await expect(page.get_by_text("forked from trip")).to_be_visible()
        await expect(page.locator(".turn-foot")).to_contain_text("completed")
        await expect(page.locator(".markdown").last).to_contain_text("Two ways to Hilo")

        await console.open(f"/compare?a=trip&b={fork}")
        await expect(page.locator(".compare .both")).to_contain_text(f"forked at {turn['cursor']}")
        await expect(page.locator(".compare ins").first).to_have_text("Many")
        await expect(page.get_by_role("row", name="tool calls")).to_contain_text("±0")

        await console.open("/sessions/trip/replay")
        await page.get_by_label("Event").fill("4")
        await expect(page.locator(".message.user")).to_have_text("How do we get to Hilo?")
        await expect(page.locator(".tool")).to_have_count(0)
        await page.get_by_label("Event").press("End")
        await expect(page.locator(".markdown").last).to_have_text("You are welcome. 🌺")
        await console.open("/sessions/trip/checkpoints")
        await page.get_by_label("Label of a new checkpoint").fill("after the thanks")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("cell", name="after the thanks")).to_be_visible()
        console.check()
