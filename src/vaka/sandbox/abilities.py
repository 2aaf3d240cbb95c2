"""What this machine can enforce, found out by trying."""

import functools
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import msgspec

LINUX = sys.platform == "linux"
GET_BUBBLEWRAP = "install bubblewrap: apt-get install bubblewrap, dnf install bubblewrap, apk add bubblewrap"
_SECONDS = 10.0
_PROBE = """
import sys, types
root = sys.argv[1]
for name, path in (("vaka", root), ("vaka.sandbox", root + "/sandbox")):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [path]
from vaka.sandbox.warden.kinds import spaces_work
print("works" if spaces_work() else "")
"""
# Who ignores the end of its children, as some do to whom it is handed down, has children that wait for ever for theirs.
_HEARING = """
import os, signal, sys
signal.pthread_sigmask(signal.SIG_SETMASK, ())
signal.signal(signal.SIGCHLD, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])
"""


class Abilities(msgspec.Struct, frozen=True, kw_only=True):
    """What there is to confine commands with."""

    system: str
    bubblewrap: str = ""
    """Where it is, when it works."""
    no_bubblewrap: str = ""
    """Why it cannot be used."""
    landlock: int = 0
    """The version of Landlock's interface, 0 for none."""
    namespaces: bool = False
    """Whether namespaces can be made without bubblewrap."""
    filter: bool = False
    """Whether there is a filter of system calls for this processor."""
    groups: frozenset[str] = frozenset()
    """What control groups can bound: ``pids``, ``memory``."""
    root: bool = False


@functools.cache
def abilities() -> Abilities:
    """Look at this machine, once."""
    if not LINUX:
        return Abilities(system=sys.platform, no_bubblewrap=f"there is none for {sys.platform}")
    # They name system calls of Linux when they are loaded.
    from vaka.sandbox.warden import cgroups, kernel, seccomp  # noqa: PLC0415

    found, why = bubblewrap()
    return Abilities(
        system=sys.platform,
        bubblewrap=found,
        no_bubblewrap=why,
        landlock=kernel.landlock_abi(),
        namespaces=namespaces(),
        filter=seccomp.supported(kernel.ARCHITECTURE),
        groups=cgroups.bounded(cgroups.bases()),
        root=os.geteuid() == 0,
    )


@functools.cache
def bubblewrap(program: str | None = None) -> tuple[str, str]:
    """Return where bubblewrap is, or an empty string and why it cannot be used."""
    found = program if program is not None else shutil.which("bwrap")
    if not found:
        return "", f"bwrap is not installed; {GET_BUBBLEWRAP}"
    listed = _run([found, "--help"])
    if listed and "--bind-fd" not in listed:
        return "", f"{found} is too old: it has no --bind-fd; update bubblewrap"
    words = ["--unshare-all", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--remount-ro", "/proc"]
    try:
        done = subprocess.run(
            _hearing([found, *words, "/bin/sh", "-c", "echo works"]),
            capture_output=True, check=False, timeout=_SECONDS, text=True,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", f"{found} cannot be run: {error}"
    if done.stdout != "works\n":
        said = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        return "", f"{found} does not work here: {said}; user namespaces may be switched off"
    return found, ""


@functools.cache
def namespaces() -> bool:
    """Try whether namespaces can be made without bubblewrap."""
    if not LINUX or not sys.executable:
        return False
    root = str(Path(__file__).resolve().parents[1])
    return _run(_hearing([sys.executable, "-I", "-c", _PROBE, root])) == "works\n"


def _hearing(argv: list[str]) -> list[str]:
    """Return a program that hears of the end of its children, also where this one does not."""
    deaf = signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN or signal.pthread_sigmask(signal.SIG_BLOCK, ())
    return [sys.executable, "-I", "-c", _HEARING, *argv] if deaf and sys.executable else argv


def _run(argv: list[str]) -> str:
    try:
        return subprocess.run(argv, capture_output=True, check=False, timeout=_SECONDS, text=True).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""
