"""Run every gate; print the problems and exit with 1 if there are any."""

import gc
import sys
from collections.abc import Iterator
from pathlib import Path

from scripts.gates import names, phrases, sizes, source, testing, text
from scripts.gates.tree import File, Problem, list_files

ROOT = Path(__file__).resolve().parents[2]


def find_problems(everything: list[File]) -> Iterator[Problem]:
    for file in everything:
        for gate in (names, sizes, source, testing, text):
            yield from gate.check_file(file)
    yield from source.check_files(everything)
    yield from sizes.check_turn(everything)
    yield from names.check_all(everything)
    yield from phrases.check_all(everything)


def main() -> int:
    """Print the problems and return the exit code."""
    gc.disable()  # every tree is kept to the end, so there is nothing to collect
    everything = list(list_files(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT))
    found = sorted(set(find_problems(everything)))
    for problem in found:
        print(problem)
    print(f"gates: {len(everything)} files, {len(found)} problems")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
