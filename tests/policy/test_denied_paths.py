"""The paths that the sandbox keeps from commands for rules, and the question where there are too many names."""

import time
from pathlib import Path
from typing import Any

import pytest

from vaka.core.types.ids import CallId
from vaka.core.types.message import ToolCall
from vaka.core.types.tool import Allow, Ask, Grant, Verdict
from vaka.policy.denied_paths import DeniedPaths, find_created_paths, find_denied_paths, find_rule_against
from vaka.policy.folder_search import MAX_EXPANDED, FolderSearch, is_too_large
from vaka.policy.policy import LayeredPolicy
from vaka.policy.rules import Layer
from vaka.policy.tool_targets import spec_of


def make_policy(folder: Path, **lists: Any) -> LayeredPolicy:
    return LayeredPolicy([Layer(name="user", **lists)], cwd=str(folder), home="/nowhere/kim")


def make_files(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


def denied(folder: Path, *rules: str, **lists: Any) -> DeniedPaths:
    found = find_denied_paths(make_policy(folder, deny=rules, **lists), [str(folder)])
    return DeniedPaths(*(tuple(sorted(path.removeprefix(f"{folder}/") for path in paths)) for paths in found))


def created(folder: Path, before: DeniedPaths, since: float, *rules: str) -> list[tuple[str, str]]:
    found = find_created_paths(make_policy(folder, deny=rules), [str(folder)], before, since)
    return sorted((entry.path.removeprefix(f"{folder}/"), entry.rule) for entry in found)


def test_rules_are_expanded_to_the_topmost_existing_paths(tmp_path: Path) -> None:
    make_files(tmp_path, "a.lock", "b/c.lock", "b/d", "conf/x", "e/.env", "docs/guide/.env", "docs/a.md")
    rules = (
        "Read(.env)",
        "Edit(*.lock)",
        "Edit(docs/**)",
        "Write(b/d)",
        "Bash(rm:*)",
        "Edit(missing)",
        "Edit(./gone/x)",
    )
    assert denied(tmp_path, *rules) == DeniedPaths(
        ("docs/guide/.env", "e/.env"), ("a.lock", "b/c.lock", "b/d", "docs", "gone/x")
    )


def test_a_folder_of_which_rules_deny_everything_is_one_path(tmp_path: Path) -> None:
    make_files(tmp_path, "app/migrations/1.py", "app/migrations/old/2.py", "app/x.py")
    assert denied(tmp_path, "Edit(**/migrations/**)").unchangeable == ("app/migrations",)
    assert denied(tmp_path, "Edit(**)").unchangeable == (str(tmp_path),)


def test_files_of_git_are_not_meant_by_rules_about_changes(tmp_path: Path) -> None:
    make_files(tmp_path, ".git/refs/heads/docs/x", "docs/x")
    assert denied(tmp_path, "Edit(docs/**)").unchangeable == ("docs",)


def test_rules_that_ask_count_where_no_question_is_asked(tmp_path: Path) -> None:
    make_files(tmp_path, "a.txt", "b.txt")
    found = denied(tmp_path, mode="dontAsk", ask=("Edit(a.txt)", "Read(b.txt)"))
    assert found == DeniedPaths(("b.txt",), ("a.txt",))


def test_created_paths_are_found_with_the_rule_that_denies_them(tmp_path: Path) -> None:
    rules = ("Edit(*.lock)", "Edit(**/migrations/**)", "Read(.env)")
    make_files(tmp_path, "a.lock", "app/migrations/1.py")
    before, since = find_denied_paths(make_policy(tmp_path, deny=rules), [str(tmp_path)]), time.time()
    make_files(
        tmp_path,
        "b.lock",
        "new/migrations/2.py",
        ".env",
        "node_modules/x/y.lock",
        ".git/index.lock",
        "c.txt",
        "app/migrations/3.py",
    )
    assert created(tmp_path, before, since, *rules) == [
        ("b.lock", "Edit(*.lock)"),
        ("new/migrations/2.py", "Edit(**/migrations/**)"),
    ]


def test_the_rule_against_a_path_or_against_one_below_it_is_found(tmp_path: Path) -> None:
    policy = make_policy(tmp_path, deny=("Edit(*.lock)", "Edit(/conf/a/s.yml)", "Edit(docs/*)"))
    asked = {name: find_rule_against(policy, f"{tmp_path}/{name}") for name in ("x/y.lock", "conf/a", "docs", "conf/b")}
    assert asked == {"x/y.lock": "Edit(*.lock)", "conf/a": "Edit(/conf/a/s.yml)", "docs": "", "conf/b": ""}


def test_a_path_that_was_not_touched_is_not_taken_for_a_created_one(tmp_path: Path) -> None:
    make_files(tmp_path, "a.lock")
    later = time.time() + 60
    assert created(tmp_path, DeniedPaths(), later, "Edit(*.lock)") == []


def test_the_nearest_names_are_found_up_to_the_limit(tmp_path: Path) -> None:
    make_files(
        tmp_path, "node_modules/x/a.env", "far/far/far/a.env", *(f"near{number}" for number in range(6)), "a.env"
    )
    policy = make_policy(tmp_path, deny=("Read(*.env)",))
    assert find_denied_paths(policy, [str(tmp_path)], limit=10).unreadable == (f"{tmp_path}/a.env",)
    assert len(find_denied_paths(policy, [str(tmp_path)]).unreadable) == 3


def test_only_names_outside_of_folders_of_dependencies_count(tmp_path: Path) -> None:
    make_files(tmp_path, *(f"node_modules/x/{number}" for number in range(8)), ".git/a/b/c", "a", "b")
    assert not is_too_large([str(tmp_path)], limit=4)
    assert is_too_large([str(tmp_path)], limit=3)


def test_a_search_looks_at_no_more_names_than_the_limit(tmp_path: Path) -> None:
    make_files(tmp_path, *(f"f{number}" for number in range(50)))
    search = FolderSearch([str(tmp_path)], 20)
    assert (len(list(search)), search.exceeded) == (20, True)


def judge(policy: LayeredPolicy, command: str) -> Verdict:
    return policy.judge(ToolCall(id=CallId("call_1"), name="Bash", arguments={"command": command}), spec_of("Bash"), ())


@pytest.fixture(scope="module")
def large_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("large")
    for number in range(MAX_EXPANDED + 1):
        (folder / str(number)).touch()
    return folder


def test_a_command_in_a_large_folder_is_asked_about_with_the_reason(large_folder: Path) -> None:
    verdict = judge(make_policy(large_folder, deny=("Read(.env)",), allow=("Bash(make:*)",)), "make test")
    assert isinstance(verdict, Ask)
    assert "more than 20,000 files" in verdict.reason
    assert "Read(.env)" in verdict.reason
    assert "session" in verdict.scopes


def test_an_approval_for_the_session_answers_the_question(large_folder: Path) -> None:
    policy = make_policy(large_folder, deny=("Read(.env)",), allow=("Bash(make:*)",))
    verdict = judge(policy, "make test")
    assert isinstance(verdict, Ask)
    granted = policy.with_grants([Grant(rule=verdict.grant, answers=verdict.asks)])
    assert isinstance(judge(granted, "make test"), Allow)
    assert isinstance(judge(granted, "make other"), Ask)


@pytest.mark.parametrize("rules", [(), ("Read(/.env)",), ("Edit(/conf/**)", "Read(./a/b)"), ("WebFetch",)])
def test_rules_that_need_no_search_ask_nothing(large_folder: Path, rules: tuple[str, ...]) -> None:
    assert isinstance(judge(make_policy(large_folder, deny=rules, allow=("Bash(make:*)",)), "make test"), Allow)
