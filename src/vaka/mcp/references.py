"""References to variables in definitions of servers: ``${NAME}``, or ``${NAME:-default}`` with a default."""

import re
from collections.abc import Mapping

from vaka.core.types.message import replace_surrogates

MAX_DEFAULTS = 10
"""How deep defaults may have references with defaults."""

_BRACE = re.compile(r"\$\{|\}")


def expand_references(text: str, environment: Mapping[str, str], depth: int = 0) -> tuple[str, list[str], str]:
    """Return a text with the values of its references, the names of variables that are not set, and what is wrong.

    Values are not searched for references again. An empty variable counts as not set where there is a default.
    """
    pieces: list[str] = []
    missing: list[str] = []
    problem, at = "", 0
    if depth == MAX_DEFAULTS:
        return "", [], f"has a default within more than {MAX_DEFAULTS} others"
    while (start := text.find("${", at)) >= 0:
        end = _closing_brace(text, start)
        if end < 0:
            problem = "has '${' without '}'; it stays as it is"
            break
        name, has_default, default = text[start + 2 : end].partition(":-")
        value = environment.get(name) or environment.get(name.removeprefix("env:"))
        if not value and has_default:
            value, inner, wrong = expand_references(default, environment, depth + 1)
            missing, problem = [*missing, *inner], problem or wrong
        elif value is None and name not in environment:
            missing.append(name)
        pieces += [text[at:start], value or ""]
        at = end + 1
    return replace_surrogates("".join([*pieces, text[at:]])), missing, problem


def _closing_brace(text: str, start: int) -> int:
    """Return the index of the brace that closes the ``${`` at ``start``, -1 for none."""
    depth = 0
    for match in _BRACE.finditer(text, start):
        depth += 1 if match[0] == "${" else -1
        if depth == 0:
            return match.start()
    return -1
