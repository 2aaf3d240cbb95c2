"""The console of ``vaka serve``: a link that logs in once, and a conversation with the agent of the command line."""

import json
from pathlib import Path

from playwright.async_api import expect

from tests.e2e.conftest import OpenConsole
from tests.server_process import ServerProcess
from tests.unmeasured import without_coverage


async def test_the_printed_link_logs_one_browser_in(tmp_path: Path, open_console: OpenConsole) -> None:
    lines = [
        {"tool_calls": [{"name": "Bash", "arguments": {"command": "touch landed"}}]},
        {"text": "The boat has **landed**."},
    ]
    (tmp_path / "script.jsonl").write_text("\n".join(json.dumps(line) for line in lines))
    env = without_coverage() | {"HOME": str(tmp_path / "home")}
    with ServerProcess(tmp_path, env, "--model", "scripted:script.jsonl", "--sandbox", "off") as server:
        async with open_console(server, key="") as console:
            page = console.page
            await page.goto(server.link)
            await page.get_by_label("Message", exact=True).fill("Where is the boat?")
            await page.keyboard.press("Enter")
            card = page.locator("[data-decision]")
            await expect(card).to_contain_text("touch landed")
            await card.get_by_role("button", name="Approve & remember…").click()
            await expect(card.get_by_label("This rule will be stored")).to_have_value("Bash(touch landed)")
            await card.get_by_role("button", name="Approve and store the rule").click()
            await expect(page.locator(".markdown").last).to_have_text("The boat has landed.")
            assert (tmp_path / "landed").exists()
            assert await page.evaluate("document.cookie") == ""
            await page.reload()
            await expect(page.locator(".markdown").last).to_have_text("The boat has landed.")
            await console.open("/settings")
            await expect(page.get_by_role("table")).to_contain_text("store")
            await page.get_by_role("button", name="Sign out").click()
            await expect(page.get_by_text("vaka keys link")).to_be_visible()
            await page.goto(server.link)
            await expect(page.get_by_role("alert")).to_have_text("This link has been used, or it is too old.")
            assert console.requests_elsewhere == []
