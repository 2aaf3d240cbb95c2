"""Rules that a person approved for a project: they count in an untrusted folder, and git ignores their file."""

import json
import subprocess
from pathlib import Path

import pytest

from vaka.config.settings import ConfigContext
from vaka.core.types.errors import ConfigError
from vaka.policy.policy import LayeredPolicy
from vaka.project.approved_rules import EXCLUDED, MAX_RULES, store_approved_rules
from vaka.project.claude_settings import load_permissions, project_trust_places


@pytest.fixture
def context(tmp_path: Path) -> ConfigContext:
    for name in ("home", "app"):
        (tmp_path / name).mkdir()
    return ConfigContext(cwd=tmp_path / "app", home=tmp_path / "home", environ={})


def local_settings(folder: Path) -> Path:
    return folder / ".claude/settings.local.json"


def allowed(context: ConfigContext) -> list[str]:
    policy = LayeredPolicy(load_permissions(context, managed=()).layers, cwd=str(context.cwd), home=str(context.home))
    return [rule.text for rule in policy.rules if rule.kind == "allow"]


def git(folder: Path, *words: str) -> str:
    command = ["git", "-c", "protocol.file.allow=always", "-c", "user.name=a", "-c", "user.email=a@b", *words]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


def excluded_lines(file: Path) -> list[str]:
    return [line for line in file.read_text().splitlines() if not line.startswith("#")]


def test_an_approved_rule_counts_in_a_folder_that_is_not_trusted_and_no_other_does(context: ConfigContext) -> None:
    file = local_settings(context.cwd)
    file.parent.mkdir()
    file.write_text('{"permissions": {"allow": ["Bash(rm:*)"], "defaultMode": "acceptEdits"}, "hooks": {}}')
    (file.parent / "settings.json").write_text('{"permissions": {"allow": ["Bash(make)"]}}')
    assert allowed(context) == []
    store_approved_rules(file, ["Bash(make)", "Bash(npm test)"], context)
    assert allowed(context) == ["Bash(make)", "Bash(npm test)"]
    loaded = load_permissions(context, managed=())
    policy = LayeredPolicy(loaded.layers, cwd=str(context.cwd), home=str(context.home))
    assert policy.mode == "default"
    assert [note for note in policy.notes if "Bash(rm:*)" in note]


def test_a_rule_that_is_removed_from_the_settings_counts_no_more(context: ConfigContext) -> None:
    file = local_settings(context.cwd)
    store_approved_rules(file, ["Bash(make)"], context)
    file.write_text('{"permissions": {"allow": []}}')
    assert allowed(context) == []


def test_the_approval_of_one_project_is_none_for_another(context: ConfigContext, tmp_path: Path) -> None:
    store_approved_rules(local_settings(context.cwd), ["Bash(make)"], context)
    other = tmp_path / "other"
    (other / ".claude").mkdir(parents=True)
    local_settings(other).write_bytes(local_settings(context.cwd).read_bytes())
    assert allowed(ConfigContext(cwd=other, home=context.home, environ={})) == []


def test_taking_a_rule_back_leaves_what_was_approved_before(context: ConfigContext) -> None:
    file = local_settings(context.cwd)
    store_approved_rules(file, ["Bash(make)"], context)
    store_approved_rules(file, ["Bash(make)", "Bash(npm test)"], context).remove()
    assert allowed(context) == ["Bash(make)"]
    store_approved_rules(file, ["Bash(make)"], context).remove()
    assert allowed(context) == ["Bash(make)"]


def test_nothing_is_approved_when_the_settings_cannot_be_changed(context: ConfigContext) -> None:
    file = local_settings(context.cwd)
    file.parent.mkdir()
    file.write_text("[1]")
    with pytest.raises(ConfigError):
        store_approved_rules(file, ["Bash(make)"], context)
    file.write_text('{"permissions": {"allow": ["Bash(make)"]}}')
    assert allowed(context) == []


