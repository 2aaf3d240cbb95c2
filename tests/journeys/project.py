"""A git repository with commits and uncommitted work, which a journey must not lose."""

import os
import subprocess
from pathlib import Path

GIT_ENVIRONMENT = {
    "GIT_AUTHOR_NAME": "Moana",
    "GIT_AUTHOR_EMAIL": "moana@example.com",
    "GIT_COMMITTER_NAME": "Moana",
    "GIT_COMMITTER_EMAIL": "moana@example.com",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
}
UNCOMMITTED = {
    "harbour.py": 'BOATS = ["vaka", "ama"]\n\n\ndef count() -> int:\n    return len(BOATS)\n',
    "plan.md": "# Plan\n\n1. Build the hull.\n2. Lash the outrigger.\n",
    "draft.txt": "A letter that is not finished.\n",
}
"""Uncommitted work: a modified file, a staged file and an untracked file."""


class Project:
    """The repository. ``expect_status`` names the further lines of ``git status`` that the story makes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self.git("init", "--quiet", "--initial-branch", "main")
        self.write("harbour.py", 'BOATS = ["vaka"]\n\n\ndef count() -> int:\n    return len(BOATS)\n')
        self.write("README.md", "# Harbour\n\nA list of boats.\n")
        self.commit("Add the list of boats")
        self.write("plan.md", "# Plan\n\n1. Build the hull.\n")
        self.commit("Add a plan")
        for name, text in UNCOMMITTED.items():
            self.write(name, text)
        self.git("add", "plan.md")
        self.commits = self.git("log", "--format=%H %s")
        self._expected_status = sorted([" M harbour.py", "?? draft.txt", "M  plan.md"])

    def write(self, name: str, text: str) -> Path:
        """Write a file of the project."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
        return path

    def read(self, name: str) -> str:
        return (self.folder / name).read_text("utf-8")

    def git(self, *arguments: str) -> str:
        done = subprocess.run(
            ["git", *arguments],
            cwd=self.folder,
            env=os.environ | GIT_ENVIRONMENT,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    def commit(self, subject: str) -> None:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", subject)

    def add(self, files: dict[str, str]) -> None:
        """Add configuration of the story to the project, without touching the uncommitted work."""
        for name, text in files.items():
            self.write(name, text)
        self._expected_status = sorted([*self._expected_status, *(f"?? {name}" for name in files)])

    def expect_status(self, *lines: str) -> None:
        """Name lines of ``git status`` that the story has made."""
        self._expected_status = sorted([*self._expected_status, *lines])

    def check(self) -> None:
        """Fail unless the commits and the uncommitted work are as the story says."""
        status = sorted(self.git("status", "--porcelain", "--untracked-files=all").splitlines())
        assert status == self._expected_status, f"{status} differs from {self._expected_status}"
        assert {name: self.read(name) for name in UNCOMMITTED} == UNCOMMITTED
        assert self.git("show", ":plan.md") == UNCOMMITTED["plan.md"]
        assert self.git("log", "--format=%H %s") == self.commits
