"""Check a commit message: ``python -m scripts.commit_message FILE``; git runs it as the ``commit-msg`` hook."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from scripts.gates.names import BANNED

MAX_SUBJECT = 72
SUBJECT = re.compile(
    r"(?:build|chore|ci|docs|feat|fix|perf|refactor|revert|style|test)(?:\([a-z0-9_, -]+\))?!?: \S.*\S"
)
GENERATED = ("Merge ", "Revert ", "fixup! ", "squash! ")


def find_problems(message: str) -> Iterator[str]:
    """Yield each rule that a commit message breaks."""
    lines = [line for line in message.splitlines() if not line.startswith("#")]
    subject = lines[0].rstrip() if lines else ""
    if subject.startswith(GENERATED):
        return
    if len(subject) > MAX_SUBJECT:
        yield f"the subject has {len(subject)} characters; expected at most {MAX_SUBJECT}"
    if not SUBJECT.fullmatch(subject):
        yield f"the subject {subject!r} is not a conventional commit such as: fix(stores): renew leases earlier"
    if found := BANNED.search("\n".join(lines)):
        yield f"{found[0]!r}: name the process, the caller or the mechanism instead"
    if len(lines) > 1 and lines[1].strip():
        yield "the second line must be empty"


def main() -> int:
    """Print the problems of the message in a file and return the exit code."""
    problems = list(find_problems(Path(sys.argv[1]).read_text("utf-8")))
    for problem in problems:
        print(f"commit message: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
