"""Measure vaka and each peer with the same code, one after the other, and print them in one table.

``bench/peers/NAME.txt`` lists what a peer needs, ``bench/peers/NAME.py`` measures it and writes a line of JSON; the
environment is ``.venv-peers/NAME``, made once for each text of the list. Arguments name the peers to run; none means
all. ``bench/peers/vaka.py`` is one of them. They take turns, several rounds of it, so that a machine that gets busy
meets all of them; what counts is the median of the rounds. Below each number stands how many times ours it is.

``growth`` as the first argument measures the turns of long sessions instead, one round, each runtime with a store;
``memory`` counts the facts of a long conversation that are left after its summaries.
"""

import hashlib
import json
import statistics
import subprocess
import sys
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import machine
from bench.measure import subprocess_environment as without_pyc_switch
from bench.planted_facts import FACTS, PLACES, WINDOW
from bench.row import format_grid, format_number

Line = Mapping[str, Any]

ROOT = Path(__file__).resolve().parents[1]
PEERS = ROOT / "bench" / "peers"
ENVIRONMENTS = ROOT / ".venv-peers"
RESULTS = ROOT / "bench" / "results"
ROUNDS = 3
CHECKPOINTS = (1, 10, 100, 1_000, 5_000)

COLUMNS = {
    "import_ms": "import ms",
    "construct_us": "construct µs",
    "agent_kib": "KiB/agent",
    "run_ms": "run p50 ms",
    "run_p95_ms": "p95",
    "run_cpu_ms": "CPU ms",
    "first_run_ms": "new agent + run ms",
    "runs_per_s": "runs/s, 100 at once",
}


def ensure_environment(requirements: Path) -> Path:
    """Return the interpreter of a peer's environment; create it if it is missing or its list has changed."""
    home = ENVIRONMENTS / requirements.stem
    digest, stamp = hashlib.sha256(requirements.read_bytes()).hexdigest(), home / ".installed"
    python = home / "bin" / "python"
    if not stamp.exists() or stamp.read_text() != digest:
        print(f"making {home.relative_to(ROOT)}", flush=True)
        venv.create(home, clear=True, with_pip=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", "-r", str(requirements)], check=True)
        stamp.write_text(digest)
    return python


def measure_peer(python: Path, name: str, *what: str) -> list[dict[str, Any]]:
    """Return the results that ``bench.peers.NAME`` prints when ``python`` runs it."""
    command = [str(python), "-m", f"bench.peers.{name}", *what]
    done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True, env=without_pyc_switch())
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def format_peer_table(found: Sequence[Line]) -> str:
    """Return the numbers, and below each the ratio to the first line; above 1 is more expensive, also for rates."""
    lines: list[list[str]] = []
    for line in found:
        lines.append([line["name"], line["keeps"], *[format_number(line[key]) for key in COLUMNS]])
        lines.append(["", "", *[f"({_ratio_of(key, line, found[0]):.2f}×)" for key in COLUMNS]])
    return format_grid(["", "a run survives", *COLUMNS.values()], lines)


def _ratio_of(key: str, line: Line, first: Line) -> float:
    ratio: float = line[key] / first[key]
    return 1 / ratio if key == "runs_per_s" else ratio


def median_of_rounds(rounds: Sequence[Line]) -> dict[str, Any]:
    """Return one line for several rounds: the shortest import, the median of everything else."""
    line = dict(rounds[0])
    for key in COLUMNS:
        line[key] = (min if key == "import_ms" else statistics.median)([found[key] for found in rounds])
    return line


def format_growth_table(found: Sequence[Line]) -> str:
    """Return the CPU milliseconds at each checkpoint, and below each how many times that of the reference it is.

    The reference is the last of our lines, the most durable one.
    """
    reference = [line for line in found if line["name"].startswith("vaka")][-1]
    lines: list[list[str]] = []
    for line in found:
        turns, keys = line["turns"], [str(checkpoint) for checkpoint in CHECKPOINTS]
        last = max(turns, key=int)
        grown = f"{turns[last] / turns['1']:.1f}× at turn {int(last):,}, {format_number(turns[last])} ms"
        lines.append([line["name"], line["keeps"], *[_cell_of(turns.get(key)) for key in keys], grown])
        ratios = [f"({turns[key] / reference['turns'][key]:.2f}×)" if key in turns else "" for key in keys]
        lines.append(["", "", *ratios, ""])
    return format_grid(["", "a turn survives", *[f"turn {at:,}" for at in CHECKPOINTS], "last / first"], lines)


def format_memory_table(found: Sequence[Line]) -> str:
    """Return how many planted facts the last prompt has, most first, and where the kept ones were planted."""
    lines = [
        [
            line["name"],
            f"{line['kept']}/{FACTS}",
            *[str(line["places"][place]) for place in sorted(set(PLACES))],
            str(line["summaries"]),
            format_number(line["most_tokens"]),
        ]
        for line in sorted(found, key=lambda line: -line["kept"])
    ]
    heads = [f"of {place}s" for place in sorted(set(PLACES))]
    return format_grid(["", "facts kept", *heads, "summaries", f"largest prompt, of {WINDOW:,}"], lines)


def _cell_of(cost: float | None) -> str:
    return "–" if cost is None else format_number(cost)


def measure_in_rounds(
    pythons: Mapping[str, Path], failed: set[str], *what: str, rounds: int = ROUNDS
) -> list[list[dict[str, Any]]]:
    """Measure each peer in turn, in some rounds; one that fails is dropped and added to ``failed``."""
    found: dict[str, list[dict[str, Any]]] = {}
    for turn in range(1, rounds + 1):
        for name, python in pythons.items():
            if name in failed:
                continue
            print(f"round {turn}: {name}", flush=True)
            try:
                for line in measure_peer(python, name, *what):
                    found.setdefault(f"{line['name']} {line['keeps']}", []).append(line)
            except subprocess.CalledProcessError as error:
                failed.add(name)
                print(f"{name}: {error}", flush=True)
    return list(found.values())


def main() -> int:
    """Measure all peers and print one table; return 1 if any failed."""
    what = sys.argv[1] if sys.argv[1:2] in (["growth"], ["memory"]) else ""
    names = sys.argv[2:] if what else sys.argv[1:]
    chosen = [path for path in sorted(PEERS.glob("*.txt")) if not names or path.stem in names]
    if not chosen:
        print(f"no peers: {PEERS.relative_to(ROOT)} has no lists with these names")
        return 1
    pythons = {"vaka": Path(sys.executable), **{path.stem: ensure_environment(path) for path in chosen}}
    about, failed = machine.describe_machine(), set[str]()
    if what:
        found = [rounds[0] for rounds in measure_in_rounds(pythons, failed, what, rounds=1)]
    else:
        found = [median_of_rounds(rounds) for rounds in measure_in_rounds(pythons, failed)]
    about["load after"] = machine.load_average()
    print("\n".join(f"{key:12} {value}" for key, value in about.items()))
    format_table = {"growth": format_growth_table, "memory": format_memory_table}.get(what, format_peer_table)
    print(f"\n{format_table(found)}")
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{what or 'peers'}.json").write_text(json.dumps({"machine": about, "rows": found}, indent=1))
    print(f"\npeers: {len(chosen)} run, {len(failed)} failed {' '.join(sorted(failed))}".rstrip())
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
