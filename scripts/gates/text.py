"""Text that no file of the repository may contain: hosts of package registries, paths of a machine, issue numbers."""

import re
from collections.abc import Iterator

from scripts.gates.tree import File, Problem

# One letter of each is in brackets, so that this file does not match itself.
REGISTRY_HOSTS = (
    r"pyp[i]\.org",
    r"python[h]osted\.org",
    r"crate[s]\.io",
    r"npmj[s]\.(?:org|com)",
    r"proxy\.golan[g]\.org",
    r"mave[n](?:\.apache)?\.org",
    r"deb\.debia[n]\.org",
    r"archive\.ubunt[u]\.com",
)
REGISTRY_HOST = re.compile("|".join(REGISTRY_HOSTS), re.IGNORECASE)
MACHINE_PATH = re.compile(r"(?<![\w.$}>~-])/(?:work/|root/(?!\.ssh))")
ISSUE_NUMBER = re.compile(r"\bissues?\s+#?\d+\b", re.IGNORECASE)
LOCK_FILE = re.compile(r"(^|/)([\w.-]+\.lock|package-lock\.json|npm-shrinkwrap\.json|pnpm-lock\.yaml|bun\.lockb?)$")


def check_file(file: File) -> Iterator[Problem]:
    """Yield each line that names a registry's host, a machine's path or an issue by number, and each lock file."""
    if LOCK_FILE.search(file.path):
        yield file.problem(1, "no lock files: constraints.txt pins what development installs")
    for number, line in enumerate(file.lines, 1):
        if found := REGISTRY_HOST.search(line):
            yield file.problem(number, f"names the host of a package registry: {found[0]!r}")
        if found := MACHINE_PATH.search(line):
            yield file.problem(number, f"names a path of one machine: {found[0]!r}")
        if found := ISSUE_NUMBER.search(line):
            yield file.problem(number, f"names an issue by number: {found[0]!r}")
