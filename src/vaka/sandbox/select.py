"""Select the sandbox that commands run in, by what this machine can enforce; that is found by trying."""

import functools
import logging
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from vaka.core.ports.sandbox import Sandbox
from vaka.core.types.errors import ConfigError, SandboxError
from vaka.sandbox.unconfined import Unconfined

IS_LINUX = sys.platform == "linux"

INSTALL_BUBBLEWRAP = "install bubblewrap: apt-get install bubblewrap, dnf install bubblewrap, apk add bubblewrap"

_PROBE_TIMEOUT = 10.0

PACKAGE_ROOT = str(Path(__file__).resolve().parents[1])
# What the warden runs must be small and start fast: stub packages keep ``vaka/__init__`` and its imports out of it.
IMPORT_STUBS = """
import sys, types
root = sys.argv[1]
for name, path in (("vaka", root), ("vaka.sandbox", root + "/sandbox")):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [path]
"""
_NAMESPACE_PROBE = f"""{IMPORT_STUBS}
from vaka.sandbox.warden.launchers import namespaces_work
print("works" if namespaces_work() else "")
"""

# A child inherits an ignored SIGCHLD; reset it, or a program that waits for its own children waits for ever.
_RESET_SIGNALS_AND_EXEC = """
import os, signal, sys
signal.pthread_sigmask(signal.SIG_SETMASK, ())
signal.signal(signal.SIGCHLD, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])
"""


class SandboxCapabilities(msgspec.Struct, frozen=True, kw_only=True):
    """The means of this machine to confine commands."""

    system: str
    bubblewrap: str = ""
    """The path of bubblewrap, if it works."""
    bubblewrap_problem: str = ""
    """Why bubblewrap cannot be used."""
    landlock_abi: int = 0
    """The version of Landlock's interface, 0 for none."""
    has_namespaces: bool = False
    """Whether namespaces can be made without bubblewrap."""
    has_seccomp_filter: bool = False
    """Whether there is a seccomp filter for this processor."""
    cgroup_controllers: frozenset[str] = frozenset()
    """The resources that control groups can limit: ``pids``, ``memory``."""
    is_root: bool = False


@functools.cache
def detect_capabilities() -> SandboxCapabilities:
    """Probe this machine; the result is cached."""
    if not IS_LINUX:
        return SandboxCapabilities(system=sys.platform, bubblewrap_problem=f"there is none for {sys.platform}")
    # These modules use names that exist only on Linux.
    from vaka.sandbox.warden import resource_limits, seccomp  # noqa: PLC0415
    from vaka.system import landlock, syscalls  # noqa: PLC0415

    program, problem = find_bubblewrap()
    return SandboxCapabilities(
        system=sys.platform,
        bubblewrap=program,
        bubblewrap_problem=problem,
        landlock_abi=landlock.abi_version(),
        has_namespaces=can_make_namespaces(),
        has_seccomp_filter=syscalls.ARCHITECTURE in seccomp.ARCHITECTURES,
        cgroup_controllers=resource_limits.controllers_of(resource_limits.find_cgroup_bases()),
        is_root=os.geteuid() == 0,
    )


