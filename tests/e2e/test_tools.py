"""Tools that are run from the forms of the console."""

import json
from pathlib import Path

from playwright.async_api import expect

from tests.e2e.conftest import ConsoleServer, OpenConsole
from tests.server_process import ServerProcess
from tests.unmeasured import without_coverage


async def test_a_tool_runs_from_the_form_of_its_schema_under_the_rules(
    server: ConsoleServer, open_console: OpenConsole
) -> None:
    async with open_console(server) as console:
        page = console.page
        await console.open("/agents")
        await page.get_by_role("link", name="guide").click()
        await page.get_by_role("link", name="weather").click()
        run = page.get_by_role("button", name="Run")
        await expect(run).to_be_disabled()
        await page.get_by_role("textbox", name="city").fill("Hilo")
        await page.get_by_role("spinbutton", name="days").fill("3")
        await run.click()
        await expect(page.locator(".json").first).to_contain_text('"north-east"')

        await page.get_by_role("button", name="JSON", exact=True).click()
        arguments = page.get_by_label("Arguments as JSON")
        await arguments.fill('{"city": ')
        await expect(run).to_be_disabled()
        await arguments.fill('{"city": "Atlantis"}')
        await run.click()
        await expect(page.locator(".json").first).to_contain_text("there is no Atlantis")

        await console.open("/agents/operator/deploy")
        await page.get_by_role("textbox", name="service").fill("roads")
        await page.get_by_role("combobox", name="to").select_option(label="production")
        await run.click()
        card = page.locator("[data-decision]")
        await expect(card).to_contain_text('"production"')
        await card.get_by_role("button", name="Approve once", exact=True).click()
        await page.locator("details.tool summary").click()
        await expect(page.locator("details.tool")).to_contain_text("roads runs on production with 2 replicas")
        console.check()


async def test_calls_of_built_in_tools_are_shown_by_the_arguments_that_matter(
    tmp_path: Path, open_console: OpenConsole
) -> None:
    edits = [{"old_string": "east", "new_string": "west"}, {"old_string": "slow", "new_string": "fast"}]
    calls = [
        {"name": "TaskGet", "arguments": {"taskId": "17"}},
        {"name": "MultiEdit", "arguments": {"edits": edits, "file_path": "plan.md"}},
    ]
    script = [{"tool_calls": calls}, {"text": "Changed."}]
    (tmp_path / "script.jsonl").write_text("\n".join(json.dumps(line) for line in script))
    env = without_coverage() | {"HOME": str(tmp_path / "home")}
    with ServerProcess(tmp_path, env, "--model", "scripted:script.jsonl", "--sandbox", "off") as server:
        async with open_console(server, key="") as console:
            page = console.page
            await page.goto(server.link)
            await page.get_by_label("Message", exact=True).fill("Change the plan.")
            await page.keyboard.press("Enter")
            card = page.locator("[data-decision]")
            for text in ("plan.md", "west", "fast"):
                await expect(card).to_contain_text(text)
            await expect(page.locator("details.tool .brief").first).to_have_text("17")
            await expect(page.locator("details.tool .brief").nth(1)).to_have_text("plan.md")
