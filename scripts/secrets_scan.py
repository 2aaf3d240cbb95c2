"""Search the tree for strings that look like secrets; exit with 1 if there are any."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from scripts.gates.tree import File, Problem, list_files

ROOT = Path(__file__).resolve().parents[1]

PATTERNS = {
    "a private key": r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----",
    "an AWS key": r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
    "a GitHub token": r"\b(?:gh[pousr]_[A-Za-z0-9]{36}|github_pat_[A-Za-z0-9_]{60,})\b",
    "an OpenAI key": r"\bsk-(?:proj-|svcacct-)?[A-Za-z0-9_-]{32,}\b",
    "an Anthropic key": r"\bsk-ant-[A-Za-z0-9_-]{24,}\b",
    "a Google key": r"\bAIza[0-9A-Za-z_-]{35}\b",
    "a Slack token": r"\bxox[abprs]-[0-9A-Za-z-]{20,}\b",
    "a Stripe key": r"\b[rs]k_live_[0-9A-Za-z]{20,}\b",
    "a package registry's token": r"\b(?:pypi-[A-Za-z0-9_-]{50,}|npm_[A-Za-z0-9]{36})\b",
    "a key of a vaka server": r"\b(?:ak|vk[tls])_[a-z0-9]{8,16}_[A-Za-z0-9_-]{43}\b",
    "a JSON web token": r"\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{20,}\b",
    "a password in an address": r"\b[a-z][a-z0-9+]*://[^\s/:@{}<>$'\"]+:(?!\.\.\.|\*|pass(?:word)?@|secret@)[^\s/:@{}<>$'\"]{6,}@",
    "a secret assigned": r"(?i)\b(?:api_?key|secret|passw(?:or)?d|token)\b\s*[:=]\s*['\"][A-Za-z0-9+/_-]{24,}['\"]",
}
COMPILED_PATTERNS = {what: re.compile(pattern) for what, pattern in PATTERNS.items()}

# A line with an invented secret in a test has this mark.
ALLOWED = "not a secret"


def find_secrets(file: File) -> Iterator[Problem]:
    """Yield each line that seems to contain a secret."""
    for number, line in enumerate(file.lines, 1):
        if ALLOWED in line:
            continue
        for what, pattern in COMPILED_PATTERNS.items():
            if pattern.search(line):
                yield file.problem(number, f"looks like {what}; if it is invented, add '# {ALLOWED}' to the line")


def main() -> int:
    """Print the problems and return the exit code."""
    everything = list(list_files(ROOT))
    found = [problem for file in everything if file.path != "scripts/secrets_scan.py" for problem in find_secrets(file)]
    for problem in found:
        print(problem)
    print(f"secrets: {len(everything)} files, {len(found)} problems")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
