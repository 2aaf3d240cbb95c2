"""The TypeScript client in Chromium: streams that are cut and resumed, a socket, and a view made with the hook."""

import asyncio
import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest
from playwright.async_api import Browser, async_playwright

import vaka
from tests.server.conftest import serve_agents
from tests.typescript.client_build import CLIENT, NODE, PACKAGES, needs_packages, run
from tests.unmeasured import without_coverage
from vaka.server.auth.api_keys import KeyOptions
from vaka.server.auth.authenticator import open_authenticator
from vaka.testing import ScriptedModel, say

pytestmark = needs_packages


@pytest.fixture
async def browser() -> AsyncGenerator[Browser]:
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("Chromium is not installed: scripts/system.sh chromium")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        await browser.close()


@pytest.fixture(scope="session")
def bundle(client_package: Path) -> Path:
    """Return the script of the test page."""
    bundle = client_package / "bundle.js"
    run(
        PACKAGES / ".bin" / "esbuild",
        client_package / "test" / "browser.mjs",
        "--bundle",
        "--format=iife",
        f"--outfile={bundle}",
        '--define:process.env.NODE_ENV="production"',
    )
    return bundle


async def test_a_page_follows_a_turn_over_a_socket_with_a_ticket(browser: Browser, bundle: Path) -> None:
    async with serve_agents([vaka.Agent("guide", model=ScriptedModel(say("The tide is rising. 🌊")))]) as served:
        runtime = served.service.runtime
        authenticator = await open_authenticator(runtime.store.values, {}, runtime.env.clock)
        served.service.guard.authenticator = authenticator
        _, key = await authenticator.keys.create(KeyOptions(scopes=("runs:read", "runs:write")))
        page = await browser.new_page()
        sockets: list[str] = []
        page.on("websocket", lambda socket: sockets.append(socket.url))
        await page.goto(f"{served.url}/healthz")
        await page.add_script_tag(path=bundle)
        found = await page.evaluate("(key) => runOverSocket(key)", key)
    assert found == {"texts": ["The tide is rising. 🌊"] * 2, "same": True}
    assert len(sockets) == 1
    assert "/api/v1/ws?ticket=" in sockets[0]


@asynccontextmanager
async def serve_streams(bundle: Path) -> AsyncGenerator[str]:
    """Serve the test page and the recorded streams; yield the address."""
    script = bundle.parent / "test" / "browser_server.mjs"
    pipe, env = asyncio.subprocess.PIPE, without_coverage()
    server = await asyncio.create_subprocess_exec(NODE, script, bundle, stdout=pipe, env=env)
    try:
        assert server.stdout is not None
        yield (await server.stdout.readline()).decode().strip()
    finally:
        server.kill()
        await server.wait()


NAMES = sorted(path.stem for path in (CLIENT / "test" / "streams").glob("*.sse"))
READ_EVERY = """
async ([names, step]) => {
  const streams = await (await fetch("/events")).json();
  return await readEvery(Object.fromEntries(names.map((name) => [name, streams[name]])), step);
}
"""


@pytest.mark.parametrize(
    ("names", "step"),
    [
        pytest.param(NAMES, 997, id="sampled"),
        *(pytest.param([name], 1, id=name, marks=pytest.mark.exhaustive) for name in NAMES),
    ],
)
async def test_a_stream_that_is_cut_at_any_byte_resumes_in_a_browser(
    browser: Browser, bundle: Path, names: list[str], step: int
) -> None:
    async with serve_streams(bundle) as url:
        page = await browser.new_page()
        await page.goto(url)
        found = await page.evaluate(READ_EVERY, [names, step])
    assert found["failed"] == []
    assert found["count"] > (100 if step > 1 else 2000)


async def test_streams_resume_and_the_hook_shows_them_in_a_browser(browser: Browser, bundle: Path) -> None:
    async with serve_streams(bundle) as url:
        page = await browser.new_page()
        problems: list[str] = []
        page.on("pageerror", lambda error: problems.append(str(error)))
        await page.goto(url)
        found = await page.evaluate("fetch('/streams').then((answer) => answer.json()).then(readCut)")
        assert found["failed"] == []
        assert found["count"] > 100
        assert await page.evaluate("wakeUp('retry~1', 'online')") == "stream.end"
        assert await page.evaluate("wakeUp('retry~2', 'visibilitychange')") == "stream.end"
        await page.evaluate("show('conversation~3000')")
        await page.get_by_text("Done.").wait_for()
        await page.get_by_text("closed closed completed").wait_for()
        assert await page.locator("h1").inner_text() == "From 1.42"
        assert await page.locator("li").count() == 18
        for name in ("send", "steer", "stop", "approve", "reject", "answer", "branch"):
            async with page.expect_response("**/api/v1/**"):
                await page.get_by_role("button", name=name).click()
        await page.evaluate("show('tools~later')")
        await page.get_by_text("not_found").wait_for()
        await page.get_by_role("button", name="send").click()  # the session begins with this input
        await page.get_by_text("Grüße, 世界.").wait_for()
        assert problems == []
        async with httpx2.AsyncClient() as client:
            sent = (await client.get(f"{url}/requests")).json()
    session = "/api/v1/sessions/conversation~3000"
    assert sent.pop()[0] == "/api/v1/sessions/tools~later/turns"
    assert sent == [
        [f"{session}/turns", {"input": "x", "agent": "guide", "model": "y", "background": True}],
        [f"{session}/turns/current/steer", {"input": "x"}],
        [f"{session}/turns/current/cancel", {"note": "x"}],
        ["/api/v1/approvals/x/resolve", {"decision": "approve", "message": "y"}],
        ["/api/v1/approvals/x/resolve", {"decision": "reject", "message": "y"}],
        ["/api/v1/approvals/x/resolve", {"decision": "answer", "answer": "y"}],
        [f"{session}/fork", {"at": "x"}],
    ]
