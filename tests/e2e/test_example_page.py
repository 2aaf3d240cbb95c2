"""The page of example 03: a chat in the browser with the TypeScript client."""

import asyncio
import sys
from pathlib import Path

from playwright.async_api import Browser, expect

from tests.typescript.client_build import build_client, needs_packages
from tests.unmeasured import without_coverage

PROGRAM = Path(__file__).parents[2] / "examples" / "03-http" / "serve.py"


@needs_packages
async def test_the_page_of_the_example_streams_an_answer(browser: Browser, tmp_path: Path) -> None:
    built = await asyncio.to_thread(build_client, tmp_path)
    env = without_coverage() | {"PORT": "0", "VAKA_CLIENT_DIST": str(built / "dist")}
    pipe = asyncio.subprocess.PIPE
    server = await asyncio.create_subprocess_exec(sys.executable, str(PROGRAM), "--stay", env=env, stdout=pipe)
    assert server.stdout is not None
    try:
        address = (await server.stdout.readline()).decode().split()[0]
        page = await browser.new_page()
        await page.goto(address)
        await page.get_by_role("button", name="Send").click()
        await expect(page.locator("#status")).to_have_text("completed at 1.15")
        await expect(page.locator("#answer")).to_have_text("High water is at 14:00.")
    finally:
        server.terminate()
        await server.wait()
