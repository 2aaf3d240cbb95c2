"""Test runs of rules: every test of the rule files against matchers, and the report of what passed."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal, TypeAlias

import msgspec

from vaka.core.types.errors import VakaError
from vaka.genx.match.lines import MatchResult
from vaka.genx.match.rules import NOTHING, MatchRule, Scalar

MatchFunction: TypeAlias = Callable[[str, int], Awaitable[tuple[Sequence[MatchResult], VakaError | None]]]
"""Matches a text, the n-th of the run; returns what it found and the error that ended it."""
CaseStatus: TypeAlias = Literal["pass", "fail", "error"]
_PERCENTILES = (50, 95, 99)


class RuleMatch(msgspec.Struct, frozen=True, kw_only=True):
    """A rule with arguments; ``raw_text`` is what a model wrote when it named no rule."""

    rule: str
    args: dict[str, Scalar] = {}
    raw_text: str | msgspec.UnsetType = msgspec.UNSET


class CaseReport(msgspec.Struct, frozen=True, kw_only=True):
    """One test: what was expected, and what the matcher found first."""

    input: str
    expected: RuleMatch
    actual: RuleMatch
    duration_ms: float
    status: CaseStatus
    error: str | msgspec.UnsetType = msgspec.UNSET


class RuleAccuracy(msgspec.Struct, frozen=True, kw_only=True):
    """How many tests of a rule passed."""

    rule: str
    total: int
    passed: int
    pass_rate: float


class ModelReport(msgspec.Struct, frozen=True, kw_only=True):
    """All tests against one matcher. ``pass_rate`` is in percent."""

    model: str
    total_cases: int
    passed: int
    failed: int
    errors: int
    pass_rate: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    rules: list[RuleAccuracy]
    cases: list[CaseReport]


class MatchReport(msgspec.Struct, frozen=True, kw_only=True):
    """The report of a test run."""

    timestamp: str
    rule_count: int
    test_count: int
    models: list[ModelReport]


class ExpectedMatch(msgspec.Struct, frozen=True):
    """A test of a rule with the rule it expects."""

    input: str
    rule: str
    args: dict[str, Scalar]


def collect_tests(rules: Sequence[MatchRule]) -> list[ExpectedMatch]:
    """Return the tests of the rules, in order; a test without a rule expects the rule that has it."""
    return [
        ExpectedMatch(test.input, rule.name if test.rule is None else test.rule, test.args)
        for rule in rules
        for test in rule.tests
    ]


async def run_tests(tests: Sequence[ExpectedMatch], match: MatchFunction) -> AsyncIterator[CaseReport]:
    """Yield the report of each test as it ends."""
    for number, test in enumerate(tests, 1):
        begun = time.perf_counter()
        results, error = await match(test.input, number)
        duration = round((time.perf_counter() - begun) * 1e3, 3)
        first = next((result for result in results if result.rule), results[0] if results else MatchResult(""))
        text = msgspec.UNSET if first.rule or not first.raw_text else first.raw_text
        status: CaseStatus = "error" if error is not None else "pass" if is_expected(test, results) else "fail"
        yield CaseReport(
            input=test.input,
            expected=RuleMatch(rule=test.rule, args=test.args),
            actual=RuleMatch(rule=first.rule, args=first.given, raw_text=text),
            duration_ms=duration,
            status=status,
            error=msgspec.UNSET if error is None else str(error),
        )


def is_expected(test: ExpectedMatch, results: Sequence[MatchResult]) -> bool:
    """Return whether the first result with a rule is the expected one, with every expected argument.

    A test that expects the rule *nothing* also passes when no rule matches, or when the text of an answer says it.
    """
    first = next((result for result in results if result.rule), MatchResult(""))
    if test.rule == NOTHING and (not first.rule or any(NOTHING in result.raw_text.casefold() for result in results)):
        return True
    if first.rule != test.rule:
        return False
    return all(is_same_value(value, first.args.get(name)) for name, value in test.args.items())


def is_same_value(expected: Scalar, actual: Scalar | None) -> bool:
    """Return whether two values are equal as numbers, or as texts without case and spaces at their ends."""
    if actual is None:
        return False
    numbers = _as_number(expected), _as_number(actual)
    if None not in numbers:
        return numbers[0] == numbers[1]
    return str(expected).strip().casefold() == str(actual).strip().casefold()


def make_report(rules: Sequence[MatchRule], models: Mapping[str, Sequence[CaseReport]]) -> MatchReport:
    """Return the report of a run with the cases of each model."""
    return MatchReport(
        timestamp=datetime.now(UTC).isoformat(timespec="seconds"),
        rule_count=len(rules),
        test_count=sum(len(rule.tests) for rule in rules),
        models=[_model_report(name, cases) for name, cases in models.items()],
    )


def find_percentile(sorted_values: Sequence[float], percent: int) -> float:
    """Return the value at index ``(n - 1) * percent / 100``, rounded down; 0 without values."""
    return sorted_values[(len(sorted_values) - 1) * percent // 100] if sorted_values else 0.0


def _model_report(name: str, cases: Sequence[CaseReport]) -> ModelReport:
    counts = {status: sum(case.status == status for case in cases) for status in ("pass", "fail", "error")}
    durations = sorted(case.duration_ms for case in cases)
    p50, p95, p99 = (find_percentile(durations, percent) for percent in _PERCENTILES)
    return ModelReport(
        model=name,
        total_cases=len(cases),
        passed=counts["pass"],
        failed=counts["fail"],
        errors=counts["error"],
        pass_rate=_rate(counts["pass"], len(cases)),
        p50_ms=p50,
        p95_ms=p95,
        p99_ms=p99,
        rules=_accuracy_by_rule(cases),
        cases=list(cases),
    )


def _accuracy_by_rule(cases: Sequence[CaseReport]) -> list[RuleAccuracy]:
    by_rule: dict[str, list[CaseReport]] = {}
    for case in cases:
        by_rule.setdefault(case.expected.rule, []).append(case)
    passed = {rule: sum(case.status == "pass" for case in group) for rule, group in by_rule.items()}
    return [
        RuleAccuracy(rule=rule, total=len(group), passed=passed[rule], pass_rate=_rate(passed[rule], len(group)))
        for rule, group in by_rule.items()
    ]


def _rate(part: int, total: int) -> float:
    return round(100 * part / total, 2) if total else 0.0


def _as_number(value: Scalar) -> float | None:
    if isinstance(value, bool):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None
