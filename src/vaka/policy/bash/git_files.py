"""The files that commands of git print, copy or change: tracked files, and objects of older commits."""

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import NamedTuple

from vaka.policy.bash.file_operands import PathFilter, RecursiveOperand, accept_all, any_file
from vaka.policy.bash.parse.syntax import PLACEHOLDER, Word, Words, literal_word
from vaka.policy.bash.programs import name_set, read_set, read_table
from vaka.policy.decision import CommitRange, FolderUse

_CONTENTS: Mapping[str, str] = read_table("git_contents")
"""The subcommands of git that print or copy tracked files: with which options, as a regular expression."""

_CHANGES: Mapping[str, str] = read_table("git_changes")
"""The subcommands of git that change tracked files: with which options, as a regular expression."""

_VALUED_OPTIONS = read_set("git_valued_options")

_COMPARING = name_set("diff show log reflog stash whatchanged diff-tree diff-index diff-files range-diff format-patch")

_WITHOUT_PATHS = name_set(
    "worktree clone bundle cat-file merge pull rebase cherry-pick revert bisect submodule fast-export sparse-checkout"
)
"""Subcommands whose operands are no paths of the repository."""

_WITHOUT_CONTENTS = re.compile(
    r"^(?:--(?:stat|numstat|shortstat|dirstat|summary|name-only|name-status|no-patch|quiet)(?:=.*)?|-[sq])$",
    re.MULTILINE,
)

_PATCH = re.compile(r"^(?:-p|-u|--pat.*|-U\d*|--un.*|-[SG].*)$", re.MULTILINE)
"""Options that print contents, or tell whether a file has a text."""

_ALL_FILES = re.compile(
    r"grep\n(?:.*\n)*--(?:no-index|untracked)$|diff\n(?:.*\n)*--no-index$|add\n(?:.*\n)*(?:-\w*f|--force)$"
    r"|stash\nshow\n(?:.*\n)*(?:-u|--\w+-untracked)$|stash\n(?:.*\n)*(?:-\w*a|--all)$",
    re.MULTILINE,
)
"""Commands of git that print or copy files that are not tracked."""

_OBJECT = re.compile(r"(?:[^:\s]*(?:\{[^}]*\})?[^:\s]*)?:(?:[0-3]:)?(?![/!^(:])(?P<path>.+)", re.DOTALL)
"""The name of a file in a commit or in the index: ``HEAD:x``, ``:x``, ``:0:x``, ``HEAD@{1 day ago}:x``."""

_SINGLE_OBJECTS = name_set("show diff difftool cat-file")
"""Subcommands that print no more than the objects that are named."""

_WORKING_TREE = name_set("diff grep blame annotate difftool")
"""Subcommands that use the index or the working tree if no operand names a commit."""


class _GitCommand(NamedTuple):
    folder: Word
    name: str
    words: Words
    """The words after the name of the subcommand."""
    values: list[str]
    exists: Callable[[str], bool]

    @property
    def options(self) -> str:
        return "\n".join([self.name, *self.values])

    @property
    def operands(self) -> list[str]:
        """The words before ``--`` that are no options."""
        end = self.values.index("--") if "--" in self.values else len(self.values)
        return [value for value in self.values[:end] if not value.startswith("-")]

    @property
    def pathspecs(self) -> list[str]:
        """The words that restrict it to some paths: words after ``--``, or words that name existing files."""
        if any(value.startswith(("--pathspec-from", "--full-diff")) for value in self.values):
            return []  # not known, or they only choose commits
        if "--" in self.values:
            return self.values[self.values.index("--") + 1 :]
        known = self.folder.value == "." and self.name not in _WITHOUT_PATHS
        return [value for value in self.operands if self.exists(value)] if known else []

    @property
    def revisions(self) -> list[str]:
        """The operands that may name commits."""
        named = set[str]() if "--" in self.values else set(self.pathspecs)
        return [value for value in self.operands if value not in named]


