"""``vaka run`` as installed, with each of the four APIs."""

import pytest

from tests.journeys.answers import call, say
from tests.journeys.installed import Home
from tests.journeys.project import Project
from tests.journeys.provider import MODELS, Provider


@pytest.mark.parametrize("wire", MODELS)
def test_a_person_asks_each_provider_about_a_file_and_gets_an_answer(
    wire: str, home: Home, project: Project, provider: Provider
) -> None:
    script = provider.script(
        "How many boats are there?",
        call("Read", file_path=str(project.folder / "harbour.py")),
        say("There are ", "two boats."),
    )
    out = home.run(
        project.folder, "run", "How many boats are there?", "--model", MODELS[wire], "--session", f"boats-{wire}"
    )
    assert out == "There are two boats.\n"
    question, with_result = script.requests
    assert "journey-" in str(question.headers)
    assert "How many boats are there?" in question.text
    assert r"BOATS = [\"vaka\", \"ama\"]" in with_result.text
    assert "ok" in home.run(project.folder, "sessions", "verify", f"boats-{wire}")
