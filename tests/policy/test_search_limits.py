"""The work of a decision is bounded: where more would be needed, a person is asked."""

import subprocess
from pathlib import Path

import pytest

from vaka.policy import covered_paths, git_history
from vaka.policy.covered_paths import CoveredFiles
from vaka.policy.decision import CommitRange, FolderUse
from vaka.policy.denied_paths import find_denied_paths
from vaka.policy.folder_search import is_too_large
from vaka.policy.git_history import HistoryTooLarge, find_committed_paths
from vaka.policy.paths import PathAnchors, PathPattern
from vaka.policy.policy import LayeredPolicy
from vaka.policy.rules import Layer


def make_patterns(folder: Path, *texts: str) -> list[PathPattern]:
    anchors = PathAnchors(cwd=str(folder), home="/", folder=str(folder))
    return [PathPattern(text, "deny", anchors) for text in texts]


def is_found(search: CoveredFiles, folder: Path, patterns: list[PathPattern], use: FolderUse) -> str | None:
    found = search.find(str(folder), patterns, use)
    return None if found is None else found.path


def select_all(_path: str) -> bool:
    return True


def ends_with_nine(name: str) -> bool:
    return name.endswith("9")


def test_all_searches_of_one_decision_share_one_limit_and_each_folder_is_searched_once(tmp_path: Path) -> None:
    for number in range(60):
        (tmp_path / f"f{number}").touch()
    patterns, use = make_patterns(tmp_path, "./missing"), FolderUse(select_all)
    search = CoveredFiles(limit=100)
    assert [is_found(search, tmp_path, patterns, use) for _ in range(5)] == [None] * 5, "the second time costs nothing"
    globbed = FolderUse(select_all, certain=True, parts=(ends_with_nine,))
    assert is_found(search, tmp_path, patterns, globbed) == "", "60 more names are too many"
    assert is_found(CoveredFiles(limit=100), tmp_path, patterns, globbed) is None
    assert covered_paths.MAX_ENTRIES == 100_000


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    def git(*words: str) -> None:
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=tmp_path, check=True)

    git("init", "-qb", "main")
    for number in range(6):
        (tmp_path / "src").mkdir(exist_ok=True)
        (tmp_path / "src/a").write_text(str(number) * 2_000)
        (tmp_path / ".env").write_text("secret")
        git("add", "-f", *(["."] if number == 0 else ["src"]))
        git("commit", "-qm", str(number))
        git(*(["rm", "-q", "--cached", ".env"] if number == 0 else ["tag", f"v{number}"]))
    return tmp_path


def committed(root: Path, shown: CommitRange, limit: int = git_history.MAX_OBJECTS) -> set[str]:
    return set(find_committed_paths(str(root), shown, lambda path: path.endswith(".env"), limit))


@pytest.mark.parametrize("packed", [False, True])
def test_a_file_of_an_older_commit_is_found_in_the_commits_that_are_shown(repository: Path, *, packed: bool) -> None:
    if packed:
        subprocess.run(["git", "gc", "-q", "--aggressive"], cwd=repository, check=True)
        subprocess.run(["git", "pack-refs", "--all"], cwd=repository, check=True)
    first = subprocess.check_output(["git", "rev-parse", "HEAD~5"], cwd=repository, text=True).strip()
    for shown in (
        CommitRange(steps=None),
        CommitRange(("HEAD~5",)),
        CommitRange(("HEAD~4",), steps=1),
        CommitRange(("v1^",)),
        CommitRange(("v2", "v1~1")),
        CommitRange(("HEAD~5..HEAD",)),
        CommitRange((f"{first}...v5",)),
        CommitRange((first[:9],)),
        CommitRange(everything=True),
        CommitRange(("no-such-name",)),
        CommitRange(("HEAD@{5}",)),
    ):
        assert committed(repository, shown) == {".env"}, shown
    for shown in (
        CommitRange(),
        CommitRange(("main",), steps=2),
        CommitRange(("v3", "v5")),
        CommitRange(("v3..main",)),
    ):
        assert committed(repository, shown) == set(), shown


def test_a_history_of_too_many_objects_is_not_known(repository: Path) -> None:
    subprocess.run(["git", "fast-import", "--quiet", "--force"], input=_long_history(), cwd=repository, check=True)
    assert committed(repository, CommitRange(("refs/heads/long",), steps=20)) == set()
    with pytest.raises(HistoryTooLarge):
        committed(repository, CommitRange(("refs/heads/long",), steps=None))
    assert git_history.MAX_OBJECTS == 5_000


@pytest.mark.parametrize(
    ("shown", "objects"),
    [
        (CommitRange(("refs/heads/long",)), 2),  # a commit and its tree
        (CommitRange(("refs/heads/long",), steps=1), 4),
        (CommitRange(("refs/heads/long~1..refs/heads/long",)), 5),  # the base of the range twice
    ],
)
def test_the_work_for_some_commits_does_not_grow_with_the_history(
    shown: CommitRange, objects: int, repository: Path
) -> None:
    subprocess.run(["git", "fast-import", "--quiet", "--force"], input=_long_history(), cwd=repository, check=True)
    assert committed(repository, shown, limit=objects) == set()
    with pytest.raises(HistoryTooLarge):
        committed(repository, shown, limit=objects - 1)


def test_a_tree_of_20000_names_is_looked_at_once_for_all_parts_of_a_command(tmp_path: Path) -> None:
    for folder in range(200):
        (tmp_path / f"d{folder}").mkdir()
        for name in range(99):
            (tmp_path / f"d{folder}/{name}").touch()
    patterns, use = make_patterns(tmp_path, "**/.env", "./conf/**"), FolderUse(select_all)
    exact, fewer = CoveredFiles(limit=20_000), CoveredFiles(limit=19_999)
    assert [is_found(exact, tmp_path, patterns, use) for _ in range(3)] == [None] * 3
    assert is_found(fewer, tmp_path, patterns, use) == "", "each name is counted"
    layer = Layer(name="user", deny=("Read(**/.env)", "Edit(./conf/**)"))
    policy = LayeredPolicy([layer], cwd=str(tmp_path), home="/nowhere")
    assert find_denied_paths(policy, [str(tmp_path)], limit=20_000).unreadable == ()
    assert not is_too_large([str(tmp_path)], limit=20_000)


def _long_history() -> bytes:
    commits = (
        f"commit refs/heads/long\ncommitter a <a@b> {number} +0000\ndata 1\nx\nM 644 inline f\ndata 5\n{number:05}\n"
        for number in range(3_000)
    )
    return "".join(commits).encode()


def test_a_broken_object_makes_the_history_unknown(repository: Path) -> None:
    tree = subprocess.check_output(["git", "rev-parse", "HEAD^{tree}"], cwd=repository, text=True).strip()
    loose = repository / ".git/objects" / tree[:2] / tree[2:]
    loose.chmod(0o644)
    loose.write_bytes(b"no object")
    with pytest.raises(HistoryTooLarge):
        committed(repository, CommitRange())
