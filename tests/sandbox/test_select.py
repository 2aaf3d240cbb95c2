"""Which sandbox is selected on a machine, and the messages where there is none."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from vaka.core.types.errors import ConfigError, SandboxError
from vaka.sandbox.linux import Bubblewrap, Landlock
from vaka.sandbox.select import detect_capabilities, find_bubblewrap, select_sandbox
from vaka.sandbox.unconfined import Unconfined
from vaka.testing.sandboxes import run_to_end, shell_command

IMPORT_SECCOMP = "from vaka.sandbox.warden import seccomp; from vaka.system import libc, syscalls; libc.prctl(38, 1)\n"
NO_NAMESPACES = (
    IMPORT_SECCOMP + "syscalls.install_seccomp_filter(seccomp.build_filter(syscalls.ARCHITECTURE, 'network'))\n"
)
"""A process that may not make namespaces, as in most containers: vaka's own filter forbids them."""
NO_LANDLOCK = IMPORT_SECCOMP + (
    "import struct\n"
    "words = [(0x20, 0, 0, 0), (0x15, 0, 1, 444), (6, 0, 0, 0x50026), (0x15, 0, 1, 272), (6, 0, 0, 0x50001),"
    " (0x15, 0, 1, 97), (6, 0, 0, 0x50001), (0x15, 0, 1, 435), (6, 0, 0, 0x50026), (0x15, 0, 4, 56), (0x20, 0, 0, 16),"
    " (0x45, 0, 1, 0x7E020000), (6, 0, 0, 0x50001), (6, 0, 0, 0x7FFF0000), (6, 0, 0, 0x7FFF0000)]\n"
    "syscalls.install_seccomp_filter(b''.join(struct.pack('=HBBI', *word) for word in words))\n"
)
"""A process without Landlock, whose calls fail with ENOSYS, and without namespaces."""
on_intel = pytest.mark.skipif(os.uname().machine != "x86_64", reason="the filter of this test knows x86-64 only")


def run_python(script: str, path: str | None = None) -> str:
    """Run a program in another Python and return what it prints."""
    env = {**os.environ, **({"PATH": path} if path is not None else {})}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_off_selects_no_sandbox() -> None:
    assert isinstance(select_sandbox("off"), Unconfined)


def test_bubblewrap_is_preferred() -> None:
    for setting in ("auto", "on"):
        assert isinstance(select_sandbox("on" if setting == "on" else "auto"), Bubblewrap)


def test_an_unknown_setting_is_refused() -> None:
    with pytest.raises(ConfigError, match="'maybe'"):
        select_sandbox("maybe")  # type: ignore[arg-type]  # people write settings


def test_without_bubblewrap_landlock_is_selected(tmp_path: Path) -> None:
    script = "from vaka.sandbox.select import select_sandbox; s = select_sandbox('on'); print(s.name, s.limitations)"
    assert run_python(script, str(tmp_path)) == "landlock ()\n"


@on_intel
def test_in_a_container_landlock_is_selected_with_a_warning() -> None:
    script = NO_NAMESPACES + (
        "from vaka.sandbox.select import select_sandbox\nwarnings = []\n"
        "s = select_sandbox('auto', warn=warnings.append)\n"
        "print(s.name, len(s.limitations)); print(warnings[0])"
    )
    first, second = run_python(script).splitlines()
    assert first == "landlock 4"
    assert "weaker" in second
    assert "cannot be protected" in second


@on_intel
def test_landlock_alone_confines_a_command_and_refuses_one_that_it_cannot(tmp_path: Path) -> None:
    script = NO_NAMESPACES + (
        "import asyncio\nfrom vaka.sandbox.select import select_sandbox\nfrom vaka.testing.sandboxes import *\n"
        f"here = Path({str(tmp_path)!r})\n"
        "async def main():\n"
        " s = select_sandbox('on')\n"
        " script = f'echo x > in && cat in; echo x > {here.parent}/out; exec 3<>/dev/tcp/127.0.0.1/9'\n"
        " ended = await run_to_end(await s.start(shell_command(script, here))); print(ended.stdout, end='')\n"
        " print('Permission denied' in ended.stderr)\n"
        " missing = shell_command('mkdir .vscode', here, protected=(f'{here}/.vscode',))\n"
        " await run_to_end(await s.start(missing)); print((here / '.vscode').exists())\n"
        " (here / 'vaka.toml').touch()\n"
        " try: await s.start(shell_command('true', here, protected=(f'{here}/vaka.toml',)))\n"
        " except SandboxError as error: print(error)\n"
        " s = select_sandbox('auto', warn=lambda text: None)\n"
        " command = shell_command('echo on', here, protected=(f'{here}/vaka.toml',))\n"
        " print((await run_to_end(await s.start(command))).stdout, end='')\n"
        "asyncio.run(main())"
    )
    first, second, planted, refused, last = run_python(script).splitlines()
    assert (first, second, planted, last) == ("x", "True", "False", "on")
    assert "Landlock alone cannot protect" in refused
    assert "install bubblewrap" in refused
    assert not (tmp_path.parent / "out").exists()


