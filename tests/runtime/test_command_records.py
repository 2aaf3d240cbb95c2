"""Which commands are recorded, where, and how long."""

import os
from pathlib import Path

import pytest

from vaka.runtime import command_records
from vaka.runtime.command_records import is_read_only, records_folder, remove_unused_records


@pytest.mark.parametrize("command", ["ls -l", "cat a | grep x", "git status", "git log -3", "wc -l *.py", "pwd"])
def test_a_command_that_only_reads_needs_no_record(command: str) -> None:
    assert is_read_only(command)


@pytest.mark.parametrize(
    "command",
    ["touch a", "cat a > b", "python3 x.py", "ls; rm a", "git checkout x", "make", "$(x)", "'", "find . -delete"],
)
def test_any_other_command_is_recorded(command: str) -> None:
    assert not is_read_only(command)


def test_records_are_in_the_data_folder_of_the_user() -> None:
    assert records_folder({"XDG_DATA_HOME": "/data"}) == Path("/data/vaka/snapshots")


def test_the_ignore_rules_of_the_user_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("GIT_CONFIG_GLOBAL", raising=False)
    command_records.find_ignore_files.cache_clear()
    assert command_records.find_ignore_files() == (f"{tmp_path}/config/git/ignore",)
    (tmp_path / ".gitconfig").write_text("[core]\n\texcludesFile = ~/mine\n")
    command_records.find_ignore_files.cache_clear()
    assert command_records.find_ignore_files() == (f"{tmp_path}/mine",)
    command_records.find_ignore_files.cache_clear()


def test_records_of_folders_that_are_gone_or_unused_are_removed(tmp_path: Path) -> None:
    records = tmp_path / "records"
    assert remove_unused_records(records) == 0
    for name, folder in {"used": tmp_path, "old": tmp_path, "gone": tmp_path / "gone"}.items():
        (records / name).mkdir(parents=True)
        (records / name / "folder").write_text(str(folder))
        (records / name / "lock").touch()
    (records / "other").mkdir()
    os.utime(records / "old/lock", (1, 1))
    assert remove_unused_records(records, dry_run=True) == 2
    assert remove_unused_records(records) == 2
    assert sorted(path.name for path in records.iterdir()) == ["other", "used"]
