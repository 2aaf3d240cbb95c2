"""The gate on journeys: they use the installed vaka and a provider, never the package or a scripted model."""

from pathlib import Path

from scripts.gates.testing import check_file
from scripts.gates.tree import File


def problems_of(root: Path, path: str, text: str) -> list[str]:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)
    return [problem.text for problem in check_file(File(root, path))]


def test_a_journey_does_not_import_vaka_or_tests_that_do(tmp_path: Path) -> None:
    text = "import vaka.models\nfrom pyluau import run\nfrom tests.cli.shell import Shell\n"
    assert problems_of(tmp_path, "tests/journeys/test_a.py", text) == [
        "a journey uses the installed vaka only: it does not import vaka.models",
        "a journey uses the installed vaka only: it does not import pyluau",
        "a journey uses the installed vaka only: it does not import tests.cli.shell",
    ]


def test_a_journey_does_not_name_a_scripted_model(tmp_path: Path) -> None:
    text = 'ARGUMENTS = ["--model", "scripted:a.jsonl"]\n'
    assert problems_of(tmp_path, "tests/journeys/test_a.py", text) == [
        "a journey has no scripted model: use the provider"
    ]


def test_a_journey_imports_its_own_modules_and_other_libraries(tmp_path: Path) -> None:
    text = "import json\nfrom tests.journeys.answers import say\nfrom tests.postgres_server import PostgresServer\n"
    assert problems_of(tmp_path, "tests/journeys/test_a.py", text) == []


def test_other_tests_may_import_vaka(tmp_path: Path) -> None:
    assert problems_of(tmp_path, "tests/cli/test_a.py", 'import vaka\nNAME = "scripted:a.jsonl"\n') == []
