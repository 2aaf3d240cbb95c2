"""The TypeScript client in Chromium: streams that are cut and resumed, and a view made with the React hook."""

import asyncio
import shutil
from pathlib import Path

import httpx2
import pytest
from playwright.async_api import async_playwright

from tests.typescript.client_build import NODE, PACKAGES, needs_packages, run
from tests.unmeasured import without_coverage

pytestmark = needs_packages


async def test_streams_resume_and_the_hook_shows_them_in_a_browser(client_package: Path, tmp_path: Path) -> None:
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("Chromium is not installed: scripts/system.sh chromium")
    bundle, test = tmp_path / "bundle.js", client_package / "test"
    run(
        PACKAGES / ".bin" / "esbuild", test / "browser.mjs", "--bundle", "--format=iife", f"--outfile={bundle}",
        '--define:process.env.NODE_ENV="production"',
    )  # fmt: skip
    server = await asyncio.create_subprocess_exec(
        NODE, test / "browser_server.mjs", bundle, stdout=asyncio.subprocess.PIPE, env=without_coverage()
    )
    try:
        assert server.stdout is not None
        url = (await server.stdout.readline()).decode().strip()
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            page = await browser.new_page()
            problems: list[str] = []
            page.on("pageerror", lambda error: problems.append(str(error)))
            await page.goto(url)
            found = await page.evaluate("fetch('/streams').then((answer) => answer.json()).then(readCut)")
            assert found["failed"] == []
            assert found["count"] > 100
            assert await page.evaluate("wakeUp('retry~1', 'online')") == "stream.end"
            assert await page.evaluate("wakeUp('retry~2', 'visibilitychange')") == "stream.end"
            await page.evaluate("show()")
            await page.get_by_text("Done.").wait_for()
            await page.get_by_text("closed closed completed").wait_for()
            assert await page.locator("h1").inner_text() == "From 1.42"
            assert await page.locator("li").count() == 18
            for name in ("send", "steer", "stop", "approve", "reject", "answer", "branch"):
                async with page.expect_response("**/api/v1/**"):
                    await page.get_by_role("button", name=name).click()
            assert problems == []
            await browser.close()
        async with httpx2.AsyncClient() as client:
            sent = (await client.get(f"{url}/requests")).json()
    finally:
        server.kill()
        await server.wait()
    session = "/api/v1/sessions/conversation~3000"
    assert sent == [
        [f"{session}/turns", {"input": "x", "agent": "guide", "model": "y", "background": True}],
        [f"{session}/turns/current/steer", {"input": "x"}],
        [f"{session}/turns/current/cancel", {"note": "x"}],
        ["/api/v1/approvals/x/resolve", {"decision": "approve", "message": "y"}],
        ["/api/v1/approvals/x/resolve", {"decision": "reject", "message": "y"}],
        ["/api/v1/approvals/x/resolve", {"decision": "answer", "answer": "y"}],
        [f"{session}/fork", {"at": "x"}],
    ]
