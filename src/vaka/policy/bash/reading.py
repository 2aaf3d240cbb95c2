"""From the text of a command to every simple command in it."""

import msgspec

from vaka.policy.bash import parsing
from vaka.policy.bash.fragments import fragments
from vaka.policy.bash.quoting import Mismatch
from vaka.policy.bash.text import join_lines, unprintable
from vaka.policy.bash.walking import Walk
from vaka.policy.bash.words import Script, Unreadable

LONGEST = 10_000
"""Characters; a longer text is never allowed without a question, whatever it says."""
MOST = 128 * 1024
"""Characters of a text that is read at all: the kernel takes no longer argument, so no longer command can run."""

_DEEPEST = 8


def read(command: str) -> Script | Unreadable:
    """Return every simple command of a text, or why it has no single sure reading. Never raises, runs nothing."""
    if not parsing.available():
        return _unreadable(command, "the grammar of bash is not installed: pip install 'vaka[shell]'")
    if len(command) > MOST:
        reason = f"it is longer than {MOST} characters, which cannot be run"
        return Unreadable(command, reason, fragments(command[:MOST]))
    if problem := unprintable(command):
        return _unreadable(command, problem)
    try:
        script = _read(command, 0)
    except Mismatch as error:
        return _unreadable(command, str(error))
    except RecursionError:
        return _unreadable(command, "it is nested too deeply")
    except (LookupError, ValueError):  # a tree of a shape that bash's own grammar does not have
        return _unreadable(command, "it is not understood")
    if len(command) > LONGEST:
        return msgspec.structs.replace(
            script, doubts=(*script.doubts, f"it is longer than {LONGEST} characters"), given=()
        )
    return script


def _unreadable(command: str, reason: str) -> Unreadable:
    return Unreadable(command, reason, fragments(command))


def _read(command: str, depth: int) -> Script:
    """Read a text, and the scripts inside its words with it."""
    if depth > _DEEPEST:
        raise Mismatch("scripts inside scripts go too deep")
    if depth and (problem := unprintable(command)):
        raise Mismatch(problem)
    text = join_lines(command)
    if text is None:
        raise Mismatch("it is not certain which of its lines are one")
    data = text.encode("utf-8")
    root = parsing.parse(data)
    if root is None or root.has_error:
        raise Mismatch("it is not valid bash")
    walk = Walk(data.decode("latin-1"), text, lambda inner: _read(inner, depth + 1))
    walk.program(root)
    return walk.script()