@on_intel
def test_without_any_sandbox_on_refuses_and_names_the_remedy() -> None:
    script = NO_LANDLOCK + (
        "from vaka.sandbox.select import select_sandbox\nfrom vaka.core.types.errors import SandboxError\n"
        "try: select_sandbox('on')\nexcept SandboxError as error: print(error)\n"
        "warnings = []\nprint(select_sandbox('auto', warn=warnings.append).name, warnings[0])"
    )
    refused, auto = run_python(script).splitlines()
    assert "apt-get install bubblewrap" in refused
    assert "Landlock" in refused
    assert auto.startswith("none commands run WITHOUT a sandbox")


@on_intel
def test_the_warning_is_logged_once() -> None:
    script = NO_LANDLOCK + (
        "import logging\nlogging.basicConfig(format='%(levelname)s %(name)s', stream=__import__('sys').stdout)\n"
        "from vaka.sandbox.select import select_sandbox\nselect_sandbox('auto'); select_sandbox('auto')"
    )
    assert run_python(script) == "WARNING vaka.sandbox\n"


def test_on_another_system_commands_run_without_a_sandbox(tmp_path: Path) -> None:
    script = (
        "import sys; sys.platform = 'darwin'\nimport asyncio\nfrom vaka.sandbox.select import select_sandbox\n"
        "from vaka.core.ports.sandbox import Command\nwarnings = []\ns = select_sandbox('auto', warn=warnings.append)\n"
        "async def main():\n p = await s.start(Command(argv=('echo', 'hi'), cwd='/'))\n"
        " print([data async for _, data in p.output()], await p.wait())\nprint(s.name, warnings[0])\n"
        "asyncio.run(main())\n"
        "try: select_sandbox('on')\nexcept Exception as error: print(error)"
    )
    first, second, third = run_python(script).splitlines()
    assert first.startswith("none commands run WITHOUT a sandbox: vaka confines commands on Linux only")
    assert second == "[b'hi\\n'] 0"
    assert "'darwin'" in third


def test_a_bubblewrap_that_does_not_work_is_reported_with_the_reason(tmp_path: Path) -> None:
    broken, old = tmp_path / "broken", tmp_path / "old"
    broken.write_text("#!/bin/sh\ncase $1 in --help) echo --bind-fd;; *) echo No permissions >&2; exit 1;; esac\n")
    old.write_text("#!/bin/sh\necho '--bind SRC DEST'\n")
    for path in (broken, old):
        path.chmod(0o755)
    assert "No permissions" in find_bubblewrap(str(broken))[1]
    assert "too old" in find_bubblewrap(str(old))[1]
    assert "cannot be run" in find_bubblewrap(str(tmp_path / "missing"))[1]
    assert "apt-get install bubblewrap" in find_bubblewrap("")[1]


def test_the_capabilities_of_this_machine_are_detected() -> None:
    machine = detect_capabilities()
    found = (machine.bubblewrap.endswith("bwrap"), machine.bubblewrap_problem, machine.has_seccomp_filter)
    assert found == (True, "", True)


async def test_a_program_that_cannot_be_executed_is_reported(tmp_path: Path) -> None:
    (tmp_path / "gone").write_text("#!/no/such/interpreter\n")
    (tmp_path / "gone").chmod(0o755)
    ended = await run_to_end(await Bubblewrap().start(shell_command("./gone", tmp_path)))
    assert ended.code in {126, 127}
    for sandbox in (Landlock(), Unconfined()):
        with pytest.raises(SandboxError, match="No such file"):
            await sandbox.start(shell_command("", tmp_path, argv=("./gone",)))


async def test_the_paths_in_secrets_are_hidden(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("canary")
    (tmp_path / "work").mkdir()
    for sandbox in (Bubblewrap(secrets=[str(tmp_path / "key")]), Landlock(secrets=[str(tmp_path / "key")])):
        ended = await run_to_end(await sandbox.start(shell_command(f"cat {tmp_path}/key", tmp_path / "work")))
        assert "canary" not in ended.stdout


@on_intel
def test_a_runtime_that_requires_a_sandbox_does_not_start_without_one() -> None:
    script = NO_LANDLOCK + (
        "import vaka\nfrom vaka.config.options import Commands\n"
        "try:\n    vaka.Runtime(commands=Commands(sandbox='on'))\nexcept vaka.VakaError as error:\n    print(error)\n"
        "print(vaka.Runtime(commands=Commands(sandbox='auto')).env.world.sandbox.name)\n"
    )
    first, second = run_python(script).splitlines()
    assert first.startswith("there is no sandbox here: ")
    assert second == "none"
