"""The seccomp filter, tested from inside a sandbox."""

import json
import os
import resource
import shlex
import subprocess
from pathlib import Path

import pytest

from vaka.core.ports.sandbox import Sandbox
from vaka.sandbox.linux import Bubblewrap, Landlock
from vaka.sandbox.warden import seccomp
from vaka.sandbox.warden_client import build_seccomp_filter_hex
from vaka.system import syscalls
from vaka.testing.sandboxes import run_to_end, shell_command

COLUMN = 0 if syscalls.ARCHITECTURE == "x86_64" else 1
DENIED = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "move_mount": (429, 429),
    "open_tree": (428, 428),
    "fsopen": (430, 430),
    "mount_setattr": (442, 442),
    "unshare": (272, 97),
    "setns": (308, 268),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "kexec_load": (246, 104),
    "init_module": (175, 105),
    "delete_module": (176, 106),
    "swapon": (167, 224),
    "open_by_handle_at": (304, 265),
    "pidfd_getfd": (438, 438),
    "chroot": (161, 51),
}
REPORTED_AS_MISSING = {"clone3": 435, "io_uring_setup": 425, "io_uring_enter": 426, "openat2": 437}
CALL_PROGRAM = (
    "import ctypes, json, sys\nlibc = ctypes.CDLL(None, use_errno=True)\nfound = {}\n"
    "for name, number in json.loads(sys.argv[1]).items():\n"
    " ctypes.set_errno(0); result = libc.syscall(number, -1, -1, -1, -1, -1, -1)\n"
    " found[name] = ctypes.get_errno() if result < 0 else 0\nprint(json.dumps(found))"
)
"""All arguments are -1, which none of these calls accepts: without a filter they fail with another error."""

pytestmark = pytest.mark.skipif(
    syscalls.ARCHITECTURE not in seccomp.ARCHITECTURES, reason=f"there is no filter for {syscalls.ARCHITECTURE}"
)


async def run_python(sandbox: Sandbox, script: str, workspace: Path, *words: str) -> str:
    argv = " ".join(shlex.quote(word) for word in ("/usr/bin/python3", "-c", script, *words))
    return (await run_to_end(await sandbox.start(shell_command(argv, workspace)))).stdout


@pytest.mark.parametrize("kind", [Bubblewrap, Landlock])
async def test_dangerous_system_calls_are_refused(kind: type[Bubblewrap], tmp_path: Path) -> None:
    numbers = {name: pair[COLUMN] for name, pair in DENIED.items()} | REPORTED_AS_MISSING
    found = json.loads(await run_python(kind(), CALL_PROGRAM, tmp_path, json.dumps(numbers)))
    assert found == dict.fromkeys(DENIED, 1) | dict.fromkeys(REPORTED_AS_MISSING, 38)


@pytest.mark.parametrize("kind", [Bubblewrap, Landlock])
async def test_new_namespaces_are_refused_in_clone(kind: type[Bubblewrap], tmp_path: Path) -> None:
    clone = (56, 220)[COLUMN]
    script = (
        "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        f"for flag in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):\n"
        f" result = libc.syscall({clone}, flag | 17, 0, 0, 0, 0)\n"
        " if result == 0: import os; os._exit(0)\n print(result, ctypes.get_errno())"
    )
    assert await run_python(kind(), script, tmp_path) == "-1 1\n" * 7


@pytest.mark.parametrize("kind", [Bubblewrap, Landlock])
async def test_only_ordinary_sockets_can_be_made(kind: type[Bubblewrap], tmp_path: Path) -> None:
    script = (
        "import socket\nmade = []\nfor family in range(1, 46):\n for sort in (1, 2, 3, 5):\n"
        "  for protocol in (0, 4, 9, 16):\n"
        "   try: socket.socket(family, sort, protocol).close(); made.append(family)\n   except OSError: pass\n"
        "print(sorted(set(made)))"
    )
    assert await run_python(kind(), script, tmp_path) == "[1, 2, 10, 16]\n"


@pytest.mark.parametrize("kind", [Bubblewrap, Landlock])
async def test_setuid_and_setgid_programs_cannot_be_made(kind: type[Bubblewrap], tmp_path: Path) -> None:
    script = (
        "import os, stat\nopen('f', 'w').close(); f = os.open('f', os.O_RDONLY)\n"
        "ways = {\n"
        " 'chmod': lambda: os.chmod('f', 0o4755), 'fchmod': lambda: os.fchmod(f, 0o4755),\n"
        " 'both': lambda: os.chmod('f', 0o6755), 'group': lambda: os.chmod('f', 0o2755),\n"
        " 'mknod': lambda: os.mknod('n', stat.S_IFREG | 0o4755),\n"
        " 'open': lambda: os.open('o', os.O_CREAT | os.O_WRONLY, 0o4755),\n"
        " 'unnamed': lambda: os.open('.', os.O_TMPFILE | os.O_WRONLY, 0o4755)}\n"
        "for name, way in ways.items():\n try: way(); print(name)\n except PermissionError: pass\n"
        "os.chmod('f', 0o1755); os.chmod('.', 0o1755); os.open('.', os.O_RDONLY, 0o4755); print('rest')"
    )
    assert await run_python(kind(), script, tmp_path) == "rest\n"
    assert [path for path in tmp_path.iterdir() if path.stat().st_mode & 0o6000] == []
    said = await run_to_end(
        await kind().start(shell_command("cp /bin/true t && chmod u+s t; chmod g+s t; stat -c %a t", tmp_path))
    )
    assert said.stdout == "755\n"


