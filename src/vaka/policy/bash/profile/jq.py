"""jq: programs that see nothing but their input."""

import re

from vaka.policy.bash.profile.options import Parsed, Refused

_ELSEWHERE = re.compile(
    r"""(?<![.\w$"])(?:env\b(?!\s*:)|(?:import|include|get_search_list|modulemeta)\b)|\$(?:\s|\#[^\n]*\n)*ENV\b"""
)


def check_jq(parsed: Parsed) -> None:
    """Raise ``Refused`` unless the program is known and reads neither the environment nor modules."""
    if not parsed.operands:
        return
    program = parsed.operands[0]
    if program.value is None:
        raise Refused(f"the jq program {program.source} is not known beforehand")
    _check(program.value, program.source)


def _check(program: str, source: str) -> None:
    if _ELSEWHERE.search(program):
        raise Refused(f"the jq program {source} reads more than its input")
