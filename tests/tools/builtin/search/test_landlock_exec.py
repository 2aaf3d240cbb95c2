"""Confined helper processes read only the given paths and are killed on cancellation."""

import asyncio
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runtime.runtime_fixtures import wait_until
from tests.tools.builtin.harness import ToolHarness, child_processes
from vaka.tools.builtin.search import ripgrep
from vaka.tools.builtin.search.grep import run_grep

pytestmark = pytest.mark.every_loop
needs_ripgrep = pytest.mark.skipif(shutil.which("rg") is None, reason="no ripgrep: scripts/system.sh ripgrep")


SWAP = """
import os, sys
inside, other, link = sys.argv[1:]
print(flush=True)
while True:
    os.rename(inside, other)
    os.symlink(link, inside)
    os.unlink(inside)
    os.rename(other, inside)
"""


@needs_ripgrep
@pytest.mark.skipif(not ripgrep.is_supported(), reason="this kernel has no Landlock")
async def test_a_folder_replaced_by_a_link_shows_no_outside_file(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    bench, outside = ToolHarness(tmp_path), tmp_path_factory.mktemp("outside")
    for number in range(300):
        (outside / f"f{number}.txt").write_text("the secret\n")
        bench.write(f"d/f{number}.txt", "nothing")
    command = [sys.executable, "-c", SWAP, str(bench.root / "d"), str(bench.root / "d2"), str(outside)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as swapping:
        try:
            assert swapping.stdout is not None
            swapping.stdout.readline()
            for _ in range(60):
                result = await run_grep(bench.files, {"pattern": "secret", "output_mode": "count"}, engine="ripgrep")
                assert (result.text, result.value["total_matches"]) == ("no matches", 0)
        finally:
            swapping.kill()


@pytest.mark.skipif(not ripgrep.is_supported(), reason="this kernel has no Landlock")
async def test_a_confined_process_reads_only_the_given_paths(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.txt").write_text("inside")
    (tmp_path / "b.txt").write_text("outside")
    command = ["/usr/bin/cat", str(tmp_path / "in/a.txt"), str(tmp_path / "b.txt")]
    with (tmp_path / "errors").open("w+b") as errors, (tmp_path / "output").open("w+b") as output:
        code = await ripgrep.run_confined(
            command, [str(tmp_path / "in")], cwd=str(tmp_path), output=output, errors=errors
        )
        with pytest.raises(FileNotFoundError):
            await ripgrep.run_confined(["/nowhere/program"], [], cwd=str(tmp_path), output=output, errors=errors)
    assert (code, (tmp_path / "output").read_text()) == (1, "inside")
    assert "Permission denied" in (tmp_path / "errors").read_text()
    assert (tmp_path / "b.txt").read_text() == "outside"  # this process is not restricted


async def test_cancellation_kills_the_confined_process(tmp_path: Path) -> None:
    with (tmp_path / "errors").open("w+b") as errors:
        for loops in range(3):
            command = ["/usr/bin/sleep", "1000"]
            task = asyncio.create_task(ripgrep.run_confined(command, [], cwd="/", output=errors, errors=errors))
            for _ in range(loops * 2000):
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await wait_until(lambda: not any("sleep" in command for command in child_processes()))
