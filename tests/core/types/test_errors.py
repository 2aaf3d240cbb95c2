"""The tree of errors: its drawing, its codes and its exit codes."""

import re

import pytest

from vaka.core.types import errors
from vaka.core.types.errors import EXIT_CODES, ModelUnavailable, Suspended, TurnError, VakaError


def parse_error_tree() -> list[tuple[str, str, int | None]]:
    """Return each line of the drawing: a class, its parent, its exit code."""
    parents: list[str] = []
    lines: list[tuple[str, str, int | None]] = []
    for line in (errors.__doc__ or "").splitlines():
        match = re.match(r"^    ([│├└─ ]*)([A-Z]\w+)(.*)$", line)
        if match:
            del parents[len(match[1]) // 4 :]
            code = re.search(r"exit (\d+)", match[3])
            lines.append((match[2], parents[-1] if parents else "", int(code[1]) if code else None))
            parents.append(match[2])
    return lines


def test_the_drawing_matches_the_classes() -> None:
    classes = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, Exception)}
    assert {name for name, _, _ in parse_error_tree()} == classes
    for name, parent, code in parse_error_tree():
        kind: type[VakaError] = getattr(errors, name)
        if parent:
            assert getattr(errors, parent) in kind.__bases__
        drawn = getattr(errors, parent).exit_code if code is None else code
        assert kind.exit_code == drawn, f"{name} is drawn with exit {drawn}"
        assert kind.__doc__


def test_each_error_code_is_one_word_and_has_its_exit_code() -> None:
    kinds: list[type[VakaError]] = [getattr(errors, name) for name, _, _ in parse_error_tree()]
    for kind in kinds:
        assert re.fullmatch(r"[a-z_]+", kind.code)
        assert EXIT_CODES[kind.code] == kind.exit_code
    unique = [kind for kind in kinds if kind is not errors.AccessDenied]  # the code does not tell it exists
    assert len({kind.code for kind in unique}) == len(unique)


@pytest.mark.parametrize(("code", "exit_code"), [("", 1), ("model", 6), ("busy", 75), ("not a code", 1)])
def test_a_failed_turn_has_the_exit_code_of_its_cause(code: str, exit_code: int) -> None:
    error = TurnError("no answer", code=code, result="half")
    assert (error.exit_code, error.result, error.code) == (exit_code, "half", code or "turn")


def test_errors_carry_the_fields_a_caller_acts_on() -> None:
    assert Suspended(["apr_1", "apr_2"]).decisions == ("apr_1", "apr_2")
    assert "apr_1, apr_2" in str(Suspended(["apr_1", "apr_2"]))
    unavailable = ModelUnavailable("busy", retry_after=2.5, status=529)
    assert (unavailable.retry_after, unavailable.status) == (2.5, 529)
