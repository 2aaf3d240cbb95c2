"""The console in Chromium: the first text of an answer, a large trace, and the size of what is loaded."""

import asyncio
import gzip
import shutil
import statistics
import tempfile
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from playwright.async_api import Browser, Page, async_playwright

from bench.row import Row
from tests.e2e.conftest import TOKEN, ConsoleServer
from tests.e2e.large_trace import make_trace
from vaka.server.console import read_files

SPANS = 10_000
_FIRST_TEXT = """() => new Promise(resolve => {
    addEventListener('keydown', () => {
        const begun = performance.now();
        const look = () => document.querySelector('.message.assistant .markdown')
            ? resolve(performance.now() - begun) : requestAnimationFrame(look);
        look();
    }, {once: true, capture: true});
    window.armed = true;
})"""
_SCROLL = """async () => {
    const tasks = [];
    new PerformanceObserver(list => list.getEntries().forEach(entry => tasks.push(entry.duration)))
        .observe({entryTypes: ['longtask']});
    const rows = document.querySelector('.virtual');
    for (let frame = 0; frame < 300; frame++) {
        rows.scrollTop += 700;
        await new Promise(requestAnimationFrame);
    }
    return Math.max(0, ...tasks);
}"""


def measure_console(quick: bool) -> list[Row]:
    """Return the rows of the console; without Chromium only those of sizes."""
    rows = _measure_sizes()
    if shutil.which("chromium") is None:
        return [*rows, Row(name="console in Chromium", value=0, unit="", note="no Chromium", skipped=True)]
    return [*rows, *asyncio.run(_measure_pages(3 if quick else 9))]


def _measure_sizes() -> list[Row]:
    sizes = {"js": 0.0, "css": 0.0}
    for name, file in read_files().items():
        kind = name.rpartition(".")[2]
        if kind in sizes:
            sizes[kind] += len(gzip.compress(file.body)) / 1024
    return [
        Row(name="console: JavaScript", value=sizes["js"], unit="KB", target=120, note="gzip"),
        Row(name="console: CSS", value=sizes["css"], unit="KB", target=15, note="gzip"),
    ]


async def _measure_pages(repeats: int) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        server = ConsoleServer(Path(folder))
        await server.start()
        try:
            async with async_playwright() as playwright:
                program = shutil.which("chromium")
                browser = await playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
                first = [await _measure_first_text(browser, server) for _ in range(repeats)]
                opened, longest = zip(*[await _measure_trace(browser, server) for _ in range(repeats)], strict=True)
                await browser.close()
        finally:
            await server.kill()
    return [
        _row_of("console: first text of an answer", first, 300, "from the key to the screen, a new session, SQLite"),
        _row_of(f"console: open a trace of {SPANS:,} spans", opened, 2000, "from the start of the navigation"),
        Row(
            name="console: longest task while it scrolls",
            value=min(longest),
            unit="ms",
            target=50,
            low=min(longest),
            high=max(longest),
            note="300 frames, best of the repeats, as a busy machine only adds; 0: none of 50 ms",
        ),
    ]


def _row_of(name: str, times: Sequence[float], target: float, note: str) -> Row:
    value = statistics.median(times)
    return Row(name=name, value=value, unit="ms", target=target, low=min(times), high=max(times), note=note)


@asynccontextmanager
async def _open_page(browser: Browser) -> AsyncGenerator[Page]:
    context = await browser.new_context(viewport={"width": 1440, "height": 900})
    await context.add_init_script(f"sessionStorage.setItem('vaka.key', {TOKEN!r})")
    yield await context.new_page()
    await context.close()


async def _measure_first_text(browser: Browser, server: ConsoleServer) -> float:
    async with _open_page(browser) as page:
        await page.goto(f"{server.url}/console/chat?new=1&agent=tides")
        await page.get_by_label("Message", exact=True).fill("When is low tide?")
        await page.wait_for_selector(".pill.live")
        measured = asyncio.create_task(page.evaluate(_FIRST_TEXT))
        await page.wait_for_function("window.armed")
        await page.keyboard.press("Enter")
        return float(await measured)


async def _measure_trace(browser: Browser, server: ConsoleServer) -> tuple[float, float]:
    trace = make_trace(SPANS)
    async with _open_page(browser) as page:
        await page.route("**/api/v1/traces/large/trn", lambda route: route.fulfill(json=trace))
        await page.goto(f"{server.url}/console/traces/large/trn")
        await page.wait_for_selector(".span-row")
        opened = float(await page.evaluate("performance.now()"))
        return opened, float(await page.evaluate(_SCROLL))
