"""``vaka skills|commands|agents list``: everything that the folders define, with its source and its problems."""

from tests.cli.shell import Shell, call_line, say_line


def test_components_of_project_user_and_plugins_are_listed(shell: Shell) -> None:
    shell.write_file(".claude/skills/review/SKILL.md", "---\nname: review\ndescription: Reviews.\n---\nBody")
    shell.write_file("home/.claude/skills/review/SKILL.md", "---\nname: review\ndescription: Mine.\n---\nBody")
    shell.write_file("home/.claude/skills/bad/SKILL.md", "---\nname: Not A Slug\ndescription: a: b: c\n---\nBody")
    shell.write_file(".claude/commands/git/commit.md", "Commit it.")
    shell.write_file(
        ".claude/agents/helper.md",
        "---\nname: helper\ndescription: Helps.\ntools: read, codebase\ndisallowedTools: Bash\n---\nYou help.",
    )
    shell.write_file("kit/.claude-plugin/plugin.json", '{"name": "kit"}')
    shell.write_file("kit/commands/run.md", "Run it.")
    skills = shell.vaka("skills", "list", "--json")
    assert [(skill["name"], skill["source"], skill["active"]) for skill in skills.json] == [
        ("review", "project", True),
        ("bad", "user", True),
        ("review", "user", False),
    ]
    assert "the head is not YAML" in skills.err
    commands = shell.vaka("commands", "list", "--json", "--plugin-dir", "kit")
    assert [command["name"] for command in commands.json] == ["git:commit", "kit:run"]
    assert (skills.json[0]["user_invocable"], commands.json[0]["model_invocable"]) == (True, True)
    agents = shell.vaka("agents", "list", "--json")
    assert (agents.json[0]["tools"], agents.json[0]["disallowed_tools"]) == (["read", "codebase"], ["Bash"])
    table = shell.vaka("agents", "list")
    assert "helper.md: tools: there is no codebase here" in table.err
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


def test_a_run_has_the_commands_agents_and_hooks_of_several_plugin_folders(shell: Shell) -> None:
    for plugin in ("one", "two"):
        shell.write_file(f"{plugin}/.claude-plugin/plugin.json", f'{{"name": "{plugin}"}}')
        shell.write_file(f"{plugin}/commands/go.md", f"Go with {plugin}.")
        shell.write_file(f"{plugin}/agents/helper.md", f"---\ndescription: Of {plugin}.\n---\nHelp.")
    hook = '{"UserPromptSubmit": [{"hooks": [{"type": "command", "command": "cat ${CLAUDE_PLUGIN_ROOT}/n"}]}]}'
    shell.write_file("two/hooks/hooks.json", f'{{"hooks": {hook}}}')
    shell.write_file("two/n", "A note of a hook.")
    shell.write_file("empty/readme.txt", "")
    folders = ("--trust", "--plugin-dir", "one", "--plugin-dir", "two")
    task = call_line("Task", prompt="Help.", subagent_type="two:helper")
    script = shell.write_script(
        task | {"expect": {"last_user_contains": "Go with two."}},
        say_line("done"),
        say_line("helped") | {"agent": "two:helper"},
    )
    done = shell.vaka("run", "/two:go", "--model", script, "--session", "s", *folders)
    assert (done.code, done.out.strip()) == (0, "done"), done.err
    assert "A note of a hook." in str(shell.events("s"))
    child = shell.vaka("sessions", "show", "s", "--agent", "agent-1").out
    assert child.splitlines() == ["User: Help.", "Agent agent-1: helped"]
    usage = shell.vaka("sessions", "stats", "s").out.split("\n\n")[1].splitlines()
    assert [line.split()[:2] for line in usage[1:]] == [["assistant", "2"], ["two:helper", "1"], ["all", "3"]]
    listed = shell.vaka("hooks", "list", "--json", *folders).json
    assert [(item["event"], item["command"]) for item in listed] == [("UserPromptSubmit", f"cat {shell.folder}/two/n")]
    wrong = shell.vaka("agents", "list", "--plugin-dir", "empty")
    assert wrong.code == 2
    assert f"there is no plugin in {shell.folder}/empty" in wrong.err
