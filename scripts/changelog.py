"""Fold changes/ into CHANGELOG.md as one version: python -m scripts.changelog 0.2.0 [--date YYYY-MM-DD]."""

import argparse
import re
import sys
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KINDS = {"added": "Added", "changed": "Changed", "fixed": "Fixed", "removed": "Removed"}
FRAGMENT = re.compile(rf"^(?P<slug>[a-z0-9][a-z0-9-]*)\.(?P<kind>{'|'.join(KINDS)})\.md$")
UNRELEASED = "## Unreleased\n"


class FragmentError(Exception):
    """A file in changes/ is not a fragment."""


def read_fragments(folder: Path) -> dict[str, list[str]]:
    """Return the fragments' texts by kind, in the order of their names."""
    found: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for path in list_fragments(folder):
        name = FRAGMENT.match(path.name)
        text = path.read_text().strip()
        if not name or not text:
            raise FragmentError(f"{path.name!r} needs a name like 'faster-appends.changed.md' and a sentence in it")
        found[name["kind"]].append(text)
    return found


def list_fragments(folder: Path) -> list[Path]:
    """Return the files in changes/ that are fragments, or should be."""
    return sorted(path for path in folder.iterdir() if path.is_file() and path.name != "README.md")


def format_section(version: str, date: str, found: dict[str, list[str]]) -> str:
    """Return the text of one version."""
    parts = [f"## {version} - {date}\n"]
    for kind, title in KINDS.items():
        if found[kind]:
            items = "\n".join("- " + text.replace("\n", "\n  ") for text in found[kind])
            parts.append(f"### {title}\n\n{items}\n")
    return "\n".join(parts)


def insert_section(changelog: str, version: str, date: str, found: dict[str, list[str]]) -> str:
    """Return the changelog with the new version under Unreleased."""
    if UNRELEASED not in changelog:
        raise FragmentError(f"CHANGELOG.md has no line {UNRELEASED.strip()!r}")
    before, after = changelog.split(UNRELEASED, 1)
    return f"{before}{UNRELEASED}\n{format_section(version, date, found)}\n{after.lstrip()}".rstrip() + "\n"


def main() -> int:
    """Fold, remove the fragments, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("version", nargs="?", help="without it, only check the fragments")
    parser.add_argument("--date", default=datetime.now(UTC).date().isoformat())
    arguments = parser.parse_args()
    changes, changelog = ROOT / "changes", ROOT / "CHANGELOG.md"
    try:
        found = read_fragments(changes)
        if arguments.version:
            changelog.write_text(insert_section(changelog.read_text(), arguments.version, arguments.date, found))
            for path in list_fragments(changes):
                path.unlink()
    except FragmentError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"changes: {sum(map(len, found.values()))} fragments")
    return 0


if __name__ == "__main__":
    sys.exit(main())
