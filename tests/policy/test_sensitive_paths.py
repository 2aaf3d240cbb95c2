"""Paths that decide what runs or what is allowed."""

from tests.policy.tables import each_row
from vaka.policy.paths import protected_part_of, split_path


@each_row(
    [
        "/w/.git/config", "/w/.git/hooks/pre-commit", "/w/.git", "/w/sub/.git/HEAD", "/w/.vscode/tasks.json",
        "/w/.idea/workspace.xml", "/w/.claude/settings.json", "/w/.claude/settings.local.json", "/w/.claude/hooks/x.sh",
        "/w/.claude", "/w/vaka.toml", "/w/.mcp.json", "/home/kim/.bashrc", "/home/kim/.gitconfig",
        "/home/kim/.config/vaka/config.toml", "/etc/vaka/managed-settings.json", "/w/.husky/pre-commit",
        "/w/.devcontainer/devcontainer.json", "/w/.vaka/x", "/w/.envrc",
        # as other file systems see them
        "/w/.GIT/config", "/w/.Git/config", "/w/.git./config", "/w/.git /config", "/w/.git::$INDEX/config",
        "/w/.g\u200cit/config", "/w/\uff0egit/config", "/w/GIT~1/config", "/w/.CLAUDE/Settings.json", "/w/VAKA.TOML",
        "/w/.claude/settings.json.", "/w/.vs\u200bcode/x",
    ]
)  # fmt: skip
def test_a_path_that_decides_what_runs_is_protected(path: str) -> None:
    assert protected_part_of(split_path(path))


@each_row(
    [
        "/w/src/a.py", "/w/.github/workflows/ci.yml", "/w/.gitignore", "/w/.gitattributes", "/w/git/config",
        "/w/x.git/config", "/w/vaka.toml/x", "/w/.config/vaka",
        "/w/.claude/commands/fix.md", "/w/.claude/agents/a.md", "/w/.claude/skills/s/SKILL.md", "/w/settings.json",
        "/w/src/vaka/core.py", "/w/.vscode.md", "/w/docs/vaka.toml.md", "/w/.env", "/",
    ]
)  # fmt: skip
def test_an_ordinary_path_is_not_protected(path: str) -> None:
    assert protected_part_of(split_path(path)) == ""


def test_the_protected_part_of_a_path_is_returned() -> None:
    assert protected_part_of(split_path("/w/.git/config")) == ".git"
    assert protected_part_of(split_path("/w/.claude/settings.json")) == ".claude/settings.json"
    assert protected_part_of(split_path("/w/vaka.toml")) == "vaka.toml"
