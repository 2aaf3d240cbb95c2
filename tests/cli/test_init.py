"""``vaka init``: the files it writes, and that it changes none that exist without agreement."""

import stat
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.cli.shell import Shell, say_line
from vaka.cli.main import cli


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty repository, which is the working folder of a user without settings."""
    folder = tmp_path / "boat"
    (folder / ".git").mkdir(parents=True)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "conf"))
    monkeypatch.setenv("ANTHROPIC_API_KEY", "")
    monkeypatch.setenv("VAKA_LANG", "en")
    return folder


def init(*words: str) -> Result:
    return CliRunner().invoke(cli, ["init", *words])


def test_flags_replace_the_questions_and_the_output_says_what_to_type_next(project: Path) -> None:
    mode = ("--permission-mode", "acceptEdits")
    done = init("--model", "anthropic/claude-x", *mode, "--name", "mate", "--purpose", '"Go"')
    assert done.stdout.splitlines() == [
        "wrote vaka.toml",
        "wrote agent.py",
        "Next:",
        "  vaka login anthropic                # stores the key of the model",
        "  vaka trust                          # lets the settings of this folder allow changes",
        "  vaka chat --agent agent.py          # converses with the agent",
        '  vaka run "Hello." --agent agent.py  # runs one turn',
    ]
    assert (project / "vaka.toml").read_text() == 'model = "anthropic/claude-x"\npermission_mode = "acceptEdits"\n'
    assert 'instructions="\\"Go\\"",' in (project / "agent.py").read_text()
    assert stat.S_IMODE((project / "agent.py").stat().st_mode) & 0o400


def test_a_file_that_exists_is_shown_as_a_diff_and_kept_unless_forced(project: Path) -> None:
    (project / "vaka.toml").write_text('# ours\nmodel = "scripted:a"\nmax_steps = 3\n')
    (project / "agent.py").write_text("mine = 1\n")
    done = init("--yes", "--model", "local")
    assert "vaka.toml, agent.py would change; nothing is written; --force replaces" in str(done.exception)
    assert '-model = "scripted:a"\n+model = "local"' in done.stderr
    assert (project / "agent.py").read_text() == "mine = 1\n"
    assert init("--yes", "--model", "local", "--force").exit_code == 0
    assert (
        project / "vaka.toml"
    ).read_text() == '# ours\nmodel = "local"\nmax_steps = 3\npermission_mode = "default"\n'
    again = init("--yes", "--model", "local")
    assert (again.exit_code, "wrote" in again.stdout) == (0, False)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "there is no terminal to ask; give --model, --permission-mode, --name, --purpose, or --yes"),
        (("--yes", "--model", "anthopic/x"), "did you mean 'anthropic/x'?"),
        (("--yes", "--name", "no name"), "expected a letter, then letters, digits, _ or -"),
    ],
)
def test_what_cannot_be_written_is_reported_and_nothing_is_written(
    project: Path, words: tuple[str, ...], message: str
) -> None:
    done = init(*words)
    assert message in f"{done.output}{done.exception}"
    assert [file.name for file in project.iterdir()] == [".git"]


def test_settings_in_pyproject_are_not_hidden_by_a_new_file(project: Path) -> None:
    (project / "pyproject.toml").write_text('[tool.vaka]\nmodel = "local"\n')
    assert "pyproject.toml has [tool.vaka], which vaka.toml would replace" in str(init("--yes").exception)


def test_the_answers_at_a_terminal_make_an_agent_that_runs(shell: Shell) -> None:
    model = shell.write_script(say_line("Aye."), name="answers.jsonl")
    (shell.folder / "agent.py").unlink()
    terminal = shell.terminal("init", LANG="C.UTF-8")
    terminal.expect("model [local]:")
    terminal.send_line(model)
    terminal.expect("number [1]:")
    terminal.send_line("3")
    terminal.expect("this project.]:")
    terminal.send_line("mate: Steer the boat.")
    terminal.expect("vaka chat --agent agent.py")
    assert terminal.wait_exit() == 0
    assert 'permission_mode = "plan"' in (shell.folder / "vaka.toml").read_text()
    done = shell.vaka("run", "Hello.", "--agent", "agent.py", "--output", "json")
    assert (done.code, done.json["text"]) == (0, "Aye.")
    assert '"mate"' in (shell.folder / "agent.py").read_text()


def test_an_unknown_model_is_reported_before_the_other_questions(shell: Shell) -> None:
    (shell.folder / "agent.py").unlink()
    terminal = shell.terminal("init", LANG="C.UTF-8")
    terminal.expect("model [local]:")
    terminal.send_line("nope")
    terminal.expect("model 'nope'")
    assert terminal.wait_exit() != 0
    assert not (shell.folder / "agent.py").exists()
