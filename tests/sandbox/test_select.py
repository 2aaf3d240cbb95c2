"""Which sandbox a machine gives, and what it says when it gives none."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from vaka.core.types.errors import ConfigError, SandboxError
from vaka.sandbox.capabilities import detect_capabilities, find_bubblewrap
from vaka.sandbox.linux import Bubblewrap, Landlock
from vaka.sandbox.select import select_sandbox
from vaka.sandbox.unconfined import Unconfined
from vaka.testing.sandboxes import run_to_end, shell_command

IMPORT_SECCOMP = "from vaka.sandbox.warden import kernel, seccomp; kernel.prctl(38, 1)\n"
NO_NAMESPACES = IMPORT_SECCOMP + "kernel.seccomp(seccomp.build(kernel.ARCHITECTURE, 'network'))\n"
"""A process that may make no namespaces, as in most containers: our own filter sees to that."""
NO_LANDLOCK = IMPORT_SECCOMP + (
    "import struct\n"
    "words = [(0x20, 0, 0, 0), (0x15, 0, 1, 444), (6, 0, 0, 0x50026), (0x15, 0, 1, 272), (6, 0, 0, 0x50001),"
    " (0x15, 0, 1, 97), (6, 0, 0, 0x50001), (0x15, 0, 1, 435), (6, 0, 0, 0x50026), (0x15, 0, 4, 56), (0x20, 0, 0, 16),"
    " (0x45, 0, 1, 0x7E020000), (6, 0, 0, 0x50001), (6, 0, 0, 0x7FFF0000), (6, 0, 0, 0x7FFF0000)]\n"
    "kernel.seccomp(b''.join(struct.pack('=HBBI', *word) for word in words))\n"
)
"""A process whose kernel has neither: calls for Landlock are unknown, namespaces are forbidden."""
on_intel = pytest.mark.skipif(os.uname().machine != "x86_64", reason="the filter of this test knows x86-64 only")


def run_python(script: str, path: str | None = None) -> str:
    """Run Python as it would run on another machine, and return what it says."""
    env = {**os.environ, **({"PATH": path} if path is not None else {})}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_off_is_off() -> None:
    assert isinstance(select_sandbox("off"), Unconfined)


def test_the_best_is_chosen() -> None:
    for setting in ("auto", "on"):
        assert isinstance(select_sandbox("on" if setting == "on" else "auto"), Bubblewrap)


def test_other_words_are_refused() -> None:
    with pytest.raises(ConfigError, match="'maybe'"):
        select_sandbox("maybe")  # type: ignore[arg-type]  # people write settings


def test_without_bubblewrap_it_is_landlock(tmp_path: Path) -> None:
    script = "from vaka.sandbox.select import choose; s = choose('on'); print(s.name, s.notes)"
    assert run_python(script, str(tmp_path)) == "landlock ()\n"


@on_intel
def test_in_a_container_it_is_landlock_alone_and_says_what_it_cannot_do() -> None:
    script = NO_NAMESPACES + (
        "from vaka.sandbox.select import choose\nsaid = []\ns = choose('auto', say=said.append)\n"
        "print(s.name, len(s.notes)); print(said[0])"
    )
    first, second = run_python(script).splitlines()
    assert first == "landlock 4"
    assert "weaker" in second
    assert "cannot be held" in second


@on_intel
def test_in_a_container_it_holds_what_it_says_and_refuses_the_rest(tmp_path: Path) -> None:
    script = NO_NAMESPACES + (
        "import asyncio\nfrom vaka.sandbox.select import choose\nfrom vaka.testing.sandboxes import *\n"
        f"here = Path({str(tmp_path)!r})\n"
        "async def main():\n"
        " s = choose('on')\n"
        " script = f'echo x > in && cat in; echo x > {here.parent}/out; exec 3<>/dev/tcp/127.0.0.1/9'\n"
        " ended = await finish(await s.start(shell(script, here))); print(ended.stdout, end='')\n"
        " print('Permission denied' in ended.stderr)\n"
        " try: await s.start(shell('true', here, protected=(f'{here}/vaka.toml',)))\n"
        " except SandboxError as error: print(error)\n"
        " s = choose('auto', say=lambda text: None)\n"
        " command = shell('echo on', here, protected=(f'{here}/vaka.toml',))\n"
        " print((await finish(await s.start(command))).stdout, end='')\n"
        "asyncio.run(main())"
    )
    first, second, third, fourth = run_python(script).splitlines()
    assert (first, second, fourth) == ("x", "True", "on")
    assert "Landlock alone cannot hold" in third
    assert "install bubblewrap" in third
    assert not (tmp_path.parent / "out").exists()


@on_intel
def test_where_there_is_nothing_on_refuses_and_says_how_to_get_it() -> None:
    script = NO_LANDLOCK + (
        "from vaka.sandbox.select import choose\nfrom vaka.core.types.errors import SandboxError\n"
        "try: choose('on')\nexcept SandboxError as error: print(error)\n"
        "said = []\nprint(choose('auto', say=said.append).name, said[0])"
    )
    refused, auto = run_python(script).splitlines()
    assert "apt-get install bubblewrap" in refused
    assert "Landlock" in refused
    assert auto.startswith("none commands run WITHOUT a sandbox")


@on_intel
def test_that_is_said_once() -> None:
    script = NO_LANDLOCK + (
        "import logging\nlogging.basicConfig(format='%(levelname)s %(name)s', stream=__import__('sys').stdout)\n"
        "from vaka.sandbox.select import choose\nchoose('auto'); choose('auto')"
    )
    assert run_python(script) == "WARNING vaka.sandbox\n"


def test_on_another_system_there_is_none_and_commands_still_run(tmp_path: Path) -> None:
    script = (
        "import sys; sys.platform = 'darwin'\nimport asyncio\nfrom vaka.sandbox.select import choose\n"
        "from vaka.core.ports.sandbox import Command\nsaid = []\ns = choose('auto', say=said.append)\n"
        "async def main():\n p = await s.start(Command(argv=('echo', 'hi'), cwd='/'))\n"
        " print([data async for _, data in p.output()], await p.wait())\nprint(s.name, said[0])\nasyncio.run(main())\n"
        "try: choose('on')\nexcept Exception as error: print(error)"
    )
    first, second, third = run_python(script).splitlines()
    assert first.startswith("none commands run WITHOUT a sandbox: vaka confines commands on Linux only")
    assert second == "[b'hi\\n'] 0"
    assert "'darwin'" in third


def test_bubblewrap_that_does_not_work_says_why(tmp_path: Path) -> None:
    broken, old = tmp_path / "broken", tmp_path / "old"
    broken.write_text("#!/bin/sh\ncase $1 in --help) echo --bind-fd;; *) echo No permissions >&2; exit 1;; esac\n")
    old.write_text("#!/bin/sh\necho '--bind SRC DEST'\n")
    for path in (broken, old):
        path.chmod(0o755)
    assert "No permissions" in find_bubblewrap(str(broken))[1]
    assert "too old" in find_bubblewrap(str(old))[1]
    assert "cannot be run" in find_bubblewrap(str(tmp_path / "missing"))[1]
    assert "apt-get install bubblewrap" in find_bubblewrap("")[1]


def test_what_this_machine_can_do_is_known() -> None:
    here = detect_capabilities()
    assert (here.bubblewrap.endswith("bwrap"), here.bubblewrap_problem, here.has_seccomp_filter) == (True, "", True)


async def test_a_program_that_bubblewrap_cannot_start_is_an_error_with_its_words(tmp_path: Path) -> None:
    (tmp_path / "gone").write_text("#!/no/such/interpreter\n")
    (tmp_path / "gone").chmod(0o755)
    ended = await run_to_end(await Bubblewrap().start(shell_command("./gone", tmp_path)))
    assert ended.code in {126, 127}
    for sandbox in (Landlock(), Unconfined()):
        with pytest.raises(SandboxError, match="No such file"):
            await sandbox.start(shell_command("", tmp_path, argv=("./gone",)))


async def test_secrets_can_be_named(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("canary")
    (tmp_path / "work").mkdir()
    for sandbox in (Bubblewrap(secrets=[str(tmp_path / "key")]), Landlock(secrets=[str(tmp_path / "key")])):
        ended = await run_to_end(await sandbox.start(shell_command(f"cat {tmp_path}/key", tmp_path / "work")))
        assert "canary" not in ended.stdout


@on_intel
def test_a_runtime_that_asks_for_one_in_vain_does_not_start() -> None:
    script = NO_LANDLOCK + (
        "import vaka\n"
        "try:\n    vaka.Runtime(sandbox='on')\nexcept vaka.VakaError as error:\n    print(error)\n"
        "print(vaka.Runtime(sandbox='auto').env.world.sandbox.name)\n"
    )
    first, second = run_python(script).splitlines()
    assert first.startswith("there is no sandbox here: ")
    assert second == "none"