def find_git_operands(words: Words, exists: Callable[[str], bool]) -> Iterator[RecursiveOperand]:
    """Yield the folder of the repository if git prints, copies or changes its files.

    ``words`` are those after ``git``; ``exists``: whether a word names an existing file.
    """
    values = [word.placeholder_text for word in words]
    index, folder = 0, literal_word(".")
    while index < len(words) and values[index].startswith("-"):
        folder = words[index + 1] if values[index] == "-C" and index + 1 < len(words) else folder
        index += 2 if values[index] in _VALUED_OPTIONS else 1
    if index == len(words):
        return
    if words[index].value is None:
        yield from (any_file(f"git {words[index].source}", writes=writes) for writes in (False, True))
        return
    command = _GitCommand(folder, values[index], words[index + 1 :], values[index + 1 :], exists)
    for word, value in zip(command.words, command.values, strict=True):
        if found := _OBJECT.fullmatch(value):
            yield from _find_object(found["path"], command, word)
    yield from _find_shown(command)
    yield from _find_changed(command)


def _find_object(path: str, command: _GitCommand, word: Word) -> Iterator[RecursiveOperand]:
    """Yield the file that a word such as ``HEAD:x`` names; it need not exist on disk."""
    if "://" in word.placeholder_text or command.name in {"push", "fetch", "pull", "clone", "remote", "commit", "tag"}:
        return
    use = FolderUse(accept_all, certain=True, scope="object", named=path, word=word.source)
    if PLACEHOLDER in path and path != PLACEHOLDER:  # a part of the name is known
        every = CommitRange(everything=True)
        use = FolderUse(_select([path]), scope="objects", commits=every, word=word.source)
    yield RecursiveOperand(command.folder, use)


def _find_shown(command: _GitCommand) -> Iterator[RecursiveOperand]:
    options = command.options
    source = f"git {command.name}"
    if _ALL_FILES.match(options):
        yield RecursiveOperand(command.folder, FolderUse(_select(command.pathspecs), word=source))
        return
    pattern = _CONTENTS.get(command.name, "(?!)")
    if not re.search(pattern, options, re.MULTILINE):
        return
    if command.name in _COMPARING and _WITHOUT_CONTENTS.search(options) and not _PATCH.search(options):
        return
    paths = command.pathspecs
    commits = _find_commits(command)
    if not paths and _names_only_objects(command):
        if command.name not in {"diff", "difftool"}:
            return  # git show HEAD:x
        objects = map(_OBJECT.fullmatch, command.operands)
        paths, commits = [found["path"] for found in objects if found is not None], CommitRange(everything=True)
    use = FolderUse(_select(paths), scope="tracked", word=source)
    if commits is not None:
        use = use._replace(scope="objects", commits=commits._replace(paths=tuple(paths)))
    yield RecursiveOperand(command.folder, use)


def _find_commits(command: _GitCommand) -> CommitRange | None:
    """Return the commits that a command shows files of, ``None`` for one of the index and the working tree alone."""
    revisions = tuple(command.revisions)
    staged = re.search(r"^--(?:cached|staged)$", command.options, re.MULTILINE) is not None
    if command.name in _WORKING_TREE and not revisions and not staged:
        return None
    if command.name in {"status", "commit", "checkout-index", "diff-files", "merge-file", "unpack-file"}:
        return CommitRange()
    if command.name == "stash":
        return CommitRange(("refs/stash",), steps=1) if not command.operands[1:] else CommitRange(everything=True)
    if command.name == "grep" and not _GREP_PATTERN.search(command.options):
        revisions = revisions[1:]
    if command.name in {"show", "diff-tree"}:
        return CommitRange(revisions, steps=1)
    if command.name in {"diff", "difftool", "archive", "blame", "annotate", "diff-index", "grep", "worktree"}:
        shown = (name.replace("...", "..") for name in revisions[2 if command.name == "worktree" else 0 :])
        return CommitRange(tuple(shown))
    if command.name in {"log", "whatchanged", "format-patch"} and not _ANY_COMMIT.search(command.options):
        return _find_logged_commits(command, revisions)
    return CommitRange(everything=True)


