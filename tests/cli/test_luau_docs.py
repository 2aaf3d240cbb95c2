"""The commands of the pages about Luau and about definitions print what the pages show."""

import re
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.cli.shell import Shell

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [DOCS / "tutorial" / "02-first-luau-tool.md", *sorted((DOCS / "guides").glob("luau-*.md"))]
PORT = "8765"
"""The port of the pages; the tests replace it by a free one."""

_FILES = re.compile(r"^`(\S+)`:\n\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_BLOCKS = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class SilentFileHandler(SimpleHTTPRequestHandler):
    """Serves a folder."""

    def log_message(self, format: str, *arguments: Any) -> None:
        """Log nothing."""


@pytest.fixture
def port(shell: Shell) -> Iterator[str]:
    shell.write_file("sky/hilo.json", '{"rain": true}')
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(SilentFileHandler, directory=str(shell.folder / "sky")))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield str(server.server_port)
    server.shutdown()
    server.server_close()
    thread.join()


def console_commands(block: str) -> list[tuple[str, str]]:
    """Return each command of a block with its output."""
    parts = [part.partition("\n") for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]]
    return [(command, printed) for command, _, printed in parts]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "page",
    [
        page
        for page in (*PAGES, *sorted((DOCS / "guides").glob("*definitions.md")))
        if _BLOCKS.search(page.read_text("utf-8"))
    ],
    ids=lambda p: p.stem,
)
def test_every_command_of_a_page_prints_what_it_shows(page: Path, shell: Shell, port: str) -> None:
    text = page.read_text("utf-8").replace(PORT, port)
    for part in re.finditer(f"{_FILES.pattern}|{_BLOCKS.pattern}", text, re.MULTILINE | re.DOTALL):
        name, content, block = part.groups()
        if name:
            shell.write_file(name, content)
            continue
        check_commands(block, shell)


def check_commands(block: str, shell: Shell) -> None:
    """Run the commands of a block, and compare what they print."""
    for command, printed in console_commands(block):
        done = shell.bash(f"({command}) 2>&1", fork=True)
        wanted = ".*".join(re.escape(piece) for piece in printed.split("…"))
        assert re.fullmatch(wanted, done.out, re.DOTALL), f"{command}\n{done.out}"


def test_no_script_of_a_page_is_left_out() -> None:
    for page in PAGES:
        text = page.read_text("utf-8")
        shown = text.count("```luau\n")
        assert shown == len([name for name, _ in _FILES.findall(text) if name.endswith(".luau")])
        assert all(name in "".join(_BLOCKS.findall(text)) for name, _ in _FILES.findall(text))
