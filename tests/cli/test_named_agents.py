"""``--agent NAME``: agents of the project and of the user run on their own, and other names are errors."""

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
    assert "there is no agent 'reviewer'; the project has none (`vaka agents list`)" in none.err
    shell.write_file(".claude/agents/reviewer.md", REVIEWER)
    near = shell.vaka("run", "Hi.", "--agent", "Reviewr", "--model", "scripted:x", "--output", "json")
    assert (near.code, near.json["error"]["code"]) == (3, "config")
    assert "there is no agent 'Reviewr'; did you mean reviewer?" in near.err
    for words in (("tools", "list"), ("mcp-server",)):
        assert "there is no agent 'painter'; there are reviewer (`vaka agents list`)" in shell.vaka(
            *words, "--agent", "painter"
        ).err  # fmt: skip


def test_an_agent_of_a_file_runs_with_its_prompt_tools_and_model(shell: Shell) -> None:
    shell.write_file(".claude/agents/reviewer.md", REVIEWER)
    shell.write_file(".claude/skills/style/SKILL.md", "---\nname: style\ndescription: Style.\n---\nShort lines.")
    shell.write_file("CLAUDE.md", "Answer in rhymes.")
    shell.write_file("vaka.toml", '[tiers]\nmid = "scripted:script.jsonl"\n')
    shell.write_script(
        call_line("Task", prompt="Help."),
        call_line("Read", file_path="CLAUDE.md"), say_line("done"),
    )  # fmt: skip
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
