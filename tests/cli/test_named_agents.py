"""``--agent NAME``: agents of the project and of the user run on their own, and other names are errors."""

import os

from tests.cli.shell import Shell, call_line, say_line
from tests.cli.test_system_prompt import system_prompt

REVIEWER = """---
name: reviewer
description: Reviews.
tools: Read, Grep, Skill
model: sonnet
skills: style
maxTurns: 3
---
You review."""


def test_an_unknown_name_is_an_error_with_the_names_that_are_near(shell: Shell) -> None:
    none = shell.vaka("run", "Hi.", "--agent", "reviewer", "--model", "scripted:x")
    assert none.code == 3
    assert "there is no agent 'reviewer'; no agent is defined; `vaka agents list` shows all" in none.err
    shell.write_file(".claude/agents/reviewer.md", REVIEWER)
    near = shell.vaka("run", "Hi.", "--agent", "Reviewr", "--model", "scripted:x", "--output", "json")
    assert (near.code, near.json["error"]["code"]) == (3, "config")
    assert "there is no agent 'Reviewr'; did you mean reviewer? `vaka agents list` shows all" in near.err
    for words in (("tools", "list"), ("mcp-server",)):
        assert (
            "there is no agent 'painter'; there are reviewer; `vaka agents list` shows all"
            in shell.vaka(*words, "--agent", "painter").err
        )


def test_an_agent_of_a_file_runs_with_its_prompt_tools_and_model(shell: Shell) -> None:
    shell.write_file(".claude/agents/reviewer.md", REVIEWER)
    shell.write_file(".claude/skills/style/SKILL.md", "---\nname: style\ndescription: Style.\n---\nShort lines.")
    shell.write_file("CLAUDE.md", "Answer in rhymes.")
    shell.write_file("vaka.toml", '[tiers]\nmid = "scripted:script.jsonl"\n')
    shell.write_script(
        call_line("Task", prompt="Help."),
        call_line("Read", file_path="CLAUDE.md"),
        say_line("done"),
    )
    done = shell.vaka("run", "Go.", "--agent", "reviewer", "--session", "s", "--trust", "--output", "json")
    assert (done.code, done.json["text"]) == (0, "done"), done.err
    task, _ = done.json["tool_calls"]
    assert (task["status"], "does not have the tool Task" in str(shell.events("s"))) == ("failed", True)
    text = system_prompt(shell, "--agent", "reviewer", "--append-system-prompt", "The end.")
    assert text.startswith("You review.\n\n# Skill: style\n\nShort lines.\n\nEnvironment")
    assert "The end.\n\n# Memory" in text
    assert text.endswith("Answer in rhymes.")
    plain = system_prompt(shell, "--agent", "reviewer", "--no-base-prompt")
    assert plain == "You review.\n\n# Skill: style\n\nShort lines."
    tools = shell.vaka("tools", "list", "--agent", "reviewer", "--json").json["tools"]
    assert [tool["name"] for tool in tools] == ["Grep", "Read"]


def test_the_default_agent_has_a_name_that_is_taken_too(shell: Shell) -> None:
    assert system_prompt(shell, "--agent", "assistant").startswith("You are vaka, a coding agent.")


def test_an_agent_of_the_project_may_have_the_name_of_the_default_agent(shell: Shell) -> None:
    shell.write_file("agents/assistant.yaml", "prompt: You are defined.\n")
    assert system_prompt(shell, "--agent", "assistant") == "You are defined."
    assert system_prompt(shell).startswith("You are vaka, a coding agent.")


def test_definitions_come_before_files_and_are_listed_with_their_source(shell: Shell) -> None:
    shell.write_file("agents/__init__.py", "")
    shell.write_file("agents/settings.yaml", "colour: blue\n")
    shell.write_file(".claude/agents/reviewer.md", REVIEWER)
    assert shell.vaka("run", "Go.", "--agent", "reviewer", "--model", shell.write_script(say_line("ok"))).out == "ok\n"
    shell.write_file("models/weights.json", "{")
    shell.write_file("agents/reviewer.yaml", "description: Reviews too.\nprompt: You are defined.\n")
    shell.write_file("agents/broken.yaml", "type: nothing\nname: broken\n")
    assert system_prompt(shell, "--agent", "reviewer") == "You are defined."
    table = shell.vaka("agents", "list")
    assert [line.split() for line in table.out.splitlines()[1:]] == [
        ["reviewer", "definition", "Reviews", "too."],
        ["reviewer", "project", "Reviews."],
    ]
    assert "agents/broken.yaml:1: parse agent type: invalid agent type" in table.err
    first, second = shell.vaka("agents", "list", "--json").json
    assert (first["type"], first["path"], first["active"]) == ("react", f"{shell.folder}/agents/reviewer.yaml", True)
    assert (second["source"], second["active"]) == ("project", False)
    shell.write_file(".claude/agents/broken.md", REVIEWER.replace("reviewer", "broken"))
    wrong = shell.vaka("run", "Go.", "--agent", "broken", "--model", "scripted:x")
    assert (wrong.code, "agents/broken.yaml:1: parse agent type" in wrong.err) == (3, True)


