"""Skills, commands, agents and plugins of ``.claude`` folders: all are found, sloppy ones with a problem."""

from pathlib import Path
from typing import Any

import pytest

from vaka.project.components import Components, load_components
from vaka.project.frontmatter import parse_markdown
from vaka.project.plugins import find_plugins


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def load(folder: Path) -> Components:
    return load_components([("project", folder)])


@pytest.mark.parametrize(
    ("head", "fields", "sloppy"),
    [
        ("name: a\ndescription: Does: many things [x]", {"name": "a", "description": "Does: many things [x]"}, True),
        ("name: a\ntools: Read, Write", {"name": "a", "tools": "Read, Write"}, False),
        ("name: a\ntools: [Read, Write]", {"name": "a", "tools": ["Read", "Write"]}, False),
        ("name: a\ntools:\n  - Read\n  - Write", {"name": "a", "tools": ["Read", "Write"]}, False),
        ("name: 3\nflag: true", {"name": 3, "flag": True}, False),
        ("argument-hint: [a] [b]", {"argument-hint": "[a] [b]"}, True),
        ("name: a\n\ttabs: everywhere", {"name": "a\ntabs: everywhere"}, True),
        ("description: |\n  two\n  lines", {"description": "two\nlines\n"}, False),
        ("- a\n- b", {}, True),
        ("", {}, False),
    ],
)
def test_a_head_is_read_as_yaml_or_line_by_line(head: str, fields: dict[str, Any], sloppy: bool) -> None:
    for text in (f"---\n{head}\n---\nBody", f"\ufeff---\r\n{head}\r\n---\r\nBody".replace("\r\n\r\n", "\r\n")):
        parsed = parse_markdown(text)
        assert parsed.fields == fields
        assert parsed.body == "Body"
        assert bool(parsed.problems) is sloppy


def test_lists_are_read_from_every_form() -> None:
    for value in (
        "Read, Bash(git add:*, git push:*)",
        "[Read, 'Bash(git add:*, git push:*)']",
        "\n- Read\n- Bash(git add:*, git push:*)",
    ):
        names = parse_markdown(f"---\ntools: {value}\n---\n").names("tools")
        assert names == ("Read", "Bash(git add:*, git push:*)")


def test_skills_are_found_without_reading_their_bodies_and_read_on_use(tmp_path: Path) -> None:
    path = write(tmp_path / "skills/review/SKILL.md", "---\nname: review\ndescription: Reviews code.\n---\nFirst body")
    (skill,) = load(tmp_path).skills
    assert (skill.name, skill.description, skill.problems, skill.folder) == ("review", "Reviews code.", (), path.parent)
    write(path, "---\nname: review\n---\nSecond body")
    assert skill.read_body() == "Second body"


def test_a_sloppy_skill_is_kept_with_its_problems(tmp_path: Path) -> None:
    write(tmp_path / "skills/one/SKILL.md", "---\nname: My Skill\ndescription: x\n---\nB")
    write(tmp_path / "skills/two/SKILL.md", f"---\nname: other\ndescription: {'x' * 2000}\n---\nB")
    write(tmp_path / "skills/three/SKILL.md", "Just text.")
    write(tmp_path / "skills/four/SKILL.md", "---\nname: four\ndescription: a: b: [c\n---\nB")
    write(tmp_path / "skills/not-a-skill/README.md", "x")
    found = {skill.name: skill for skill in load(tmp_path).skills}
    assert set(found) == {"one", "other", "three", "four"}
    assert "is not made of a-z" in found["one"].problems[0]
    assert len(found["other"].description) == 1024
    assert found["three"].description == "Just text."
    assert found["four"].description == "a: b: [c"
    assert all(str(tmp_path) in problem for skill in found.values() for problem in skill.problems)