def _find_logged_commits(command: _GitCommand, revisions: tuple[str, ...]) -> CommitRange:
    found = _COUNT.search(command.options)
    named = tuple(name for name in revisions if found is None or name != found["next"])
    if command.name == "format-patch" and found is None and not any(".." in name for name in named):
        return CommitRange(tuple(f"{name}..HEAD" for name in named))
    count = found and (found["attached"] or found["next"])
    return CommitRange(named, steps=int(count) if count and not _FILTERS.search(command.options) else None)


_GREP_PATTERN = re.compile(r"^-\w*[ef]", re.MULTILINE)

_ANY_COMMIT = re.compile(
    r"^(?:--(?:all|branches|tags|remotes|glob|reflog|walk-reflogs|stdin|root)(?:=.*)?|-g)$", re.MULTILINE
)

_COUNT = re.compile(
    r"^(?:-n?|--max-count=)(?P<attached>\d{1,6})$|^(?:-n|--max-count)\n(?P<next>\d{1,6})$", re.MULTILINE
)

_FILTERS = re.compile(
    r"^(?:-[SGiL]|--(?:pickaxe|grep|author|committer|since|after|until|before|diff-filter|skip|merges|no-merges|first-parent"
    r"|min-parents|max-parents|follow|invert-grep|cherry|left|right))",
    re.MULTILINE,
)
"""Options that leave out commits: then a number of commits does not say how far it looks."""


def _names_only_objects(command: _GitCommand) -> bool:
    named = [value for value in command.operands if value not in {"blob", "tree", "commit", "tag"}]
    return command.name in _SINGLE_OBJECTS and bool(named) and all(map(_OBJECT.fullmatch, named))


def _find_changed(command: _GitCommand) -> Iterator[RecursiveOperand]:
    if not re.search(_CHANGES.get(command.name, "(?!)"), command.options, re.MULTILINE):
        return
    source, paths = f"git {command.name}", command.pathspecs
    if command.name == "clean":
        everything = re.search(r"^-\w*[xX]", command.options, re.MULTILINE) is not None
        use = FolderUse(_select(paths), writes=True, only_changes=not everything, scope="untracked", word=source)
        yield RecursiveOperand(command.folder, use)
        return
    if command.name in {"apply", "am"}:
        yield RecursiveOperand(
            command.folder, FolderUse(accept_all, writes=True, only_changes=True, scope="below", word=source)
        )
        return
    use = FolderUse(_select(paths), writes=True, only_changes=not paths, scope="tracked", word=source)
    yield RecursiveOperand(command.folder, use)
    if command.name == "stash" and re.search(r"^(?:-\w*[ua]|--all|--include-u.*)$", command.options, re.MULTILINE):
        yield RecursiveOperand(command.folder, use._replace(scope="untracked"))
    if paths and command.name in {"checkout", "restore"} and (command.revisions or "source" in command.options):
        existing = FolderUse(_select(paths), writes=True, word=source)
        yield RecursiveOperand(command.folder, existing)


def _select(paths: Sequence[str]) -> PathFilter:
    return partial(_is_in_pathspecs, paths)


def _is_in_pathspecs(paths: Sequence[str], path: str) -> bool:
    """Return whether a path is below one of some paths, or matches one; ``:!x`` leaves out x."""
    left_out = [found[1] for text in paths if (found := _LEFT_OUT.fullmatch(text)) and not _is_elsewhere(found[1])]
    chosen = [text for text in paths if not _LEFT_OUT.match(text)]
    if any(_matches_pathspec(text, path) for text in left_out):
        return False
    return not chosen or any(text.startswith(":") or _matches_pathspec(text, path) for text in chosen)


_LEFT_OUT = re.compile(r":(?:[!^]|\(exclude\))(.*)", re.DOTALL)


def _is_elsewhere(text: str) -> bool:
    """Return whether a path is not known, or not below the folder of the command."""
    return PLACEHOLDER in text or text.startswith(("..", "/"))


def _matches_pathspec(text: str, path: str) -> bool:
    text = posixpath.normpath(text.replace(PLACEHOLDER, "*"))
    if text == "." or text.startswith(("..", "/")):
        return True
    return path == text or path.startswith(f"{text}/") or fnmatchcase(path, text)