@pytest.mark.parametrize("kind", [Bubblewrap, Landlock])
async def test_limits_and_priorities_of_other_processes_cannot_be_changed(
    kind: type[Bubblewrap], tmp_path: Path
) -> None:
    script = (
        "import os, resource, sys\nfiles = resource.RLIMIT_NOFILE\n"
        "for way in (lambda: resource.prlimit(int(sys.argv[1]), files, (40, 40)),\n"
        "            lambda: os.setpriority(os.PRIO_PROCESS, int(sys.argv[1]), 19),\n"
        "            lambda: os.setpriority(os.PRIO_USER, 0, 19)):\n"
        " try: way(); print('reached')\n except (PermissionError, ProcessLookupError): pass\n"
        "resource.setrlimit(files, (50, 50)); os.setpriority(os.PRIO_PROCESS, 0, 5); os.nice(1)\n"
        "print(resource.prlimit(os.getpid(), files), os.getpriority(os.PRIO_PROCESS, 0))"
    )
    with subprocess.Popen(["sleep", "1000"]) as outside:
        try:
            before = resource.prlimit(outside.pid, resource.RLIMIT_NOFILE), os.getpriority(os.PRIO_PROCESS, outside.pid)
            assert await run_python(kind(), script, tmp_path, str(outside.pid)) == "(50, 50) 6\n"
            after = resource.prlimit(outside.pid, resource.RLIMIT_NOFILE), os.getpriority(os.PRIO_PROCESS, outside.pid)
        finally:
            outside.kill()
    assert after == before


async def test_without_namespaces_only_socket_pairs_can_be_made(tmp_path: Path) -> None:
    script = (
        "import socket\nfor family in (1, 2, 10, 16, 40):\n try: socket.socket(family, 1); print(family)\n"
        " except OSError as error: print(error.errno)\nsocket.socketpair(); print('pair')"
    )
    assert await run_python(Landlock(namespaces=False), script, tmp_path) == "13\n" * 5 + "pair\n"


async def test_without_namespaces_system_v_ipc_is_refused(tmp_path: Path) -> None:
    numbers = {
        "shmget": (29, 194),
        "semget": (64, 190),
        "msgget": (68, 186),
        "mq_open": (240, 180),
        "shmctl": (31, 195),
    }
    asked = json.dumps({name: pair[COLUMN] for name, pair in numbers.items()})
    assert json.loads(await run_python(Landlock(namespaces=False), CALL_PROGRAM, tmp_path, asked)) == dict.fromkeys(
        numbers, 13
    )
    made = "import ctypes; libc = ctypes.CDLL(None); print(libc.shmctl(libc.shmget(0, 4096, 0o1600), 0, None))"
    assert await run_python(Landlock(), made, tmp_path) == "0\n"


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_every_filter_is_a_valid_program(machine: str) -> None:
    for sockets in ("network", "none"):
        program = seccomp.build_filter(machine, "network" if sockets == "network" else "none")
        assert len(program) % 8 == 0
        count = len(program) // 8
        assert count < 4096
        for at in range(count):
            operation = program[at * 8]
            yes = program[at * 8 + 2]
            no = program[at * 8 + 3]
            if operation != 0x06:
                assert at + 1 + max(yes, no) < count


def test_other_processors_have_no_filter() -> None:
    assert "riscv64" not in seccomp.ARCHITECTURES
    with pytest.raises(KeyError):
        seccomp.build_filter("riscv64", "network")


async def test_ordinary_programs_work_under_the_filter(tmp_path: Path) -> None:
    script = (
        "import asyncio, multiprocessing, subprocess, threading, socket, tempfile, sqlite3\n"
        "def work(n): return n * n\n"
        "with multiprocessing.Pool(2) as pool: print(pool.map(work, [1, 2, 3]))\n"
        "print(subprocess.run(['git', '--version'], capture_output=True).returncode)\n"
        "t = threading.Thread(target=print, args=('thread',)); t.start(); t.join()\n"
        "async def serve():\n s = await asyncio.start_server(lambda r, w: w.close(), '127.0.0.1', 0)\n"
        " r, w = await asyncio.open_connection(*s.sockets[0].getsockname()); print(await r.read()); w.close()\n"
        "asyncio.run(serve())\nprint(sqlite3.connect('a.db').execute('select 1').fetchall())"
    )
    expected = "[1, 4, 9]\n0\nthread\nb''\n[(1,)]\n"
    for sandbox in (Bubblewrap(), Landlock()):
        assert await run_python(sandbox, script, tmp_path) == expected


def test_there_is_a_filter_for_this_machine() -> None:
    assert bytes.fromhex(build_seccomp_filter_hex())[:8] != b""
    assert os.uname().machine == syscalls.ARCHITECTURE