def test_commands_have_namespaces_and_all_their_fields(tmp_path: Path) -> None:
    write(tmp_path / "commands/deploy.md", "Deploys the project.\n\nDo it.")
    head = "description: Commits\nargument-hint: [message]\nallowed-tools: Bash(git add:*), Bash(git commit:*)\n"
    more = "model: haiku\ndisable-model-invocation: true\n"
    write(tmp_path / "commands/git/commit.md", f"---\n{head}{more}---\nCommit.")
    found = {command.name: command for command in load(tmp_path).commands}
    assert found["deploy"].description == "Deploys the project."
    commit = found["git:commit"]
    assert commit.allowed_tools == ("Bash(git add:*)", "Bash(git commit:*)")
    assert (commit.argument_hint, commit.model, commit.model_invocable) == ("[message]", "haiku", False)


def test_agents_are_read_with_tools_as_text_list_or_star(tmp_path: Path) -> None:
    for name, tools in (("a", "Read, Grep"), ("b", "[Read, Grep]"), ("c", "'*'")):
        write(
            tmp_path / f"agents/{name}.md",
            f"---\nname: {name}\ndescription: x\ntools: {tools}\nmaxTurns: 5\n---\nYou are.",
        )
    write(tmp_path / "agents/deep/Code Reviewer.md", "---\nname: Code Reviewer\ndescription: x\nmaxTurns: many\n---\nB")
    found = {agent.name: agent for agent in load(tmp_path).agents}
    assert [found[name].tools for name in "abc"] == [("Read", "Grep"), ("Read", "Grep"), None]
    assert found["a"].max_turns == 5
    assert len(found["code-reviewer"].problems) == 2


def test_the_first_of_two_with_one_name_is_used_and_both_are_listed(tmp_path: Path) -> None:
    for folder in ("project", "user"):
        write(tmp_path / folder / "agents/helper.md", f"---\ndescription: of the {folder}\n---\nB")
    found = load_components([("project", tmp_path / "project"), ("user", tmp_path / "user")])
    assert [agent.source for agent in found.agents] == ["project", "user"]
    helper = found.find_agent("helper")
    assert helper is not None
    assert helper.description == "of the project"
    assert found.find_agent("missing") is None


def test_a_plugin_brings_its_parts_under_its_name(tmp_path: Path) -> None:
    root = tmp_path / "plugins/tools"
    write(
        root / ".claude-plugin/plugin.json",
        '{"name": "kit", "version": "1", "commands": ["./more"], "hooks": "./h.json"}',
    )
    write(root / "commands/run.md", "Runs ${CLAUDE_PLUGIN_ROOT}/bin.")
    write(root / "more/extra.md", "Extra.")
    write(root / "skills/look/SKILL.md", "---\nname: look\ndescription: x\n---\nB")
    write(root / "hooks/hooks.json", '{"hooks": {}}')
    write(root / "h.json", '{"hooks": {"Stop": []}}')
    write(tmp_path / "plugins/broken/.claude-plugin/plugin.json", "{")
    plugins = find_plugins([tmp_path / "plugins"])
    found = load_components([], plugins)
    assert [command.name for command in found.commands] == ["kit:run", "kit:extra"]
    run = found.find_command("run")
    assert run is not None
    assert run.read_body() == f"Runs {root}/bin."
    assert found.find_skill("kit:look") is not None
    assert len(found.problems) == 1


def test_folders_that_are_missing_unreadable_or_linked_in_a_circle_lose_nothing_else(tmp_path: Path) -> None:
    write(tmp_path / "commands/a.md", "A.")
    (tmp_path / "commands/loop").symlink_to(tmp_path / "commands")
    (tmp_path / "commands/dangling.md").symlink_to(tmp_path / "nowhere")
    (tmp_path / "agents").write_text("a file")
    found = load(tmp_path)
    assert [command.name for command in found.commands] == ["a"]
    assert any("dangling.md: cannot be read" in problem for problem in found.problems)
    assert load(tmp_path / "missing") == Components()
