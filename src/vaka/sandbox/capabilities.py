"""What this machine can enforce (bubblewrap, Landlock, namespaces, seccomp, control groups), found by trying."""

import functools
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import msgspec

IS_LINUX = sys.platform == "linux"

INSTALL_BUBBLEWRAP = "install bubblewrap: apt-get install bubblewrap, dnf install bubblewrap, apk add bubblewrap"

_PROBE_TIMEOUT = 10.0

_NAMESPACE_PROBE = """
import sys, types
root = sys.argv[1]
for name, path in (("vaka", root), ("vaka.sandbox", root + "/sandbox")):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [path]
from vaka.sandbox.warden.launchers import spaces_work
print("works" if spaces_work() else "")
"""

# Who ignores the end of its children, as some do to whom it is handed down, has children that wait for ever for theirs.
_RESET_SIGNALS_AND_EXEC = """
import os, signal, sys
signal.pthread_sigmask(signal.SIG_SETMASK, ())
signal.signal(signal.SIGCHLD, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])
"""


class SandboxCapabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What there is to confine commands with."""

    system: str
    bubblewrap: str = ""
    """Where it is, when it works."""
    bubblewrap_problem: str = ""
    """Why it cannot be used."""
    landlock_abi: int = 0
    """The version of Landlock's interface, 0 for none."""
    has_namespaces: bool = False
    """Whether namespaces can be made without bubblewrap."""
    has_seccomp_filter: bool = False
    """Whether there is a filter of system calls for this processor."""
    cgroup_controllers: frozenset[str] = frozenset()
    """What control groups can bound: ``pids``, ``memory``."""
    is_root: bool = False


@functools.cache
def detect_capabilities() -> SandboxCapabilities:
    """Look at this machine, once."""
    if not IS_LINUX:
        return SandboxCapabilities(system=sys.platform, bubblewrap_problem=f"there is none for {sys.platform}")
    # They name system calls of Linux when they are loaded.
    from vaka.sandbox.warden import resource_limits as cgroups  # noqa: PLC0415
    from vaka.sandbox.warden import seccomp
    from vaka.sandbox.warden import syscalls as kernel

    found, why = find_bubblewrap()
    return SandboxCapabilities(
        system=sys.platform,
        bubblewrap=found,
        bubblewrap_problem=why,
        landlock_abi=kernel.landlock_abi_version(),
        has_namespaces=can_make_namespaces(),
        has_seccomp_filter=seccomp.is_supported(kernel.ARCHITECTURE),
        cgroup_controllers=cgroups.controllers_of(cgroups.find_cgroup_bases()),
        is_root=os.geteuid() == 0,
    )


@functools.cache
def find_bubblewrap(program: str | None = None) -> tuple[str, str]:
    """Return where bubblewrap is, or an empty string and why it cannot be used."""
    found = program if program is not None else shutil.which("bwrap")
    if not found:
        return "", f"bwrap is not installed; {INSTALL_BUBBLEWRAP}"
    listed = _run_probe([found, "--help"])
    if listed and "--bind-fd" not in listed:
        return "", f"{found} is too old: it has no --bind-fd; update bubblewrap"
    words = ["--unshare-all", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--remount-ro", "/proc"]
    try:
        done = subprocess.run(
            _with_default_signals([found, *words, "/bin/sh", "-c", "echo works"]),
            capture_output=True, check=False, timeout=_PROBE_TIMEOUT, text=True,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", f"{found} cannot be run: {error}"
    if done.stdout != "works\n":
        said = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        return "", f"{found} does not work here: {said}; user namespaces may be switched off"
    return found, ""


@functools.cache
def can_make_namespaces() -> bool:
    """Try whether namespaces can be made without bubblewrap."""
    if not IS_LINUX or not sys.executable:
        return False
    root = str(Path(__file__).resolve().parents[1])
    return _run_probe(_with_default_signals([sys.executable, "-I", "-c", _NAMESPACE_PROBE, root])) == "works\n"


def _with_default_signals(argv: list[str]) -> list[str]:
    """Return a program that hears of the end of its children, also where this one does not."""
    deaf = signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN or signal.pthread_sigmask(signal.SIG_BLOCK, ())
    return [sys.executable, "-I", "-c", _RESET_SIGNALS_AND_EXEC, *argv] if deaf and sys.executable else argv


def _run_probe(argv: list[str]) -> str:
    try:
        return subprocess.run(argv, capture_output=True, check=False, timeout=_PROBE_TIMEOUT, text=True).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


def enforced_limits(user: tuple[int, int] | None, *, cgroups: bool) -> frozenset[str]:
    """Return what limits and the filter see to on this machine."""
    here = detect_capabilities()
    # Root obeys no limit on processes but that of a control group, unless it becomes somebody else.
    counted = not here.is_root or (user is not None and user[0] != 0) or (cgroups and "pids" in here.cgroup_controllers)
    found = (
        {"memory"}
        | ({"processes"} if counted else set[str]())
        | ({"syscalls"} if here.has_seccomp_filter else set[str]())
    )
    return frozenset(found)