@functools.cache
def find_bubblewrap(program: str | None = None) -> tuple[str, str]:
    """Return the path of bubblewrap, or an empty string and why it cannot be used."""
    path = program if program is not None else shutil.which("bwrap")
    if not path:
        return "", f"bwrap is not installed; {INSTALL_BUBBLEWRAP}"
    usage = _run_probe([path, "--help"])
    if usage and "--bind-fd" not in usage:
        return "", f"{path} is too old: it has no --bind-fd; update bubblewrap"
    options = ["--unshare-all", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--remount-ro", "/proc"]
    try:
        done = subprocess.run(
            _with_default_signals([path, *options, "/bin/sh", "-c", "echo works"]),
            capture_output=True,
            check=False,
            timeout=_PROBE_TIMEOUT,
            text=True,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", f"{path} cannot be run: {error}"
    if done.stdout != "works\n":
        problem = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        return "", f"{path} does not work here: {problem}; user namespaces may be switched off"
    return path, ""


@functools.cache
def can_make_namespaces() -> bool:
    """Return whether namespaces can be made without bubblewrap; tried in another process."""
    if not IS_LINUX or not sys.executable:
        return False
    return _run_probe(_with_default_signals([sys.executable, "-I", "-c", _NAMESPACE_PROBE, PACKAGE_ROOT])) == "works\n"


def _with_default_signals(argv: list[str]) -> list[str]:
    """Return a command that resets signals first, if this process ignores SIGCHLD or blocks any signal."""
    inherits = signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN or signal.pthread_sigmask(signal.SIG_BLOCK, ())
    return [sys.executable, "-I", "-c", _RESET_SIGNALS_AND_EXEC, *argv] if inherits and sys.executable else argv


def _run_probe(argv: list[str]) -> str:
    try:
        return subprocess.run(argv, capture_output=True, check=False, timeout=_PROBE_TIMEOUT, text=True).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


def enforced_limits(user: tuple[int, int] | None, *, cgroups: bool) -> frozenset[str]:
    """Return what resource limits and the seccomp filter enforce on this machine."""
    machine = detect_capabilities()
    # RLIMIT_NPROC does not bind root: only a control group or another user does.
    unprivileged = not machine.is_root or (user is not None and user[0] != 0)
    enforced = {
        "memory": True,
        "processes": unprivileged or (cgroups and "pids" in machine.cgroup_controllers),
        "syscalls": machine.has_seccomp_filter,
    }
    return frozenset(name for name, holds in enforced.items() if holds)


SandboxSetting: TypeAlias = Literal["auto", "on", "off"]

_log = logging.getLogger("vaka.sandbox")
_warnings_sent: set[str] = set()


def select_sandbox(
    setting: SandboxSetting = "auto", *, allow_env: tuple[str, ...] = (), warn: Callable[[str], None] | None = None
) -> Sandbox:
    """Return the best sandbox of this machine, or ``Unconfined`` if it is off.

    Where there is none, ``on`` raises a ``SandboxError`` that names the remedy; ``auto`` returns ``Unconfined`` and
    passes a warning to ``warn``, or to the log once.
    """
    if setting not in ("auto", "on", "off"):
        raise ConfigError(f"sandbox is {setting!r}; expected 'auto', 'on' or 'off'")
    if setting == "off":
        return Unconfined(allow_env=allow_env)
    best = _find_best(allow_env, strict=setting == "on", warn=warn)
    if best is not None:
        return best
    problem = _explain_missing_sandbox()
    if setting == "on":
        raise SandboxError(f"there is no sandbox here: {problem}")
    _warn_once(
        warn, f"commands run WITHOUT a sandbox: {problem}; every command that changes something should be asked about"
    )
    return Unconfined(allow_env=allow_env)


def _find_best(allow_env: tuple[str, ...], *, strict: bool, warn: Callable[[str], None] | None) -> Sandbox | None:
    if not IS_LINUX:
        return None
    from vaka.sandbox.linux import Bubblewrap, Landlock  # noqa: PLC0415  # uses names that exist only on Linux

    if find_bubblewrap()[0]:
        return Bubblewrap(allow_env=allow_env)
    try:
        landlock = Landlock(allow_env=allow_env, strict=strict)
    except SandboxError:
        return None
    if landlock.limitations:
        _warn_once(
            warn, f"the sandbox is weaker than it could be ({find_bubblewrap()[1]}): {'; '.join(landlock.limitations)}"
        )
    return landlock


def _explain_missing_sandbox() -> str:
    machine = detect_capabilities()
    if not IS_LINUX:
        return f"vaka confines commands on Linux only, and this is {machine.system!r}"
    landlock = f"Landlock of version {machine.landlock_abi}" if machine.landlock_abi else "no Landlock"
    problem = machine.bubblewrap_problem
    return f"{problem}; and this kernel has {landlock} (3 is needed, Linux 6.2); {INSTALL_BUBBLEWRAP}"


def _warn_once(warn: Callable[[str], None] | None, text: str) -> None:
    if warn is not None:
        warn(text)
    elif text not in _warnings_sent:
        _warnings_sent.add(text)
        _log.warning(text)
