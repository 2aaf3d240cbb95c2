"""``vaka match``: rule files checked with lines, and tested with scripted models and offline."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from click.testing import CliRunner, Result

from vaka.cli.main import cli

PLAY = """\
name: play
vars:
  title: {label: song}
patterns:
  - play [title]
  - ["sing [title]", "title=[title]"]
tests:
  - {input: play Yesterday, args: {title: yesterday}}
  - please play Sunny
"""
STOP = '{\n  "rules": [\n    {"name": "stop", "patterns": ["stop", "be quiet"], "tests": ["be quiet"]}\n  ]\n}\n'
GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "match-rules.md"
Run: TypeAlias = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run ``vaka match`` in this process, in a folder with two rule files."""
    monkeypatch.chdir(tmp_path)
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    (tmp_path / "rules" / "more").mkdir(parents=True)
    (tmp_path / "rules" / "play.yaml").write_text(PLAY)
    (tmp_path / "rules" / "more" / "stop.json").write_text(STOP)
    (tmp_path / "rules" / "notes.txt").write_text("not a rule")

    def run_match(*words: str, code: int = 0) -> Result:
        done = CliRunner().invoke(cli, ["match", *words])
        found = done.exit_code if isinstance(done.exception, SystemExit) else getattr(done.exception, "exit", None)
        assert (found or getattr(done.exception, "exit_code", 0)) == code, done.exception
        return done

    return run_match


