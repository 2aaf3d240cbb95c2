"""``vaka skills|commands|agents list``: everything that the folders define, with its source and its problems."""

from tests.cli.shell import Shell


def test_components_of_project_user_and_plugins_are_listed(shell: Shell) -> None:
    shell.write_file(".claude/skills/review/SKILL.md", "---\nname: review\ndescription: Reviews.\n---\nBody")
    shell.write_file("home/.claude/skills/review/SKILL.md", "---\nname: review\ndescription: Mine.\n---\nBody")
    shell.write_file("home/.claude/skills/bad/SKILL.md", "---\nname: Not A Slug\ndescription: a: b: c\n---\nBody")
    shell.write_file(".claude/commands/git/commit.md", "Commit it.")
    shell.write_file(".claude/agents/helper.md", "---\nname: helper\ndescription: Helps.\ntools: Read\n---\nYou help.")
    shell.write_file("kit/.claude-plugin/plugin.json", '{"name": "kit"}')
    shell.write_file("kit/commands/run.md", "Run it.")
    skills = shell.vaka("skills", "list", "--json")
    assert [(skill["name"], skill["source"], skill["active"]) for skill in skills.json] == [
        ("review", "project", True), ("bad", "user", True), ("review", "user", False),
    ]  # fmt: skip
    assert "the head is not YAML" in skills.err
    commands = shell.vaka("commands", "list", "--json", "--plugin-dir", "kit")
    assert [command["name"] for command in commands.json] == ["git:commit", "kit:run"]
    table = shell.vaka("agents", "list")
    assert table.out.splitlines()[1].split() == ["helper", "project", "Helps."]
