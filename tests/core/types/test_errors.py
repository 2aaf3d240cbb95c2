"""The tree of errors, as it is drawn."""

import re

import pytest

from vaka.core.types import errors
from vaka.core.types.errors import EXIT_CODES, ModelUnavailable, Suspended, TurnError, VakaError


def parse_error_tree() -> list[tuple[str, str, int | None]]:
    """Each line of the drawing: a class, its parent, its exit code."""
    stack: list[str] = []
    found: list[tuple[str, str, int | None]] = []
    for line in (errors.__doc__ or "").splitlines():
        match = re.match(r"^    ([│├└─ ]*)([A-Z]\w+)(.*)$", line)
        if match:
            depth = len(match[1]) // 4
            del stack[depth:]
            code = re.search(r"exit (\d+)", match[3])
            found.append((match[2], stack[-1] if stack else "", int(code[1]) if code else None))
            stack.append(match[2])
    return found


def test_the_drawing_is_the_tree() -> None:
    kinds = {kind.__name__ for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)}
    assert {name for name, _, _ in parse_error_tree()} == kinds
    for name, parent, code in parse_error_tree():
        kind: type[VakaError] = getattr(errors, name)
        if parent:
            assert getattr(errors, parent) in kind.__bases__
        if code is not None:
            assert kind.exit_code == code, f"{name} is drawn with exit {code}"
        assert kind.__doc__


def test_codes_are_words_for_programs_and_each_has_its_exit_code() -> None:
    for name, _, _ in parse_error_tree():
        kind: type[VakaError] = getattr(errors, name)
        assert re.fullmatch(r"[a-z_]+", kind.code)
        assert EXIT_CODES[kind.code] == kind.exit_code
    assert len({getattr(errors, name).code for name, _, _ in parse_error_tree()}) == len(parse_error_tree())


@pytest.mark.parametrize(("code", "exit_code"), [("", 1), ("model", 6), ("busy", 75), ("never heard of", 1)])
def test_a_failed_turn_exits_as_its_cause_does(code: str, exit_code: int) -> None:
    error = TurnError("no answer", code=code, result="half")
    assert (error.exit_code, error.result, error.code) == (exit_code, "half", code or "turn")


def test_errors_carry_what_a_caller_can_act_on() -> None:
    assert Suspended(["apr_1", "apr_2"]).decisions == ("apr_1", "apr_2")
    assert "apr_1, apr_2" in str(Suspended(["apr_1", "apr_2"]))
    unavailable = ModelUnavailable("busy", retry_after=2.5, status=529)
    assert (unavailable.retry_after, unavailable.status) == (2.5, 529)
