"""Without its libraries a command says how to install them."""

import subprocess

import pytest

from tests.cli.shell import TIMEOUT, Shell, say_line
from tests.without_library import vaka_without


@pytest.mark.parametrize("library", ["httptools", "starlette", "uvicorn", "websockets"])
def test_a_server_without_a_library_names_the_extra(shell: Shell, library: str) -> None:
    shell.write_script(say_line("Hello."))
    words = vaka_without(library, "serve", "--port", "0", "--model", "scripted:script.jsonl")
    done = subprocess.run(
        words, check=False, cwd=shell.folder, env=shell.env, capture_output=True, text=True, timeout=TIMEOUT
    )
    assert done.returncode == 3
    assert done.stderr.startswith(f"error: {library} is not installed; add it with: pip install 'vaka[server]'\n")
