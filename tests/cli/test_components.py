"""``vaka skills|commands|agents list``: everything that the folders define, with its source and its problems."""

from tests.cli.shell import Shell, say_line


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


def test_a_run_of_the_coding_agent_has_the_memory_and_the_commands_of_the_project(shell: Shell) -> None:
    shell.write_file("CLAUDE.md", "Answer in rhymes.")
    shell.write_file(".claude/commands/fix.md", "Fix bug $1.")
    script = shell.write_script(say_line("done") | {"expect": {"last_user_contains": "Fix bug 12."}})
    done = shell.vaka("run", "/fix 12", "--model", script, "--session", "s")
    assert (done.code, done.out.strip()) == (0, "done"), done.err
    step = next(event for event in shell.events("s") if event["type"] == "step.started")
    assert step["data"]["system"]
    named = shell.vaka("run", "/fix 12", "--model", script, "--agent", "agent.py")
    assert "12" in named.err  # an agent of a file gets the text as it is
