"""The files of the repository, and the problems that gates find in them."""

import ast
import io
import subprocess
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path


@dataclass(frozen=True, order=True)
class Problem:
    """Something that fails the build, and where."""

    path: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}"


@dataclass(frozen=True)
class File:
    """A file of the tree, named as git names it."""

    root: Path
    path: str

    @property
    def parts(self) -> tuple[str, ...]:
        return Path(self.path).parts

    @cached_property
    def text(self) -> str | None:
        """Return the text of the file, ``None`` if it is binary."""
        try:
            return (self.root / self.path).read_bytes().decode()
        except UnicodeDecodeError:
            return None

    @cached_property
    def lines(self) -> list[str]:
        return (self.text or "").splitlines()

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text or "", self.path)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """Return every node of the tree, so that each gate need not walk it again."""
        return list(ast.walk(self.tree))

    @cached_property
    def prose(self) -> list[tokenize.TokenInfo]:
        """Return the comments and strings of a Python file."""
        tokens = tokenize.generate_tokens(io.StringIO(self.text or "").readline)
        return [token for token in tokens if token.type in (tokenize.COMMENT, tokenize.STRING)]

    def is_python(self, *folders: str) -> bool:
        return self.path.endswith(".py") and (not folders or self.parts[0] in folders)

    def problem(self, line: int, text: str) -> Problem:
        return Problem(self.path, line, text)


def list_files(root: Path) -> Iterator[File]:
    """Yield every file that is tracked, or would be if it were added."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout
    for name in sorted(set(names.split("\0")) - {""}):
        path = root / name
        if path.is_file() and not path.is_symlink():
            yield File(root, name)
