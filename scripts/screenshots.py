"""Draw the pictures of docs/guides/chat.md from conversations with the scripted model: ``make screenshots``."""

import asyncio
import html
import io
import os
import re
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.style import Style
from rich.text import Text

from tests.cli.chat.chat_in_process import InProcessChat, chat_in_process
from tests.cli.chat.chat_terminal import ESCAPE
from vaka import Agent, Runtime
from vaka.config.options import Commands
from vaka.models.scripted import Scripted

IMAGES = Path(__file__).parents[1] / "docs" / "guides" / "images"
COMMAND = "make screenshots"

_BOAT = (
    'def speed(wind):\n    """Return the speed in knots."""\n    if wind < 2:\n        return 0\n    return wind * 2\n'
)
_CHECK = 'from boat import speed\n\nassert speed(1) == 0\nassert speed(10) == 15, speed(10)\nprint("2 checks passed")\n'
_ANSWER = (
    "The canoe was too fast: it sails at **1.5 times** the speed of the wind, not twice.\n\n"
    "- `boat.py`: `speed` multiplies by 1.5\n- `check.py` passes\n"
)


def _call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"tool_calls": [{"name": name, "arguments": arguments}], "usage": {"input": 6200, "output": 90}}


_CODING_LINES = (
    _call("Read", file_path="boat.py"),
    {
        "text": "I change the factor, then I run the check.",
        **_call("Edit", file_path="boat.py", old_string="    return wind * 2", new_string="    return wind * 1.5"),
    },
    _call("Bash", command="python3 check.py", description="Run the check"),
    {"text": _ANSWER, "usage": {"input": 7400, "output": 160, "cost": 0.04}},
)
_TALKS = {
    "hulls": ("Why does an outrigger not capsize?", "The float holds the hull level.", 0.02),
    "sails": ("Compare crab claw and square sails.", "A crab claw sail points higher into the wind.", 0.13),
}

HOME = "/home/captain"
"""The home folder that pictures show; it is as long as the name of a temporary folder that replaces it."""
_VARYING = re.compile(r"\b\d+(?:\.\d+)?\s?(?:ms|[smhd])\b|[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏]|vaka \d+\.\d+\.\d+\S*")
"""Durations, ages, the spinner and the version: they differ from run to run."""
_FONT_FACES = re.compile(r"@font-face \{\{.*?\}\}\s*", re.DOTALL)
"""The parts of rich's template that would load fonts from the network."""
_TEXT_ELEMENT = re.compile(r'<text[^>]*line-(\d+)\)"[^>]*>(.*?)</text>', re.DOTALL)
"""A piece of text, with the number of its line."""


async def take_screenshots() -> dict[str, str]:
    """Converse, and return each picture as SVG by the name of its file."""
    pictures: dict[str, str] = {}

    def take(name: str, chat: InProcessChat) -> None:
        pictures[name] = draw_svg(chat.screen)

    with _project_folder() as folder:
        coder: Agent[Any] = Agent("coder", model=Scripted(_CODING_LINES), tools=["Read", "Edit", "Bash"])
        async with Runtime(
            agent=coder, commands=Commands(sandbox="off"), store=f"sqlite:///{folder.parent}/vaka.db"
        ) as runtime:
            for name, (question, answer, cost) in _TALKS.items():
                line = {"text": answer, "usage": {"input": 900, "output": 60, "cost": cost}}
                talker: Agent[Any] = Agent("talker", model=Scripted([line]))
                await (await runtime.open(talker, id=name)).run(question)
            session = await runtime.open(id="speed")
            async with chat_in_process(runtime, session, columns=88, rows=34) as chat:
                await chat.say("The canoe is too fast. Make check.py pass.")
                await chat.expect("Approve Edit?")
                take("approval.svg", chat)
                chat.send("y")
                await chat.expect("Approve Bash?")
                chat.send("y")
                await chat.expect("check.py passes")
                await chat.expect("interrupts", gone=True)
                take("conversation.svg", chat)
            async with chat_in_process(runtime, session, columns=60, rows=40) as chat:
                await chat.expect("check.py passes")
                take("narrow.svg", chat)
            async with chat_in_process(runtime, await runtime.open(id="sail"), columns=88, rows=20) as chat:
                await chat.say("/sessions")
                await chat.expect("$0.13")
                await chat.expect("$0.02")
                take("sessions.svg", chat)
                chat.send(ESCAPE)
    return pictures