def test_a_project_has_a_limited_number_of_approved_rules(context: ConfigContext) -> None:
    file = local_settings(context.cwd)
    store_approved_rules(file, [f"Bash(make {number})" for number in range(MAX_RULES)], context)
    with pytest.raises(ConfigError, match=f"has {MAX_RULES} rules"):
        store_approved_rules(file, ["Bash(make)"], context)
    assert "Bash(make)" not in file.read_text()


@pytest.mark.parametrize("damage", ["[]", "{", '{"file": 1, "rules": ["Bash(make)"]}', '{"rules": 7}'])
def test_a_damaged_copy_approves_nothing(context: ConfigContext, damage: str) -> None:
    store_approved_rules(local_settings(context.cwd), ["Bash(make)"], context)
    [copy] = (context.user_file.parent / "approved_rules").iterdir()
    copy.write_text(damage)
    assert allowed(context) == []


def test_settings_with_nothing_but_approved_rules_need_no_trust(context: ConfigContext) -> None:
    file = local_settings(context.cwd)
    store_approved_rules(file, ["Bash(make)"], context)
    assert project_trust_places(context) == []
    for text in (
        '{"permissions": {"allow": ["Bash(make)", "Bash(rm:*)"]}}',
        '{"env": {}, "permissions": {"allow": []}}',
        '{"permissions": 7}',
        "{",
    ):
        file.write_text(text)
        assert project_trust_places(context) == [file]


def test_git_ignores_the_file_after_the_first_rule_and_excludes_it_once(context: ConfigContext) -> None:
    git(context.cwd, "init", "-q")
    (context.cwd / ".gitignore").write_text("*.pyc")
    exclude = context.cwd / ".git/info/exclude"
    exclude.write_text("build")  # without an end of line
    for rule in ("Bash(make)", "Bash(npm test)"):
        store_approved_rules(local_settings(context.cwd), [rule], context)
        store_approved_rules(local_settings(context.cwd / "sub"), [rule], context)
    assert exclude.read_text() == f"build\n{EXCLUDED}\n"
    assert git(context.cwd, "status", "--porcelain", "-uall").split() == ["??", ".gitignore"]
    assert (context.cwd / ".gitignore").read_text() == "*.pyc"


def test_a_work_tree_and_a_submodule_exclude_it_in_their_own_repository(context: ConfigContext, tmp_path: Path) -> None:
    for name in ("app", "part"):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        git(folder, "init", "-q")
        git(folder, "commit", "-q", "--allow-empty", "-m", "first")
    git(context.cwd, "submodule", "--quiet", "add", str(tmp_path / "part"), "part")
    git(context.cwd, "worktree", "add", "-q", str(tmp_path / "tree"))
    for folder in (tmp_path / "tree", context.cwd / "part"):
        store_approved_rules(local_settings(folder), ["Bash(make)"], context)
        assert git(folder, "status", "--porcelain") == ""
    assert excluded_lines(context.cwd / ".git/info/exclude") == [EXCLUDED]
    assert excluded_lines(context.cwd / ".git/modules/part/info/exclude") == [EXCLUDED]
    assert excluded_lines(tmp_path / "part/.git/info/exclude") == []


@pytest.mark.parametrize("marker", ["file", "empty", "lost", "link"])
def test_nothing_is_written_where_git_has_no_repository(context: ConfigContext, tmp_path: Path, marker: str) -> None:
    git_path, other = context.cwd / ".git", tmp_path / "other"
    other.mkdir()
    if marker == "empty":
        git_path.mkdir()
    elif marker == "link":
        git(context.cwd, "init", "-q")
        (git_path / "info/exclude").unlink()
        (git_path / "info").rmdir()
        (git_path / "info").symlink_to(other)
    else:
        git_path.write_text("gitdir: " + str(other) if marker == "file" else "nothing")
    store_approved_rules(local_settings(context.cwd), ["Bash(make)"], context)
    assert list(other.iterdir()) == []
    assert allowed(context) == ["Bash(make)"]
    assert json.loads(local_settings(context.cwd).read_text()) == {"permissions": {"allow": ["Bash(make)"]}}
