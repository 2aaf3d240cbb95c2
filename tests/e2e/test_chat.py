"""The chat of the console, in a browser, against a server in a process of its own."""

import asyncio
import re

from playwright.async_api import Route, expect

from tests.e2e.conftest import ConsoleServer, OpenConsole
from tests.e2e.demo_server import FIRST, REST

WHOLE = (FIRST + REST).strip()


async def test_a_killed_server_and_a_reload_lose_and_repeat_nothing(
    server: ConsoleServer, open_console: OpenConsole
) -> None:
    async with open_console(server) as console:
        page = console.page
        await console.open("/chat?new=1&agent=tides")
        await page.get_by_label("Message", exact=True).fill("When is low tide?")
        await page.keyboard.press("Enter")
        answer = page.locator(".message.assistant .markdown")
        await expect(answer).to_have_text(FIRST.strip())
        await expect(page.locator(".reasoning")).to_contain_text("I think before I speak.")

        await page.reload()
        await expect(answer).to_have_text(FIRST.strip())
        await expect(page.locator(".reasoning")).to_contain_text("I think before I speak.")
        console.check()

        await server.kill()
        pill = page.locator(".pill")
        await expect(pill).to_have_text(re.compile("reconnecting|offline"))
        await expect(answer).to_have_text(FIRST.strip())
        await server.start()
        await expect(pill).to_have_text("live")
        await asyncio.to_thread(server.gate.write_text, "go on")
        await expect(answer).to_have_text(WHOLE)
        await expect(page.locator(".message.user")).to_have_count(1)
        await expect(page.locator(".turn-foot")).to_contain_text("completed")
        session = page.url.rpartition("/")[2]
        turns = (await server.get(f"/sessions/{session}/turns"))["data"]
        assert [turn["text"].strip() for turn in turns] == [WHOLE]
        assert console.requests_elsewhere == []


async def test_a_stream_is_drawn_as_the_whole_text_is_and_survives_an_offline_browser(
    server: ConsoleServer, open_console: OpenConsole
) -> None:
    async with open_console(server) as console:
        page = console.page
        await console.open("/chat?new=1&agent=guide")
        await page.get_by_label("Message", exact=True).fill("How do we get to Hilo?")
        await page.get_by_role("button", name="Send the message").click()
        await expect(page.locator(".turn-foot")).to_contain_text("completed")
        drawn = "() => [...document.querySelectorAll('.markdown')].map(each => each.innerText)"
        streamed = await page.evaluate(drawn)
        assert "Two ways to Hilo" in streamed[-1]
        await page.reload()
        await expect(page.locator(".turn-foot")).to_contain_text("completed")
        assert await page.evaluate(drawn) == streamed
        console.check()

        await page.context.set_offline(True)
        await expect(page.locator(".pill")).to_have_text(re.compile("reconnecting|offline"))
        assert await page.evaluate(drawn) == streamed
        await page.context.set_offline(False)
        await expect(page.locator(".pill")).to_have_text("live")

        await page.get_by_role("button", name="Summarize older messages").click()
        compaction = page.locator("details", has_text="context compacted on request")
        await compaction.locator("summary").click()
        await expect(compaction).to_contain_text("There are two roads to Hilo.")
        assert console.requests_elsewhere == []


async def test_a_message_that_is_sent_before_the_agents_are_known_reaches_the_first_one(
    server: ConsoleServer, open_console: OpenConsole
) -> None:
    arrived, released = asyncio.Event(), asyncio.Event()

    async def hold(route: Route) -> None:
        arrived.set()
        await released.wait()
        await route.continue_()

    async with open_console(server) as console:
        page = console.page
        await page.route("**/api/v1/agents", hold)
        await console.open("/chat?new=1")
        await arrived.wait()
        message = page.get_by_label("Message", exact=True)
        await message.fill("Is anyone here?")
        await message.press("Enter")
        released.set()
        await expect(page.locator(".message.user")).to_contain_text("Is anyone here?")
        console.check()


