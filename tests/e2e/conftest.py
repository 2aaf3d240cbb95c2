"""Debian's Chromium, driven by Playwright, and the console of a server with demo agents."""

import asyncio
import shutil
import socket
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from playwright.async_api import Browser, BrowserContext, Page, async_playwright, expect

from tests.unmeasured import without_coverage

ROOT = Path(__file__).parents[2]
TOKEN = "alice"
PATIENCE_MS = 30_000
"""How long an expectation may take to come true; a busy machine is slow."""


@pytest.fixture
async def browser() -> AsyncGenerator[Browser]:
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("Chromium is not installed: scripts/system.sh chromium")
    expect.set_options(timeout=PATIENCE_MS)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        await browser.close()


class ConsoleServer:
    """A process that serves the demo agents; it can be killed and started again at the same port."""

    def __init__(self, folder: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.port: int = listener.getsockname()[1]
        self.url, self.gate = f"http://127.0.0.1:{self.port}", folder / "gate"
        self._arguments = (str(self.port), f"sqlite:///{folder / 'console.db'}", str(self.gate))
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        command = (sys.executable, "-m", "tests.e2e.demo_server", *self._arguments)
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, env=without_coverage(), stdout=pipe)
        assert self._process.stdout is not None
        assert await self._process.stdout.readline() == b"listening\n"

    async def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            await self._process.wait()

    def client(self) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(base_url=self.url, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=30)

    async def post(self, path: str, **body: Any) -> dict[str, Any]:
        async with self.client() as client:
            answer = await client.post(f"/api/v1{path}", json=body)
            assert answer.status_code < 300, answer.text
            return dict(answer.json())

    async def get(self, path: str) -> dict[str, Any]:
        async with self.client() as client:
            answer = await client.get(f"/api/v1{path}")
            assert answer.status_code < 300, answer.text
            return dict(answer.json())

    async def run_turn(
        self, session: str, agent: str, text: str = "Go.", *, background: bool = False
    ) -> dict[str, Any]:
        return await self.post(f"/sessions/{session}/turns", input=text, agent=agent, background=background)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncGenerator[ConsoleServer]:
    server = ConsoleServer(tmp_path)
    await server.start()
    yield server
    await server.kill()


class Console:
    """A page of the console, and what went wrong in it."""

    def __init__(self, page: Page, url: str) -> None:
        self.page, self.url = page, f"{url}/console"
        self.errors: list[str] = []
        self.requests_elsewhere: list[str] = []
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda message: self.errors.append(message.text) if message.type == "error" else None)
        page.on("request", lambda request: self._note_request(request.url, url))

    def _note_request(self, address: str, own: str) -> None:
        if not address.startswith((f"{own}/", "data:", "blob:")):
            self.requests_elsewhere.append(address)

    async def open(self, path: str = "/") -> None:
        await self.page.goto(self.url + path)

    def check(self) -> None:
        """Fail unless the page was silent and stayed within its origin."""
        assert self.errors == []
        assert self.requests_elsewhere == []


OpenConsole = Callable[..., Any]


@pytest.fixture
def open_console(browser: Browser) -> OpenConsole:
    """Return a function that opens the console of a server, logged in with a key."""

    @asynccontextmanager
    async def open_page(server: ConsoleServer, *, key: str = TOKEN, **options: Any) -> AsyncGenerator[Console]:
        context: BrowserContext = await browser.new_context(**{"viewport": {"width": 1440, "height": 900}, **options})
        if key:
            await context.add_init_script(f"sessionStorage.setItem('vaka.key', {key!r})")
        console = Console(await context.new_page(), server.url)
        yield console
        await context.close()

    return open_page
