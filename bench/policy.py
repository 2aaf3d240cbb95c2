"""The CPU time of a decision: on a shell command alone, and on any call under all rules."""

import time
from collections.abc import Callable
from typing import Any

from bench.measure import MedianRange, raised_priority
from bench.row import Row
from vaka.policy.bash import CommandRule, CommandRules, judge_script, read_script
from vaka.policy.policy import LayeredPolicy
from vaka.policy.rules import Layer
from vaka.policy.tool_targets import spec_of

_TARGET, _LINEAR = 0.3, 12.0
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
_RULES = CommandRules(
    [
        CommandRule(f"{name}:*", "allow", "user")
        for name in ("npm run", "python -m pytest", "cargo test", "make", "go test")
    ]
    + [CommandRule(f"{name}:*", "deny", "project") for name in ("curl", "wget", "rm -rf", "git push", "sudo", "ssh")]
    + [CommandRule("git commit *", "ask", "user"), CommandRule("* --force", "ask", "managed")]
)
_CALLS: tuple[tuple[str, dict[str, Any]], ...] = (
    *(("Bash", {"command": command}) for command in _TYPICAL),
    ("Read", {"file_path": "src/vaka/core/session/log.py"}),
    ("Edit", {"file_path": "src/vaka/core/session/log.py"}),
    ("Write", {"file_path": "/etc/hosts"}),
    ("Grep", {"pattern": "x", "path": "src"}),
    ("WebFetch", {"url": "https://docs.example/page"}),
    ("mcp__git__push", {"branch": "main"}),
)
_HOSTILE = {
    "wrappers": "sudo --odd " * 500 + "curl x",
    "substitutions": "echo $(" * 60 + "ls" + ")" * 60,
    "quotes": "echo " + "'a'\"b\"" * 1200,
    "braces": "echo " + "{a,b}" * 300,
}


def _time_call(work: Callable[[], object], count: int) -> float:
    begun = time.process_time()
    for _ in range(count):
        work()
    return (time.process_time() - begun) / count * 1000


def _time_repeats(work: Callable[[], object], quick: bool) -> MedianRange:
    _time_call(work, 10)
    return MedianRange.of([_time_call(work, 50 if quick else 200) for _ in range(5)])


def _mean_of(found: list[MedianRange]) -> MedianRange:
    return MedianRange(*(sum(values) / len(found) for values in zip(*found, strict=True)))


def _make_verdict(command: str) -> Callable[[], object]:
    return lambda: judge_script(read_script(command), _RULES)


def _make_policy(many: int) -> LayeredPolicy:
    """Return a policy with ``many`` rules of each kind in each of three layers, and some usual ones."""
    usual = Layer(
        name="user",
        allow=("Bash(npm run:*)", "Read(src/**)", "Edit(src/**)", "WebFetch(domain:docs.example)"),
        ask=("Bash(git commit *)",),
        deny=("Bash(curl:*)", "Bash(sudo:*)", "Read(.env)", "mcp__git__push(branch:main)"),
    )
    layers = [
        Layer(
            name=name,
            allow=tuple(f"Bash(tool{number} run:*)" for number in range(many)),
            ask=tuple(f"Edit(docs/part{number}/**)" for number in range(many)),
            deny=tuple(f"WebFetch(domain:host{number}.example)" for number in range(many)),
        )
        for name in ("user", "project", "local")
    ]
    return LayeredPolicy([usual, *layers], cwd="/home/kim/app", home="/home/kim")


def _time_decisions(policy: LayeredPolicy, quick: bool) -> list[MedianRange]:
    def decide(name: str, arguments: dict[str, Any]) -> Callable[[], object]:
        spec = spec_of(name)
        return lambda: policy.decide(spec, arguments)

    return [_time_repeats(decide(name, arguments), quick) for name, arguments in _CALLS]


def measure_policy(quick: bool) -> list[Row]:
    with raised_priority():
        return _measure_policy(quick)


def _measure_policy(quick: bool) -> list[Row]:
    """Measure typical commands and calls, and how the cost grows with length and number of rules."""
    found = [_time_repeats(_make_verdict(command), quick) for command in _TYPICAL]
    mean = _mean_of(found)
    short, long = (_time_repeats(_make_verdict("; ".join([_TYPICAL[0]] * size)), quick=True) for size in (20, 200))
    few, many = (_time_decisions(_make_policy(size), quick) for size in (10, 100))
    usual = _mean_of(few)
    worst = {name: _time_call(_make_verdict(text), 3) for name, text in _HOSTILE.items()}
    name = max(worst, key=lambda key: worst[key])
    return [
        Row(
            name="verdict on a command",
            value=mean.value,
            unit="ms",
            target=_TARGET,
            low=mean.low,
            high=mean.high,
            note=f"mean of {len(found)}, CPU",
        ),
        Row(name="verdict on the dearest of them", value=max(one.value for one in found), unit="ms"),
        Row(name="ten times the length", value=long.value / short.value, unit="times", target=_LINEAR),
        Row(
            name="decision on a call, 99 rules",
            value=usual.value,
            unit="ms",
            target=_TARGET,
            low=usual.low,
            high=usual.high,
            note=f"mean of {len(few)} calls of seven tools, CPU",
        ),
        Row(name="decision on the dearest of them", value=max(one.value for one in few), unit="ms"),
        Row(name="ten times the rules", value=_mean_of(many).value / usual.value, unit="times", target=_LINEAR),
        Row(name="verdict on hostile commands, the dearest", value=worst[name], unit="ms", note=f"{name}, 6,000 signs"),
    ]