async def test_a_running_turn_takes_more_messages_and_stops(server: ConsoleServer, open_console: OpenConsole) -> None:
    async with open_console(server) as console:
        page = console.page
        await console.open("/chat?new=1&agent=tides")
        message = page.get_by_label("Message", exact=True)
        await message.fill("When is low tide?")
        await message.press("Enter")
        await expect(page.locator(".message.assistant .markdown")).to_have_text(FIRST.strip())
        await message.fill("And tomorrow?")
        await message.press("Control+Enter")
        await expect(page.locator(".message.user.queued")).to_contain_text("And tomorrow?")
        await page.get_by_role("button", name="Stop").click()
        await expect(page.locator(".turn-foot").first).to_contain_text(re.compile("interrupted|cancelled"))
        await page.get_by_label("Rename the session").click()
        await page.get_by_label("Title of the session").fill("Tides of the week")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", name="Tides of the week")).to_be_visible()
        console.check()


async def test_a_page_out_of_sight_holds_no_stream_and_catches_up(
    server: ConsoleServer, open_console: OpenConsole
) -> None:
    show = (
        "hidden => { Object.defineProperty(document, 'hidden', {value: hidden, configurable: true});"
        " document.dispatchEvent(new Event('visibilitychange')); }"
    )
    turn = await server.run_turn("seen", "tides", background=True)
    async with open_console(server) as console:
        page = console.page
        await console.open("/chat/seen")
        answer = page.locator(".message.assistant .markdown")
        await expect(answer).to_have_text(FIRST.strip())
        await page.evaluate(show, True)
        await asyncio.to_thread(server.gate.write_text, "go on")
        await server.post(f"/sessions/seen/turns/{turn['key']}/wait")
        await expect(answer).to_have_text(FIRST.strip())
        await page.evaluate(show, False)
        await expect(answer).to_have_text(WHOLE)
        console.check()


async def test_a_long_session_begins_with_its_newest_turns(server: ConsoleServer, open_console: OpenConsole) -> None:
    for number in range(33):
        await server.run_turn("long", "broken", f"question {number}")
    async with open_console(server) as console:
        page = console.page
        await console.open("/chat/long")
        questions = page.locator(".message.user")
        await expect(questions.last).to_have_text("question 32")
        await expect(questions).to_have_count(30)
        await page.get_by_role("button", name="Show earlier turns").click()
        await expect(questions).to_have_count(33)
        await expect(questions.first).to_have_text("question 0")
        await expect(page.get_by_role("button", name="Show earlier turns")).to_have_count(0)
        console.check()


async def test_model_output_arguments_and_titles_are_shown_and_never_run(
    server: ConsoleServer, open_console: OpenConsole
) -> None:
    title = "<img src=x onerror=window.hacked=10><script>window.hacked=11</script>"
    await server.post("/sessions", id="hostile", agent="hostile", title=title)
    await server.run_turn("hostile", "hostile", "<script>window.hacked = 12</script>")
    async with open_console(server) as console:
        page = console.page
        for path in ("/chat/hostile", "/sessions", "/sessions/hostile/events?at=1.8", "/sessions/hostile/transcript"):
            await console.open(path)
            await expect(page.get_by_text("<img src=x onerror=").first).to_be_visible()
        await console.open("/chat/hostile")
        await page.locator("details.tool summary").first.click()
        await page.locator("details.reasoning summary").first.click()
        transcript = page.locator(".transcript")
        await expect(transcript).to_contain_text("<script>window.hacked = 1</script>")
        assert await transcript.locator("img, script, iframe, style, form, svg[onload], [onerror]").count() == 0
        links = await transcript.locator("a[href]").evaluate_all(
            "links => links.map(link => [link.getAttribute('href'), link.rel, link.target])"
        )
        outside = [each for each in links if not each[0].startswith("/console/")]
        assert {tuple(each) for each in outside} == {
            ("https://evil.example/pixel.png?q=secret", "noopener noreferrer", "_blank")
        }
        assert await page.evaluate("window.hacked") is None
        console.check()
