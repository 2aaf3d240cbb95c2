"""The quarantine moves entries away, within limits, and follows no link; missing paths are watched, or looked at."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from vaka.sandbox.removal import quarantine_folders, remove_created
from vaka.sandbox.warden.created_paths import CreatedPaths, MissingPaths
from vaka.sandbox.warden.new_repository import has_only_harmless_settings
from vaka.sandbox.warden.quarantine import MAX_KEPT, Quarantine, RemovedEntry


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


@pytest.fixture(params=["same file system", "another"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A quarantine beside the workspace, or where a rename does not lead."""
    if request.param == "same file system":
        yield str(tmp_path / "data/quarantine")
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        if Path(folder).stat().st_dev == tmp_path.stat().st_dev:
            pytest.skip("there is no other file system here")
        yield f"{folder}/quarantine"


def remove(quarantine: Quarantine, folder: Path, name: str) -> RemovedEntry | None:
    opened = os.open(folder, os.O_RDONLY)
    try:
        return quarantine.remove(opened, name, f"{folder}/{name}")
    finally:
        os.close(opened)


def test_a_folder_is_kept_with_everything_in_it(workspace: Path, place: str) -> None:
    (workspace / ".vscode/deep").mkdir(parents=True)
    (workspace / ".vscode/deep/tasks.json").write_text("text")
    (workspace / ".vscode/link").symlink_to("/etc/passwd")
    os.mkfifo(workspace / ".vscode/pipe")
    removed = remove(Quarantine((place,)), workspace, ".vscode")
    assert removed is not None
    assert (removed.path, removed.problem, list(workspace.iterdir())) == (f"{workspace}/.vscode", "", [])
    assert (Path(removed.kept) / "deep/tasks.json").read_text() == "text"
    assert (Path(removed.kept) / "link").is_symlink()
    assert Path(place).stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("kind", ["file", "link", "locked folder"])
def test_every_kind_of_entry_is_moved(workspace: Path, place: str, kind: str) -> None:
    entry = workspace / ".envrc"
    if kind == "file":
        entry.write_text("text")
    elif kind == "link":
        entry.symlink_to("/etc")
    else:
        entry.mkdir()
        entry.chmod(0)
    removed = remove(Quarantine((place,)), workspace, ".envrc")
    assert removed is not None
    assert (os.path.lexists(entry), os.path.lexists(removed.kept), Path(removed.kept).is_symlink()) == (
        False,
        True,
        kind == "link",
    )
    assert Path("/etc/passwd").exists()


def test_a_missing_entry_leaves_nothing_in_the_quarantine(workspace: Path, place: str) -> None:
    assert remove(Quarantine((place,)), workspace, ".vscode") is None
    assert list(Path(place).glob("*/*")) == []


def test_without_a_place_entries_are_deleted(workspace: Path) -> None:
    (workspace / ".vscode/deep").mkdir(parents=True)
    (workspace / "file").touch()
    quarantine = Quarantine((f"{workspace}/file/impossible",))
    assert remove(quarantine, workspace, ".vscode") == RemovedEntry(f"{workspace}/.vscode", "")
    assert [path.name for path in workspace.iterdir()] == ["file"]


