"""Screens on which pages of the console are looked at, and what is wrong with a page on one of them."""

import subprocess
from collections.abc import AsyncGenerator
from functools import cache
from typing import Literal

from playwright.async_api import Page

from tests.e2e.conftest import ROOT

AXE = ROOT / "ts" / "node_modules" / "axe-core" / "axe.min.js"
WIDTHS = (320, 1100, 1440)
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")


@cache
def read_axe() -> str:
    """Return the code of axe-core, which is installed if it is missing."""
    subprocess.run(["scripts/ts_packages.sh"], cwd=ROOT, check=True)
    return AXE.read_text()


async def visit_screens(page: Page) -> AsyncGenerator[str]:
    """Give the page each width in both colour schemes; yields the name of each screen."""
    for width in WIDTHS:
        await page.set_viewport_size({"width": width, "height": 800})
        for scheme in SCHEMES:
            await page.emulate_media(color_scheme=scheme)
            yield f"{width} px, {scheme}"


async def find_problems(page: Page, where: str) -> list[str]:
    """Return what does not fit the width of the screen, and what axe-core calls serious or critical."""
    width = await page.evaluate("document.documentElement.scrollWidth - innerWidth")
    problems = [f"{where} is {width} px too wide"] if width > 0 else []
    await page.evaluate(read_axe())
    # The colours of a button fade for 0.1 s after a change of the theme.
    await page.evaluate(
        "() => Promise.all(document.getAnimations().filter(each => each instanceof CSSTransition)"
        ".map(each => each.finished.catch(() => 0)))"
    )
    found = await page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")
    return problems + [
        f"{where}: {each['id']}: {node['target']} {node.get('failureSummary', '')}"
        for each in found["violations"]
        if each["impact"] in ("serious", "critical")
        for node in each["nodes"]
    ]
