"""Which sandbox commands run in."""

import logging
from collections.abc import Callable
from typing import Literal, TypeAlias

from vaka.core.ports.sandbox import Sandbox
from vaka.core.types.errors import ConfigError, SandboxError
from vaka.sandbox.abilities import GET_BUBBLEWRAP, LINUX, abilities, bubblewrap
from vaka.sandbox.none import Unconfined

Setting: TypeAlias = Literal["auto", "on", "off"]

_log = logging.getLogger("vaka.sandbox")
_said: set[str] = set()


def choose(
    setting: Setting = "auto", *, allow_env: tuple[str, ...] = (), say: Callable[[str], None] | None = None
) -> Sandbox:
    """Return the best sandbox of this machine, or none if it is off.

    ``on``: ``SandboxError`` that says how to get one, where there is none. ``auto``: commands then run unconfined, and
    ``say`` (or the log) is told so, once.
    """
    if setting not in ("auto", "on", "off"):
        raise ConfigError(f"sandbox: {setting!r} is none of 'auto', 'on', 'off'")
    if setting == "off":
        return Unconfined(allow_env=allow_env)
    found = _best(allow_env, strict=setting == "on", say=say)
    if found is not None:
        return found
    why = _why()
    if setting == "on":
        raise SandboxError(f"there is no sandbox here: {why}")
    _once(say, f"commands run WITHOUT a sandbox: {why}; every command that changes something should be asked about")
    return Unconfined(allow_env=allow_env)


def _best(allow_env: tuple[str, ...], *, strict: bool, say: Callable[[str], None] | None) -> Sandbox | None:
    if not LINUX:
        return None
    # They name system calls of Linux when they are loaded.
    from vaka.sandbox.bubblewrap import Bubblewrap  # noqa: PLC0415
    from vaka.sandbox.landlock import Landlock  # noqa: PLC0415

    if bubblewrap()[0]:
        return Bubblewrap(allow_env=allow_env)
    try:
        found = Landlock(allow_env=allow_env, strict=strict)
    except SandboxError:
        return None
    if found.notes:
        _once(say, f"the sandbox is weaker than it could be ({bubblewrap()[1]}): {'; '.join(found.notes)}")
    return found


def _why() -> str:
    here = abilities()
    if not LINUX:
        return f"vaka confines commands on Linux only, and this is {here.system!r}"
    landlock = f"Landlock of version {here.landlock}" if here.landlock else "no Landlock"
    return f"{here.no_bubblewrap}; and this kernel has {landlock} (3 is needed, Linux 6.2); {GET_BUBBLEWRAP}"


def _once(say: Callable[[str], None] | None, text: str) -> None:
    if say is not None:
        say(text)
    elif text not in _said:
        _said.add(text)
        _log.warning(text)