def test_a_definition_agent_has_tools_of_flags_a_folder_of_settings_and_variables(shell: Shell) -> None:
    shell.write_file("bot/agents/clerk.yaml", "tools: [{name: add}]\ncontext_layers: [{$env: CITY}, Be kind.]\n")
    shell.write_file("vaka.toml", 'definitions = "bot"\n')
    untrusted = shell.vaka("run", "Add.", "--agent", "clerk", "--tools", "agent.py", "--model", "scripted:x")
    assert untrusted.code == 3
    assert "clerk.yaml:1: $env reads the variable CITY of the environment, which only a trusted folder" in untrusted.err
    flags = ("--agent", "clerk", "--tools", "agent.py", "--trust", "--env", "CITY")
    shell.env["CITY"] = "Lisbon"
    assert system_prompt(shell, *flags) == "Lisbon\n\nBe kind."
    assert "variable CITY" in shell.vaka("run", "Hi.", *flags[:-2], "--model", shell.write_script(say_line("x"))).err
    assert system_prompt(shell, "--agent", "bot/agents/clerk.yaml", *flags[2:]) == "Lisbon\n\nBe kind."
    shell.write_file("bot/agents/odd.yaml", "colour: blue\n")
    for file, problem in (
        ("bot/agents/odd.yaml", "does not define an agent"),
        ("bot/clerk.yaml", "expected a file in"),
        ("bot/agents/clark.yaml", "there is no such file"),
    ):
        wrong = shell.vaka("run", "Hi.", "--agent", file)
        assert (wrong.code, f"{shell.folder}/{file}: {problem}" in wrong.err) == (3, True), wrong.err
    shell.write_file("vaka.toml", 'definitions = "nowhere"\n')
    missing = shell.vaka("run", "Hi.", *flags)
    assert (missing.code, "vaka.toml:1: definitions: there is no folder" in missing.err) == (3, True)


def test_an_agent_of_a_definition_goes_on_after_a_kill(shell: Shell) -> None:
    shell.write_file("agents/clerk.yaml", "prompt: You pay.\ntools: [{$ref: 'tool:pay'}, {$ref: 'tool:gate'}]\n")
    shell.write_script(call_line("pay", amount=5), call_line("gate", path="pipe"), say_line("Paid."))
    os.mkfifo(shell.folder / "pipe")
    first = shell.start_run("Pay.", "--tools", "agent.py", "--session", "s", agent="clerk")
    with (shell.folder / "pipe").open("w"):  # opens when the second tool waits for it
        first.process.kill()
        first.wait_result()
    second = shell.vaka("run", "--resume", "--session", "s", "--deny", "gate")
    assert (second.code, second.out) == (5, "Paid.\n"), "the denied call is the only one that fails"
    assert (shell.folder / "ledger").read_text() == "5\n"
    assert {event["data"]["agent"] for event in shell.events("s") if event["type"] == "turn.started"} == {"clerk"}


def test_a_finished_agent_refuses_another_run_of_its_session(shell: Shell) -> None:
    goodbye = "{name: goodbye, quit: true, lua: function invoke() return 'waved' end}"
    shell.write_file("agents/host.yaml", f"prompt: Be kind.\ntools: [{goodbye}]\n")
    script = shell.write_script(call_line("goodbye"), say_line("Farewell."))
    flags = ("--agent", "host", "--model", script, "--session", "s", "--trust", "--allow", "goodbye")
    first, second = shell.vaka("run", "Bye.", *flags), shell.vaka("run", "Still there?", *flags)
    assert (first.code, first.out.strip()) == (0, "Farewell."), first.err
    assert (second.code, second.out) == (1, "")
    assert "error: agent: closed; the agent 'host' has finished" in second.err
    assert "continue with" in first.err
    assert "continue with" not in second.err


def test_the_coding_agent_has_child_agents_in_a_folder_without_settings(shell: Shell) -> None:
    shell.write_file("notes.txt", "Seven boats.")
    shell.write_script(
        call_line("Task", prompt="How many?", subagent_type="explore"),
        say_line("There are seven."),
        {"agent": "explore", **call_line("Read", file_path="notes.txt")},
        {"agent": "explore", "text": "Seven."},
    )
    ran = shell.vaka("run", "Count.", "--model", "scripted:script.jsonl", "--session", "s")
    assert (ran.code, ran.out) == (0, "There are seven.\n")
    child = shell.vaka("sessions", "show", "s", "--agent", "agent-1").out
    assert "Seven boats." in child
    shell.write_script(say_line("No tools."))
    shell.vaka("run", "Hi.", "--model", "scripted:script.jsonl", "--session", "t", "--builtin-tools", "none")
    assert '"Task"' not in shell.vaka("sessions", "export", "t").out
