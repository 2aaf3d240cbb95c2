"""The console of the installed server, in Chromium."""

import shutil
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect, sync_playwright

from tests.journeys.answers import PATIENCE, Pause, call, say
from tests.journeys.harbour import Harbour


@contextmanager
def open_browser() -> Generator[Page]:
    """Open a page of Chromium that fails on an error of its scripts or a request to another host."""
    chromium = shutil.which("chromium")
    assert chromium is not None, "Chromium is not installed: scripts/system.sh chromium"
    errors: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.set_default_timeout(PATIENCE * 1000)
        expect.set_options(timeout=PATIENCE * 1000)
        yield page
        browser.close()
    assert errors == []


def write_message(page: Page, text: str) -> None:
    """Type a message and send it, as soon as the page has its input."""
    page.get_by_label("Message", exact=True).fill(text)
    page.keyboard.press("Enter")


@pytest.fixture
def office(programs: Path, tmp_path: Path) -> Iterator[Harbour]:
    """A server of this story alone: its link works once."""
    with Harbour(tmp_path, programs) as harbour:
        yield harbour
        harbour.check()


def test_a_person_follows_the_link_asks_approves_and_reads_the_answer_as_it_grows(office: Harbour) -> None:
    pause = Pause()
    path = str(office.project.folder / "log.md")
    script = office.provider.script(
        "Keep a log.",
        call("Write", file_path=path, content="Day one.\n"),
        say("The log ", "has ", pause, "its first day."),
    )
    with open_browser() as page:
        page.goto(office.server.link)
        write_message(page, "Keep a log.")
        card = page.locator("[data-decision]")
        expect(card).to_contain_text("log.md")
        assert not (office.project.folder / "log.md").exists()
        card.get_by_role("button", name="Approve", exact=True).click()
        answer = page.locator(".message.assistant .markdown").last
        expect(answer).to_contain_text("The log")
        pause.open()
        expect(answer).to_have_text("The log has its first day.")
        page.reload()
        expect(page.locator(".message.assistant .markdown").last).to_have_text("The log has its first day.")
    office.project.expect_status("?? log.md")
    assert office.project.read("log.md") == "Day one.\n"
    assert len(script.requests) == 2


def test_a_browser_that_watches_a_killed_server_shows_the_finished_turn_after_the_restart(office: Harbour) -> None:
    pause = Pause()
    script = office.provider.script("Watch the sea.", say("A whale ", pause, "sank."), say("A whale came up."))
    with open_browser() as page:
        page.goto(office.server.link)
        write_message(page, "Watch the sea.")
        answer = page.locator(".message.assistant .markdown").last
        expect(answer).to_contain_text("A whale")
        pause.wait_reached()
        office.server.kill()
        with office.serve(port=office.server.port):
            expect(answer).to_have_text("A whale came up.")
            expect(page.locator(".message.user")).to_have_count(1)
    assert len(script.requests) == 2
