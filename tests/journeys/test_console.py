"""The console of the installed server, in Chromium."""

import shutil
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect, sync_playwright

from tests.journeys.answers import PATIENCE, Pause, call, say
from tests.journeys.served_project import ServedProject


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
def served_alone(programs: Path, tmp_path: Path) -> Iterator[ServedProject]:
    """A server of this story alone: its link works once."""
    with ServedProject(tmp_path, programs) as served:
        yield served
        served.check()


def test_a_person_follows_the_link_asks_approves_and_reads_the_answer_as_it_grows(served_alone: ServedProject) -> None:
    pause = Pause()
    path = str(served_alone.project.folder / "log.md")
    script = served_alone.provider.script(
        "Keep a log.",
        call("Write", file_path=path, content="Day one.\n"),
        say("The log ", "has ", pause, "its first day."),
    )
    with open_browser() as page:
        page.goto(served_alone.server.link)
        write_message(page, "Keep a log.")
        card = page.locator("[data-decision]")
        expect(card).to_contain_text("log.md")
        assert not (served_alone.project.folder / "log.md").exists()
        card.get_by_role("button", name="Approve once", exact=True).click()
        answer = page.locator(".message.assistant .markdown").last
        expect(answer).to_contain_text("The log")
        pause.open()
        expect(answer).to_have_text("The log has its first day.")
        page.reload()
        expect(page.locator(".message.assistant .markdown").last).to_have_text("The log has its first day.")
    served_alone.project.expect_status("?? log.md")
    assert served_alone.project.read("log.md") == "Day one.\n"
    assert len(script.requests) == 2


def test_a_browser_that_watches_a_killed_server_shows_the_finished_turn_after_the_restart(
    served_alone: ServedProject,
) -> None:
    pause = Pause()
    script = served_alone.provider.script("Watch the sea.", say("A whale ", pause, "sank."), say("A whale came up."))
    with open_browser() as page:
        page.goto(served_alone.server.link)
        write_message(page, "Watch the sea.")
        answer = page.locator(".message.assistant .markdown").last
        expect(answer).to_contain_text("A whale")
        pause.wait_reached()
        served_alone.server.kill()
        with served_alone.serve(port=served_alone.server.port):
            expect(answer).to_have_text("A whale came up.")
            expect(page.locator(".message.user")).to_have_count(1)
    assert len(script.requests) == 2