@contextmanager
def _project_folder() -> Generator[Path]:
    """Work in a new project below a new home folder, as another user."""
    before, variables = Path.cwd(), dict(os.environ)
    with tempfile.TemporaryDirectory(prefix="", dir="/tmp") as home:  # the length of its name is known
        folder = Path(home) / "boat"
        (folder / ".git").mkdir(parents=True)
        (folder / "boat.py").write_text(_BOAT)
        (folder / "check.py").write_text(_CHECK)
        os.environ.update(HOME=home, LOGNAME=Path(HOME).name, VAKA_LANG="en")
        os.chdir(folder)
        try:
            yield folder
        finally:
            os.chdir(before)
            os.environ.clear()
            os.environ.update(variables)


def draw_svg(screen: Any) -> str:
    """Return a screen of pyte as SVG, without the empty lines at its end."""
    console = Console(
        record=True,
        width=screen.columns,
        file=io.StringIO(),
        force_terminal=True,
        color_system="truecolor",
        legacy_windows=False,
    )
    lines = [_styled_line(screen, row) for row in range(screen.lines)]
    while lines and not lines[-1].plain.strip():
        lines.pop()
    for line in lines:
        console.print(line, no_wrap=True, overflow="crop", highlight=False)
    template = _FONT_FACES.sub("", CONSOLE_SVG_FORMAT)
    return console.export_svg(title="vaka chat", code_format=template, unique_id="vaka") + "\n"


def _styled_line(screen: Any, row: int) -> Text:
    """Return a line of the screen: cells of one style as one piece of text."""
    cells = [screen.buffer[row][column] for column in range(screen.columns)]
    line, start = Text(), 0
    text = "".join(cell.data for cell in cells).replace(str(Path.home()), HOME)
    for style, group in groupby(cells, _style_of):
        length = sum(len(cell.data) for cell in group)
        line.append(text[start : start + length], style)
        start += length
    line.rstrip()
    return line


def _style_of(cell: Any) -> Style:
    return Style(
        color=_color_of(cell.fg),
        bgcolor=_color_of(cell.bg),
        bold=cell.bold,
        italic=cell.italics,
        underline=cell.underscore,
        strike=cell.strikethrough,
        reverse=cell.reverse,
    )


def _color_of(name: str) -> str | None:
    """Return a colour of pyte as rich names it."""
    if name == "default":
        return None
    if re.fullmatch(r"[0-9a-f]{6}", name):
        return f"#{name}"
    return name.replace("bfight", "bright").replace("brown", "yellow").replace("bright", "bright_")


def text_of_picture(svg: str) -> str:
    """Return the lines of a picture, with what varies masked."""
    lines: dict[int, str] = {}
    for number, text in _TEXT_ELEMENT.findall(svg):
        lines[int(number)] = lines.get(int(number), "") + html.unescape(text)
    shown = [" ".join(lines.get(number, "").split()) for number in range(max(lines) + 1)]
    return _VARYING.sub("…", "\n".join(shown))


def write_pictures(pictures: Mapping[str, str]) -> None:
    IMAGES.mkdir(exist_ok=True)
    for name, svg in pictures.items():
        file = IMAGES / name
        if not file.exists() or text_of_picture(file.read_text("utf-8")) != text_of_picture(svg):
            file.write_text(svg, "utf-8")


if __name__ == "__main__":
    write_pictures(asyncio.run(take_screenshots()))
