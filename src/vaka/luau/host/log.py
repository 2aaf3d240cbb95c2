"""``ctx.log``: lines for the operator."""

from vaka.core.types.errors import ScriptError
from vaka.core.types.ids import JSON
from vaka.luau.host.parts import Parts
from vaka.luau.script import Functions, HostFunction

LEVELS = ("debug", "info", "warning", "error")
MOST_CHARACTERS = 100_000


def log_functions(parts: Parts) -> Functions:
    """``log``: a level and a line. It needs no record: a script that is replayed writes the same lines again."""

    async def log(level: JSON, line: JSON) -> None:
        if level not in LEVELS:
            raise ScriptError(f"log: there is no level {level!r}; it is {', '.join(LEVELS)}")
        words = line.decode("utf-8", "replace") if isinstance(line, bytes) else str(line)
        if parts.log is not None:
            parts.log(level, words if len(words) <= MOST_CHARACTERS else f"{words[:MOST_CHARACTERS]}…")

    return {"log": HostFunction(log, local=True)}
