"""Draw the pictures of docs/guides/console.md: ``make screenshots``.

``python -m scripts.console_screenshots FOLDER`` draws every page instead, at two widths, light and dark.
"""

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Any, Literal

from playwright.async_api import Browser, async_playwright

from tests.e2e.conftest import TOKEN, ConsoleServer

IMAGES = Path(__file__).parents[1] / "docs" / "guides" / "images"
PAGES = {
    "chat": "/chat/hilo",
    "waiting": "/chat/deploy",
    "failed": "/chat/failed",
    "new": "/chat?new=1",
    "sessions": "/sessions",
    "trace": "/sessions/hilo/trace",
    "events": "/sessions/hilo/events?at=1.8",
    "checkpoints": "/sessions/hilo/checkpoints",
    "replay": "/sessions/hilo/replay",
    "traces": "/traces",
    "approvals": "/approvals",
    "compare": "/compare?a=hilo&b=hilo-2",
    "usage": "/usage",
    "agents": "/agents",
    "tool": "/agents/operator/deploy",
    "settings": "/settings",
}
SETTLED_MS = 700
Scheme = Literal["light", "dark"]


async def fill(server: ConsoleServer) -> None:
    """Make the sessions that the pictures show."""
    titles = {
        "hilo": "How do we get to Hilo?",
        "deploy": "Deploy the roads",
        "ask": "Which road?",
        "failed": "No credit",
    }
    agents = {"hilo": "guide", "deploy": "operator", "ask": "asker", "failed": "broken"}
    for name, agent in agents.items():
        await server.run_turn(name, agent, titles[name], background=agent != "guide")
    await server.post("/sessions/hilo/checkpoints", label="before the thanks")
    await server.post("/sessions/hilo/fork", id="hilo-2", title="How do we get to Hilo, in the rain?")
    await server.run_turn("hilo", "guide", "Thank you!")
    await server.run_turn("hilo-2", "guide", "Many thanks, and see you tomorrow!")


class Camera:
    """Takes pictures of the console of a server."""

    def __init__(self, browser: Browser, server: ConsoleServer) -> None:
        self._browser, self._server = browser, server

    async def take(self, path: str, to: Path, size: tuple[int, int], scheme: Scheme, script: str = "") -> None:
        viewport: Any = {"width": size[0], "height": size[1]}
        context = await self._browser.new_context(viewport=viewport, color_scheme=scheme)
        await context.add_init_script(f"sessionStorage.setItem('vaka.key', {TOKEN!r})")
        page = await context.new_page()
        await page.goto(f"{self._server.url}/console{path}")
        await page.wait_for_timeout(SETTLED_MS)
        if script:
            await page.evaluate(script)
            await page.wait_for_timeout(SETTLED_MS)
        await page.screenshot(path=to)
        await context.close()


async def draw_guide(camera: Camera) -> None:
    """Draw the pictures of the guide."""
    choose = "document.querySelectorAll('.span-row')[7].click()"
    to_edit = "document.querySelectorAll('.tool')[2].scrollIntoView()"
    await camera.take("/chat/hilo", IMAGES / "console-chat.png", (1280, 800), "light", to_edit)
    await camera.take("/sessions/hilo/trace", IMAGES / "console-trace.png", (1280, 800), "dark", choose)
    await camera.take("/approvals", IMAGES / "console-approvals.png", (1000, 560), "light")
    await camera.take("/compare?a=hilo&b=hilo-2", IMAGES / "console-compare.png", (1000, 640), "light")


async def main(folder: Path | None) -> None:
    with tempfile.TemporaryDirectory() as home:
        server = ConsoleServer(Path(home))
        await server.start()
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
            await fill(server)
            camera = Camera(browser, server)
            if folder is None:
                await draw_guide(camera)
            else:
                await draw_all(camera, folder)
            await browser.close()
        await server.kill()


async def draw_all(camera: Camera, folder: Path) -> None:
    """Draw every page."""
    schemes: tuple[Scheme, ...] = ("light", "dark")
    for name, path in PAGES.items():
        for scheme in schemes:
            for size in ((320, 640), (1440, 900)):
                await camera.take(path, folder / f"{name}-{size[0]}-{scheme}.png", size, scheme)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]) if len(sys.argv) > 1 else None))