def test_a_folder_of_another_user_is_no_quarantine(workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    (workspace / ".vscode").mkdir()
    removed = remove(Quarantine((str(tmp_path / "link"), str(tmp_path / "own"))), workspace, ".vscode")
    assert removed is not None
    assert removed.kept.startswith(f"{tmp_path}/own/")


def test_entries_over_the_limit_are_deleted(workspace: Path, tmp_path: Path) -> None:
    quarantine = Quarantine((str(tmp_path / "q"),))
    removed: list[RemovedEntry | None] = []
    for _ in range(MAX_KEPT + 2):
        (workspace / ".vscode/x").mkdir(parents=True)
        removed.append(remove(quarantine, workspace, ".vscode"))
    assert [entry is not None and bool(entry.kept) for entry in removed] == [True] * MAX_KEPT + [False] * 2
    assert len([*(tmp_path / "q").glob("*/*")]) == MAX_KEPT


def test_an_entry_that_cannot_be_removed_is_reported(workspace: Path, tmp_path: Path) -> None:
    assert os.path.ismount("/proc")  # what is mounted on cannot be renamed
    removed = remove(Quarantine((str(tmp_path / "q"),)), Path("/"), "proc")
    assert removed is not None
    assert removed.problem.startswith("it cannot be removed: ")


def test_paths_against_rules_are_removed_and_links_are_not_followed(
    tmp_path: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/a.lock").touch()
    (workspace / "link").symlink_to(tmp_path / "outside")
    (workspace / "b.lock").touch()
    paths = [(f"{workspace}/{name}", "Edit(*.lock)") for name in ("link/a.lock", "b.lock", "gone.lock")]
    (removed,) = remove_created(paths, [str(workspace)])
    assert (removed.path, removed.rule) == (f"{workspace}/b.lock", "Edit(*.lock)")
    assert removed.kept.startswith(f"{tmp_path}/data/vaka/quarantine/")
    assert (tmp_path / "outside/a.lock").exists()


def test_the_quarantine_is_never_inside_of_the_workspace(
    tmp_path: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(workspace / "data"))
    (workspace / "b.lock").touch()
    (removed,) = remove_created([(f"{workspace}/b.lock", "Edit(*.lock)")], [str(workspace)])
    assert removed.kept.startswith(f"{quarantine_folders()[1]}/")
    assert list(workspace.iterdir()) == []


# ------------------------------------------------------------------------------------------------------------ watching


def watch(workspace: Path, *names: str) -> CreatedPaths:
    missing = MissingPaths()
    for name in names:
        missing.add(str(workspace), name.split("/"))
    return CreatedPaths(missing, Quarantine((str(workspace.parent / "q"),)))


def watch_existing(workspace: Path, missing_in: dict[str, list[str]]) -> CreatedPaths:
    """Watch names that are missing in existing folders."""
    missing = MissingPaths()
    for folder, names in missing_in.items():
        for name in names:
            missing.add(f"{workspace}/{folder}".rstrip("/"), name.split("/"))
    return CreatedPaths(missing, Quarantine((str(workspace.parent / "q"),)))


def test_what_appears_is_removed_when_it_is_noticed(workspace: Path) -> None:
    created = watch(workspace, ".vscode", ".github/workflows", ".config/git", ".config")
    (workspace / "free").mkdir()
    (workspace / ".vscode").mkdir()
    (workspace / ".github/workflows").mkdir(parents=True)
    (workspace / ".config").write_text("x")
    assert sorted(entry.path for entry in created.read()) == [
        f"{workspace}/{name}" for name in (".config", ".github/workflows", ".vscode")
    ]
    (workspace / ".github/workflows").touch()
    assert [entry.path for entry in created.read()] == [f"{workspace}/.github/workflows"]
    assert (created.read(), created.must_poll) == ([], False)
    created.close()


def test_a_folder_that_was_renamed_is_no_longer_watched(workspace: Path) -> None:
    created = watch(workspace, ".github/workflows")
    (workspace / ".github").mkdir()
    assert created.read() == []
    (workspace / ".github").rename(workspace / "other")
    (workspace / "other/workflows").mkdir()
    (workspace / "other/workflows").rmdir()
    (workspace / "other/workflows").mkdir()
    assert (created.read(), created.scan()) == ([], [])
    (workspace / "other").rename(workspace / ".github")
    assert [entry.path for entry in created.read()] == [f"{workspace}/.github/workflows"]
    created.close()


def test_a_folder_that_is_replaced_by_a_link_meanwhile_leads_nowhere(workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "outside/workflows").mkdir(parents=True)
    (tmp_path / "outside/workflows/keep").touch()
    swap = (
        "import os, itertools\nfor n in itertools.count():\n"
        " try:\n  os.mkdir('.github'); os.rename('.github', f'was{n}'); os.symlink('../outside', '.github')\n"
        " except OSError: pass\n"
    )
    created = watch(workspace, ".github/workflows", ".vscode")
    removed: list[RemovedEntry] = []
    with subprocess.Popen([sys.executable, "-c", swap], cwd=workspace) as swapping:
        while len(removed) < 50:
            removed += [*created.read(), *created.scan()]
        swapping.kill()
    created.close()
    assert {entry.path for entry in removed} == {f"{workspace}/.github"}
    assert (tmp_path / "outside/workflows/keep").exists()


@pytest.mark.parametrize("way", [".github", "sub", "sub/.github"])
def test_a_folder_on_the_way_that_a_command_replaces_is_watched_again(workspace: Path, way: str) -> None:
    (workspace / "sub/.github").mkdir(parents=True)
    (workspace / ".github").mkdir()
    created = watch_existing(workspace, {"": [".vscode"], ".github": ["workflows"], "sub/.github": ["workflows"]})
    protected = workspace / ("sub/.github/workflows" if "sub" in way else ".github/workflows")
    (workspace / way).rename(workspace / "was")
    protected.parent.mkdir(parents=True)
    assert (created.read(), created.must_poll) == ([], False)
    for _ in range(2):
        protected.mkdir()
        assert [entry.path for entry in created.read()] == [str(protected)]
    created.close()


def test_a_folder_that_comes_back_with_a_missing_path_in_it_loses_that_path(workspace: Path) -> None:
    (workspace / "sub/.github").mkdir(parents=True)
    created = watch_existing(workspace, {"": [".vscode"], "sub/.github": ["workflows"]})
    (workspace / "sub").rename(workspace / "was")
    (workspace / "was/.github/workflows").mkdir()
    assert created.read() == []
    (workspace / "was").rename(workspace / "sub")
    assert [entry.path for entry in created.read()] == [f"{workspace}/sub/.github/workflows"]
    created.close()


def test_a_link_in_place_of_a_folder_that_leads_to_a_missing_path_is_removed(workspace: Path) -> None:
    (workspace / "sub/.github").mkdir(parents=True)
    created = watch_existing(workspace, {"": [".vscode"], "sub/.github": ["workflows/later"]})
    (workspace / "other/.github").mkdir(parents=True)
    (workspace / "sub").rename(workspace / "was")
    (workspace / "sub").symlink_to("other")
    assert created.read() == [], "nothing is at the protected path"
    (workspace / "other/.github/workflows").mkdir()
    (workspace / "other/.github/workflows/later").touch()
    assert created.must_poll
    assert [entry.path for entry in created.scan()] == [f"{workspace}/sub"]
    assert (workspace / "other/.github/workflows/later").exists()
    created.close()


def test_a_file_in_place_of_a_folder_on_the_way_stays(workspace: Path) -> None:
    (workspace / "sub/.github").mkdir(parents=True)
    created = watch_existing(workspace, {"": [".vscode"], "sub/.github": ["workflows"]})
    (workspace / "sub").rename(workspace / "was")
    (workspace / "sub").touch()
    assert (created.read(), created.scan()) == ([], [])
    created.close()


def test_a_folder_that_cannot_be_watched_is_looked_at(workspace: Path) -> None:
    missing = MissingPaths()
    missing.add(f"{workspace}/later", ["hooks"])
    created = CreatedPaths(missing, Quarantine((str(workspace.parent / "q"),)))
    (workspace / "later/hooks").mkdir(parents=True)
    assert created.must_poll
    assert [entry.path for entry in created.scan()] == [f"{workspace}/later/hooks"]
    created.close()


def test_an_overflow_of_events_is_followed_by_a_look_at_everything(workspace: Path) -> None:
    created = watch(workspace, ".vscode", "x")
    (workspace / ".vscode").mkdir()
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    for number in range(limit // 2 + 10):  # two events each, those of one name in turn are not merged
        (workspace / "y").touch()
        (workspace / "y").rename(workspace / f"z{number % 2}")
    removed: list[RemovedEntry] = []
    while found := created.read():
        removed += found
    (workspace / "x").mkdir()
    removed += created.scan()
    assert {entry.path for entry in removed} == {f"{workspace}/.vscode", f"{workspace}/x"}
    created.close()


def test_an_announced_path_stays(workspace: Path) -> None:
    created = watch(workspace, ".vscode", ".idea")
    created.announce(f"{workspace}/.vscode/settings.json")
    created.announce(f"{workspace}/.vscode/settings.json")
    for name in (".vscode", ".idea"):
        (workspace / name).mkdir()
    assert [entry.path for entry in created.read()] == [f"{workspace}/.idea"]
    created.close()


# ------------------------------------------------------------------------------------------------------------ settings


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[core]\n\tbare = false\n# note\n",
        "[user] name = kim\n\temail = k@example.org\n",
        '[remote "origin"]\n\turl = git@example.org:x.git\n[branch "main"]\n\tmerge = refs/heads/main\n',
        "[co",
        "[core]\n\tfi",
    ],
)
def test_settings_that_run_nothing_are_harmless(text: str) -> None:
    assert has_only_harmless_settings(text)


@pytest.mark.parametrize(
    "text",
    [
        "[core]\n\tfsmonitor = ./x\n",
        "[core]\n\tfsmonitor=x",
        "[core] pager = x\n",
        "[include]\n\tpath = x\n",
        '[filter "x"]\n\tclean = y\n',
        "[alias]\n\tst = !x\n",
        "bare = false\n",
        "[core]\n\tbare = \\\n\tfsmonitor = x\n",
        "[user] name = x\n[core] sshCommand = y\n",
        "[core.x]\n\tbare = y\n",
        "nonsense!\n",
        "[core] [core]fsmonitor=x",
    ],
)
def test_settings_that_may_run_something_are_not(text: str) -> None:
    assert not has_only_harmless_settings(text)
