"""``vaka run`` and ``vaka chat`` in a terminal."""

from tests.journeys.answers import Pause, call, say
from tests.journeys.installed import Home
from tests.journeys.project import Project
from tests.journeys.provider import MODELS, Provider
from tests.journeys.terminal import CTRL_D, Terminal


def test_a_person_at_a_terminal_approves_a_change_of_vaka_run(home: Home, project: Project, provider: Provider) -> None:
    path = str(project.folder / "oars.md")
    script = provider.script("Describe the oars.", call("Write", file_path=path, content="Four.\n"), say("Described."))
    home.run(project.folder, "trust")
    with Terminal(home, project.folder, "run", "Describe the oars.", "--model", MODELS["anthropic"]) as terminal:
        terminal.expect("Approve Write?")
        terminal.expect("+Four.")
        terminal.expect("[y] once")
        assert not (project.folder / "oars.md").exists()
        terminal.send("y\r")
        terminal.expect("Described.")
        assert terminal.wait_exit() == 0
    project.expect_status("?? oars.md")
    assert project.read("oars.md") == "Four.\n"
    assert len(script.requests) == 2


def test_a_person_reads_the_text_of_vaka_run_while_the_model_writes_it(
    home: Home, project: Project, provider: Provider
) -> None:
    pause = Pause()
    provider.script("Tell a story.", say("Once there was ", "a canoe. ", pause, "It came home."))
    home.run(project.folder, "trust")
    with Terminal(home, project.folder, "run", "Tell a story.", "--model", MODELS["gemini"]) as terminal:
        terminal.expect("Once there was")
        assert "It came home." not in terminal.text
        pause.open()
        terminal.expect("It came home.")
        assert terminal.wait_exit() == 0


def test_a_conversation_in_vaka_chat_edits_a_file_and_goes_on_after_a_kill(
    home: Home, project: Project, provider: Provider
) -> None:
    path = str(project.folder / "README.md")
    edit = {"file_path": path, "old_string": "A list of boats.", "new_string": "A list of all boats."}
    script = provider.script(
        "Improve the README.",
        call("Read", file_path=path),
        call("Edit", **edit),
        say("It says **all** boats now."),
        say("Nothing is left."),
    )
    home.run(project.folder, "trust")
    arguments = ["chat", "--model", MODELS["responses"], "--session", "readme"]
    with Terminal(home, project.folder, *arguments) as terminal:
        terminal.expect("❯")
        terminal.say("Improve the README.")
        terminal.expect("Approve Edit?")
        terminal.expect("+A list of all boats.")
        terminal.send("y")
        terminal.expect("It says all boats now.")
        terminal.kill()
    project.expect_status(" M README.md")
    assert project.read("README.md") == "# Harbour\n\nA list of all boats.\n"
    with Terminal(home, project.folder, "chat", "-c") as terminal:
        terminal.expect("It says all boats now.")
        terminal.say("What is left?")
        terminal.expect("Nothing is left.")
        terminal.send(CTRL_D)
        assert terminal.wait_exit() == 0
    assert len(script.requests) == 4
    assert "It says **all** boats now." in script.requests[3].text
    assert "ok" in home.run(project.folder, "sessions", "verify", "readme")


def test_commands_in_vaka_chat_are_shown_by_diff_and_taken_back_by_undo(
    home: Home, project: Project, provider: Provider
) -> None:
    provider.script(
        "Rename the boats.",
        call("Bash", command="touch made.txt"),
        call("Bash", command="sed -i 's/vaka/waka/' harbour.py && rm draft.txt && echo Waka >> README.md"),
        say("They are renamed."),
    )
    home.run(project.folder, "trust")
    with Terminal(home, project.folder, "chat", "--model", MODELS["anthropic"], "--sandbox", "off") as terminal:
        terminal.expect("❯")
        terminal.say("Rename the boats.")
        terminal.expect("touch made.txt")
        terminal.expect("Approve Bash?")
        terminal.send("y")
        terminal.wait_until((project.folder / "made.txt").exists, "made.txt")
        terminal.expect("Rule: Bash(rm draft.txt)")
        terminal.send("y")
        terminal.expect("They are renamed.")
        assert not (project.folder / "draft.txt").exists()
        terminal.say("/diff")
        terminal.expect("deleted file draft.txt")
        terminal.expect("new file made.txt")
        terminal.say("/undo")
        terminal.expect("restored: README.md, draft.txt, harbour.py")
        terminal.expect("removed: made.txt")
        terminal.expect("the last turn is taken back")
        terminal.say("/diff")
        terminal.expect("no file differs from what it was before this session")
        terminal.send(CTRL_D)
        assert terminal.wait_exit() == 0
    assert project.read("README.md") == "# Harbour\n\nA list of boats.\n"
