"""Select the sandbox that commands run in."""

import logging
from collections.abc import Callable
from typing import Literal, TypeAlias

from vaka.core.ports.sandbox import Sandbox
from vaka.core.types.errors import ConfigError, SandboxError
from vaka.sandbox.capabilities import INSTALL_BUBBLEWRAP, IS_LINUX, detect_capabilities, find_bubblewrap
from vaka.sandbox.unconfined import Unconfined

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
