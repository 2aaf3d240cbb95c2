"""Calls run in order, rules count at once, and rewinds end turns, in a repository with uncommitted work."""

import os

from tests.journeys.answers import PATIENCE, call, calls, say
from tests.journeys.installed import Home
from tests.journeys.project import Project
from tests.journeys.provider import MODELS, Provider, Received
from tests.journeys.terminal import CTRL_D, Terminal

MODEL = ("--model", MODELS["anthropic"])
FREE = (*MODEL, "--permission-mode", "bypassPermissions")


def results_of(request: Received) -> list[str]:
    """Return the texts of the results in the last message of a request."""
    blocks = request.body["messages"][-1]["content"]
    return ["".join(part["text"] for part in block["content"]) for block in blocks if block["type"] == "tool_result"]


def test_calls_of_one_step_that_use_the_same_file_run_in_order(
    home: Home, project: Project, provider: Provider
) -> None:
    script = provider.script(
        "Number the plan.",
        call("Read", file_path="plan.md"),
        calls(
            ("Edit", {"file_path": "plan.md", "old_string": "hull", "new_string": "HULL"}),
            ("Read", {"file_path": "plan.md"}),
            ("Edit", {"file_path": "plan.md", "old_string": "HULL", "new_string": "hull"}),
            (
                "Bash",
                {"command": "until [ -e late.txt ]; do echo late > late.txt; done; rm late.txt; echo on > on.txt"},
            ),
            ("Read", {"file_path": "on.txt"}),
            ("Bash", {"command": "rm on.txt"}),
        ),
        say("Done."),
    )
    home.run(project.folder, "run", "Number the plan.", *FREE)
    results = results_of(script.requests[-1])
    assert "1. Build the HULL." in results[1]
    assert "on" in results[4]


def test_calls_that_wait_for_another_one_when_vaka_is_killed_run_when_it_goes_on(
    home: Home, project: Project, provider: Provider
) -> None:
    script = provider.script(
        "Write a note.",
        calls(
            ("Bash", {"command": "echo begun > begun; sleep 600"}),
            ("Write", {"file_path": "note.txt", "content": "noted\n"}),
            ("Read", {"file_path": "note.txt"}),
        ),
        say("The note is written."),
    )
    begun = project.folder / "begun"
    os.mkfifo(begun)
    process = home.start(project.folder, "run", "Write a note.", *FREE, "--session", "note")
    assert begun.read_text() == "begun\n"
    process.kill()
    process.communicate(timeout=PATIENCE)
    assert not (project.folder / "note.txt").exists()
    assert home.run(project.folder, "run", "--session", "note", "--resume") == "The note is written.\n"
    killed, written, read = results_of(script.requests[-1])
    assert "its outcome is unknown" in killed
    assert (written, read) == ("wrote 6 bytes to note.txt (created)", "     1\tnoted")
    project.expect_status("?? note.txt")


def test_a_rule_for_the_project_counts_at_once_and_is_no_change_for_git(
    home: Home, project: Project, provider: Provider
) -> None:
    provider.script("Make a file.", call("Bash", command="touch made.txt"), say("It is made."))
    provider.script("Once more.", call("Bash", command="touch made.txt"), say("Made once more."))
    with Terminal(home, project.folder, "chat", *MODEL) as terminal:
        terminal.expect("❯")
        terminal.say("Make a file.")
        terminal.expect("[p] project")
        terminal.send("p")
        terminal.expect("It is made.")
        terminal.send(CTRL_D)
        assert terminal.wait_exit() == 0
    assert home.run(project.folder, "run", "Once more.", *MODEL) == "Made once more.\n"
    assert "touch made.txt" in project.read(".claude/settings.local.json")
    project.expect_status("?? made.txt")


def test_the_agent_starts_its_child_agents_in_a_project_without_agent_files(
    home: Home, project: Project, provider: Provider
) -> None:
    kinds = ("general-purpose", "explore", "plan")
    for kind in kinds:
        provider.script(f"Work as {kind} now.", say(f"I was {kind}."))
    tasks = [
        ("Task", {"description": "work", "prompt": f"Work as {kind} now.", "subagent_type": kind}) for kind in kinds
    ]
    script = provider.script("Ask the others.", calls(*tasks), say("They have answered."))
    provider.scripts.insert(0, provider.scripts.pop())  # its requests have the prompts of the others
    home.run(project.folder, "run", "Ask the others.", *MODEL)
    assert [text.split("\n")[0] for text in results_of(script.requests[-1])] == [f"I was {kind}." for kind in kinds]


def test_a_rewind_into_a_turn_is_refused_and_a_fork_there_answers_the_next_prompt(
    home: Home, project: Project, provider: Provider
) -> None:
    script = provider.script(
        "Look at the plan.",
        call("Read", file_path="plan.md"),
        say("It has two steps."),
        say("Forked."),
        say("Rewound."),
    )
    home.run(project.folder, "run", "Look at the plan.", *MODEL, "--session", "plan")
    code, errors = home.run_failing(project.folder, "sessions", "rewind", "plan@6")
    assert code == 2
    assert "rewind it to 1 (before this turn) or to 17 (its end), or fork it at 6" in errors
    home.run(project.folder, "sessions", "fork", "plan@9", "--id", "attempt")
    assert home.run(project.folder, "run", "And now?", *MODEL, "--session", "attempt") == "Forked.\n"
    assert results_of(script.requests[2]) == ["The conversation was taken back to before this call had a result."]
    with Terminal(home, project.folder, "chat", *MODEL, "--session", "plan") as terminal:
        terminal.expect("It has two steps.")
        terminal.say("/rewind 6")
        terminal.expect("which is inside a turn")
        terminal.say("/rewind 17")
        terminal.expect("files stay as they are")
        terminal.say("What is next?")
        terminal.expect("Rewound.")
        terminal.send(CTRL_D)
        assert terminal.wait_exit() == 0


def test_a_rule_lets_a_plugin_keep_its_state_and_nothing_that_decides_what_runs(
    home: Home, project: Project, provider: Provider
) -> None:
    paths = [
        ".claude/notes/state.json",
        ".claude/settings.json",
        ".claude/hooks/run.sh",
        ".claude/agents/a.md",
        ".mcp.json",
    ]
    script = provider.script(
        "Keep your state.",
        calls(*(("Write", {"file_path": path, "content": "{}"}) for path in paths)),
        say("It is kept."),
    )
    flags = ("--permission-mode", "acceptEdits", "--allow", "Edit(.claude/notes/**)", "--allow", "Edit(.claude/**)")
    home.run(project.folder, "run", "Keep your state.", *MODEL, *flags)
    kept, *refused = results_of(script.requests[-1])
    assert kept == "wrote 2 bytes to .claude/notes/state.json (created)"
    assert ["decides what runs or what is allowed" in text for text in refused] == [True] * 4
    project.expect_status("?? .claude/notes/state.json")
