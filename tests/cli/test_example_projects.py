"""The examples that are folders of definitions run with ``vaka run --agent`` and ``vaka chat --agent``."""

import shutil
from pathlib import Path

from tests.cli.chat.chat_terminal import CTRL_D, ChatTerminal
from tests.cli.shell import Shell

EXAMPLES = Path(__file__).parents[2] / "examples"


def open_example(shell: Shell, name: str) -> None:
    """Copy an example into the folder of the shell."""
    shutil.copytree(EXAMPLES / name, shell.folder, dirs_exist_ok=True)


def test_the_toy_needs_no_model_and_stays_in_a_conversation(shell: Shell) -> None:
    open_example(shell, "31-toy-companion")
    assert shell.vaka("config", "validate", ".").code == 0
    assert "tested offline: 4 of 4 passed" in shell.vaka("match", "test", "rules", "--offline").err
    counted = shell.vaka("run", "Please count to 5", "--agent", "toy", "--session", "t", "-q")
    assert (counted.out, counted.err) == ("1, 2, 3, 4, 5!\n", "")
    with ChatTerminal(shell, "--agent", "toy", "--resume", "t", "--trust") as chat:
        chat.expect_prompt("❯")
        chat.say("More!")
        chat.expect("6, 7, 8!")
        chat.say("Tell me a story.")
        chat.expect("Left or right?")
        chat.say("Left!")
        chat.expect("a turtle that knows the stars")
        chat.send(CTRL_D)


def test_the_assistant_hands_inputs_to_its_agents(shell: Shell) -> None:
    open_example(shell, "30-multi-skill-assistant")
    flags = ("--agent", "front", "--trust", "--allow", "forecast", "--allow", "done")
    names = [line.split()[0] for line in shell.vaka("agents", "list").out.splitlines()[1:]]
    assert names == ["front", "notes", "talk", "weather"]
    first = shell.vaka("run", "What is the weather in Hilo?", *flags, "--session", "s", "-q")
    assert (first.out, first.err) == ("It rains in Hilo until evening.\n", "")
    with ChatTerminal(shell, *flags, "--resume", "s") as chat:
        chat.expect_prompt("❯")
        chat.say("Remember to buy an umbrella.")
        chat.expect("Noted: buy an umbrella.")
        chat.say("Show my notes.")
        chat.expect("Your notes: buy an umbrella.")
        chat.send(CTRL_D)
