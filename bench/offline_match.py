"""The offline matcher on the rules and sentences in ``bench/match_rules``: its accuracy, and the CPU time of a text."""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from bench.measure import percentile, raised_priority
from bench.row import Row
from vaka.genx.cli import read_rule_files
from vaka.genx.match.offline import OfflineMatcher
from vaka.genx.match.report import ExpectedMatch, collect_tests, is_expected
from vaka.genx.match.rules import MatchRule
from vaka.models import HashingEmbedder

RULES = Path(__file__).with_name("match_rules")
PARAPHRASES = Path(__file__).with_name("match_paraphrases.yaml")
MAX_MS = 5.0
LEAST_MATCHED = 206
"""Sentences that match as expected, of 208."""


def load_rules() -> list[MatchRule]:
    """Return the rules of the benchmark."""
    return read_rule_files([str(RULES)]).rules


def load_paraphrases() -> list[ExpectedMatch]:
    """Return the sentences that share little with the patterns."""
    texts: dict[str, list[str]] = msgspec.yaml.decode(PARAPHRASES.read_bytes(), type=dict[str, list[str]])
    return [ExpectedMatch(text, rule, {}) for rule, group in texts.items() for text in group]


def count_matched(rules: Sequence[MatchRule], tests: Sequence[ExpectedMatch]) -> int:
    """Return how many sentences match as expected."""
    matcher = OfflineMatcher(rules)
    return sum(is_expected(test, matcher.match(test.input)) for test in tests)


def count_wrong(rules: Sequence[MatchRule], tests: Sequence[ExpectedMatch]) -> int:
    """Return how many sentences match another rule than the expected one; the rest matches none."""
    matcher = OfflineMatcher(rules)
    return sum(not is_expected(test, found) for test in tests if (found := matcher.match(test.input)))


def count_matched_variants() -> int:
    """Return how many sentences of the rule files match as expected."""
    rules = load_rules()
    return count_matched(rules, collect_tests(rules))


def copy_rules(rules: Sequence[MatchRule], times: int) -> list[MatchRule]:
    """Return the rules several times, under different names."""
    return [
        msgspec.structs.replace(rule, name=f"{rule.name}_{number}" if number else rule.name)
        for number in range(times)
        for rule in rules
    ]


async def time_texts(matcher: OfflineMatcher, tests: Sequence[ExpectedMatch]) -> list[float]:
    """Return the CPU milliseconds of each text, after each was matched once."""
    taken: list[float] = []
    for warm in (False, True):
        for test in tests:
            begun = time.process_time()
            await matcher.match_async(test.input)
            if warm:
                taken.append((time.process_time() - begun) * 1e3)
    return taken


async def measure() -> list[Row]:
    """Measure the accuracy and the time of a text, also with vectors and with many more rules."""
    rules = load_rules()
    tests = collect_tests(rules)
    paraphrases = load_paraphrases()
    rows = [
        Row(
            name="offline match: accuracy",
            value=100 * count_matched(rules, tests) / len(tests),
            unit="%",
            better="high",
            target=100 * LEAST_MATCHED / len(tests),
            note=f"{len(rules)} rules, {len(tests)} sentences in nine languages, most of them variants of the patterns",
        ),
        Row(
            name="offline match: accuracy with free wording",
            unit="%",
            value=100 * count_matched(rules, paraphrases) / len(paraphrases),
            note=f"only the rule, of {len(paraphrases)} sentences; {count_wrong(rules, paraphrases)} match another one",
        ),
    ]
    many = copy_rules(rules, 13)
    cases = [
        ("", OfflineMatcher(rules), "patterns and shared words"),
        (", with hashing vectors", OfflineMatcher(rules, embedder=HashingEmbedder()), "where nothing else matches"),
        (f", {len(many)} rules", OfflineMatcher(many), f"{sum(len(rule.patterns) for rule in many):,} patterns"),
    ]
    with raised_priority() as how:
        for name, matcher, what in cases:
            taken = await time_texts(matcher, tests)
            rows += [
                Row(
                    name=f"offline match{name}: a text, p{share:.0%}".rstrip("%"),
                    value=percentile(taken, share),
                    unit="ms CPU",
                    target=MAX_MS,
                    note=f"{what}; {how}",
                )
                for share in (0.5, 0.99)
            ]
    return rows


def measure_matching(quick: bool) -> list[Row]:
    """Measure the offline matcher."""
    return asyncio.run(measure())
