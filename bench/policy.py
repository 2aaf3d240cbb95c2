"""What the verdict on a shell command costs: reading it and judging it, in CPU time."""

import time

from bench.measure import Middle
from bench.row import Row
from vaka.policy.bash import Rule, Rules, judge, read

_TYPICAL = (
    "ls -la",
    "npm run test -- --watch=false",
    "git log --oneline -5 | head -3",
    'for f in *.py; do wc -l "$f"; done',
    "cd src && git diff HEAD~1 --stat 2>/dev/null || echo none",
    "find . -name '*.py' -not -path './build/*' | xargs grep -n pattern",
    "grep -rn 'pattern' src | sort | uniq -c | sort -rn | head -5",
    "python -m pytest -q tests/core 2>&1 | tail -20",
)
_HELD = Rules(
    [Rule(f"{name}:*", "allow", "user") for name in ("npm run", "python -m pytest", "cargo test", "make", "go test")]
    + [Rule(f"{name}:*", "deny", "project") for name in ("curl", "wget", "rm -rf", "git push", "sudo", "ssh")]
    + [Rule("git commit *", "ask", "user"), Rule("* --force", "ask", "managed")]
)


def _each(command: str, count: int) -> float:
    begun = time.process_time()
    for _ in range(count):
        judge(read(command), _HELD)
    return (time.process_time() - begun) / count * 1000


def _repeats(command: str, quick: bool) -> Middle:
    _each(command, 20)
    return Middle.of([_each(command, 50 if quick else 200) for _ in range(5)])


def rows(quick: bool) -> list[Row]:
    """Measure the mean over typical commands, and how the cost of a long one relates to its length."""
    found = [_repeats(command, quick) for command in _TYPICAL]
    mean, low, high = (sum(values) / len(found) for values in zip(*found, strict=True))
    short, long = (_repeats("; ".join([_TYPICAL[0]] * size), quick=True) for size in (20, 200))
    return [
        Row(name="verdict on a command", value=mean, unit="ms", target=0.3, low=low, high=high, note="mean of 8, CPU"),
        Row(name="verdict on the dearest of them", value=max(one.value for one in found), unit="ms"),
        Row(name="ten times the length", value=long.value / short.value, unit="times", target=12),
    ]
