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
    """Return the best sandbox of this machine, or none if it is off.

    ``on``: ``SandboxError`` that says how to get one, where there is none. ``auto``: commands then run unconfined, and
    ``say`` (or the log) is told so, once.
    """
    if setting not in ("auto", "on", "off"):
        raise ConfigError(f"sandbox: {setting!r} is none of 'auto', 'on', 'off'")
    if setting == "off":
        return Unconfined(allow_env=allow_env)
    found = _find_best(allow_env, strict=setting == "on", warn=warn)
    if found is not None:
        return found
    why = _explain_missing_sandbox()
    if setting == "on":
        raise SandboxError(f"there is no sandbox here: {why}")
    _warn_once(
        warn, f"commands run WITHOUT a sandbox: {why}; every command that changes something should be asked about"
    )
    return Unconfined(allow_env=allow_env)


def _find_best(allow_env: tuple[str, ...], *, strict: bool, warn: Callable[[str], None] | None) -> Sandbox | None:
    if not IS_LINUX:
        return None
    # They name system calls of Linux when they are loaded.
    from vaka.sandbox.linux import (
        Bubblewrap,  # noqa: PLC0415
        Landlock,  # noqa: PLC0415
    )

    if find_bubblewrap()[0]:
        return Bubblewrap(allow_env=allow_env)
    try:
        found = Landlock(allow_env=allow_env, strict=strict)
    except SandboxError:
        return None
    if found.limitations:
        _warn_once(
            warn, f"the sandbox is weaker than it could be ({find_bubblewrap()[1]}): {'; '.join(found.limitations)}"
        )
    return found


def _explain_missing_sandbox() -> str:
    here = detect_capabilities()
    if not IS_LINUX:
        return f"vaka confines commands on Linux only, and this is {here.system!r}"
    landlock = f"Landlock of version {here.landlock_abi}" if here.landlock_abi else "no Landlock"
    return f"{here.bubblewrap_problem}; and this kernel has {landlock} (3 is needed, Linux 6.2); {INSTALL_BUBBLEWRAP}"


def _warn_once(warn: Callable[[str], None] | None, text: str) -> None:
    if warn is not None:
        warn(text)
    elif text not in _warnings_sent:
        _warnings_sent.add(text)
        _log.warning(text)