def _write_script(folder: Path, *lines: dict[str, Any], name: str = "script.jsonl") -> str:
    (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return f"scripted:{name}"


def test_rule_files_and_folders_are_checked(run: Run) -> None:
    assert run("check", "rules").stderr == "ok: 2 rules, 3 tests\n"
    assert run("check", "rules/play.yaml").stderr == "ok: 1 rule, 2 tests\n"
    assert json.loads(run("check", "rules", "--json").stdout) == {"rules": 2, "findings": [], "ok": True}


def test_a_rule_without_a_name_has_that_of_its_file(run: Run, tmp_path: Path) -> None:
    (tmp_path / "greet.yaml").write_text("patterns: [hello]\ntests: [hello]\n")
    assert "greet" in run("test", "greet.yaml", "--offline").stdout


def test_problems_have_a_file_and_a_line(run: Run, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text(PLAY.replace("play [title]", "play [name]").replace("label:", "labl:"))
    (tmp_path / "list.json").write_text('[\n  {"name": "a"},\n  {"name": "b", "patterns": [[]]},\n  7\n]')
    (tmp_path / "broken.json").write_text('{\n"name": }')
    files = ("bad.yaml", "list.json", "broken.json", "absent.yaml", "rules/notes.txt")
    found = run("check", *files, code=3)
    assert found.stderr.splitlines() == [
        'warning: bad.yaml:3: rule "play": unknown key "labl" is ignored; did you mean \'label\'?',
        'error: bad.yaml:5: rule "play": pattern "play [name]" has placeholder [name] not defined in vars',
        'error: list.json:3: rule "b": invalid pattern array length: 0 (expected 1-2)',
        "error: list.json:4: rule: a rule is a mapping with a name, not a number",
        "error: broken.json:2: not JSON: Expecting value (column 9)",
        "error: absent.yaml: cannot be read: No such file or directory",
        "error: rules/notes.txt: expected a file that ends in .json, .yaml, .yml, .msgpack",
    ]
    listed = json.loads(run("check", *files, "--json", code=3).stdout)
    assert (listed["ok"], listed["rules"], len(listed["findings"])) == (False, 1, 7)
    assert listed["findings"][1]["place"] == "bad.yaml:5"
    assert "bad.yaml:5" in run("test", "bad.yaml", "--offline", code=3).stderr
    (tmp_path / "empty").mkdir()
    assert "no rules in empty" in str(run("check", "empty", code=3).exception)


def test_a_name_that_two_files_have_is_a_warning(run: Run, tmp_path: Path) -> None:
    (tmp_path / "again.yaml").write_text("name: play\npatterns: [replay]\n")
    assert run("check", "rules/play.yaml", "again.yaml").stderr == (
        "warning: again.yaml:1: rule 'play' is also in rules/play.yaml:1, which parses answers; the prompt has both\n"
        "ok: 2 rules, 2 tests\n"
    )


def test_rules_are_tested_with_several_models_and_offline(run: Run, tmp_path: Path) -> None:
    good = _write_script(tmp_path, {"text": "stop"}, {"text": "play: title=Yesterday"}, {"text": "play"})
    weak = _write_script(
        tmp_path, {"text": "stop"}, {"text": "play: title=Today"}, {"text": "Sure!"}, name="weak.jsonl"
    )
    words = ("test", "rules", "--model", good, "-m", weak, "--offline")
    report = json.loads(run(*words, "--report", "json", code=1).stdout)
    assert (report["rule_count"], report["test_count"]) == (2, 3)
    assert [(one["model"], one["passed"], one["pass_rate"]) for one in report["models"]] == [
        ("offline", 3, 100.0),
        (good, 3, 100.0),
        (weak, 1, 33.33),
    ]
    shown = run(*words, "--output", "out.json", code=1)
    assert "weak.jsonl\nRULE       PASSED  TESTS  ACCURACY\nstop       1       1      100.0%\n" in shown.stdout
    assert "play       0       2      0.0%\nall rules  1       3      33.3%\nlatency: p50 " in shown.stdout
    assert (
        "fail: play Yesterday: expected play: title=yesterday, got play: title=Today\n"
        "fail: please play Sunny: expected play, got no rule (Sure!)\n"
    ) in shown.stdout
    assert "out.json: written\n" in shown.stderr
    assert "tested scripted:weak.jsonl: 1 of 3 passed\n" in shown.stderr
    assert len(json.loads((tmp_path / "out.json").read_text())["models"]) == 3
    quiet = run("test", "rules", "--offline", "--quiet", "--embedder", "hashing")
    assert quiet.stderr == ""


def test_a_model_that_fails_is_an_error_of_each_case(run: Run, tmp_path: Path) -> None:
    failing = _write_script(tmp_path, {"error": {"status": 401}, "repeat": True})
    done = run("test", "rules", "--model", failing, code=6)
    assert "; 3 errors\n" in done.stdout
    assert "error: be quiet: authentication failed: the script says so" in done.stdout
    (tmp_path / "vaka.toml").write_text(f'model = "{failing}"\n')
    assert "3 errors" in run("test", "rules", "--trust", code=6).stdout


def test_failures_beyond_twenty_are_counted(run: Run, tmp_path: Path) -> None:
    (tmp_path / "many.json").write_text(json.dumps({"name": "many", "tests": [f"text {at}" for at in range(25)]}))
    assert "… and 5 more; --report json has all of them\n" in run("test", "many.json", "--offline", code=1).stdout


def test_the_prompt_is_printed_also_from_a_template(run: Run, tmp_path: Path) -> None:
    assert "- play [song] -> play: title=[song]" in run("test", "rules", "--prompt").stdout
    (tmp_path / "prompt.jinja").write_text("{% for rule in Rules %}{{ rule.Name }};{% endfor %}")
    assert run("test", "rules", "--prompt", "--template", "prompt.jinja").stdout == "stop;play;\n"
    (tmp_path / "prompt.jinja").write_text("\n{% for %}")
    assert "prompt.jinja: template, line 2:" in str(
        run("test", "rules", "--offline", "--template", "prompt.jinja", code=3).exception
    )
    assert "cannot be read" in str(run("test", "rules", "--prompt", "--template", "absent", code=3).exception)


def test_a_test_run_needs_tests_and_a_matcher(run: Run, tmp_path: Path) -> None:
    (tmp_path / "untested.yaml").write_text("name: a\n")
    assert "the rule files have no tests" in str(run("test", "untested.yaml", "--offline", code=3).exception)
    assert "name a model with --model" in run("test", "rules", code=2).stderr
    assert "is not known" in str(run("test", "rules", "--model", "opnai/x", code=3).exception)


def test_the_examples_of_the_guide_print_what_it_shows(run: Run, tmp_path: Path) -> None:
    page = GUIDE.read_text("utf-8")
    for name, text in re.findall(r"^`(\S+)`:\n\n```\w*\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        (tmp_path / "guide" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "guide" / name).write_text(text, "utf-8")
    blocks = "".join(re.findall(r"^```console\n(.*?)^```$", page, re.MULTILINE | re.DOTALL))
    examples = re.findall(r"^\$ vaka match (.*)\n((?:(?!\$ ).*\n)*)", blocks, re.MULTILINE)
    assert len(examples) == 3
    os.chdir(tmp_path / "guide")
    for command, printed in examples:
        done = run(*command.split())
        wanted = ".*".join(re.escape(piece) for piece in printed.split("…"))
        assert re.fullmatch(wanted, done.stdout + done.stderr)


def test_rule_files_include_parts_which_are_not_rules_of_their_folder(run: Run, tmp_path: Path) -> None:
    (tmp_path / "rules" / "parts").mkdir()
    (tmp_path / "rules" / "parts" / "tests.yaml").write_text("- hello\n- hi there\n")
    (tmp_path / "rules" / "greet.yaml").write_text("patterns: [hello, hi there]\ntests: {$include: parts/tests.yaml}\n")
    assert run("check", "rules").stderr == "ok: 3 rules, 5 tests\n"
    (tmp_path / "rules" / "lost.yaml").write_text("patterns: [x]\ntests:\n  $include: parts/none.yaml\n")
    found = run("check", "rules", code=3).stderr.splitlines()
    assert found[0] == "error: rules/lost.yaml:3: $include: 'parts/none.yaml' not found in rules"
