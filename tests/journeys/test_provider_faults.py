"""A provider that fails, reasons, or gets a picture: what the person sees, and what is sent again."""

import base64

import pytest

from tests.journeys.answers import calls, cut, reject, say
from tests.journeys.installed import Home
from tests.journeys.project import Project
from tests.journeys.provider import MODELS, Provider
from tests.journeys.served_project import ServedProject

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
WIRES = [
    pytest.param(wire, marks=[] if wire == sample else pytest.mark.exhaustive)
    for sample in ["responses"]
    for wire in MODELS
]


@pytest.mark.parametrize("wire", MODELS)
def test_a_turn_of_the_server_survives_a_rate_limit_an_error_and_a_cut_stream(wire: str, served: ServedProject) -> None:
    question = f"Name a star for {wire}."
    script = served.provider.script(
        question,
        reject(429, retry_after="0"),
        reject(500, retry_after="0"),
        cut("It is "),
        say("Hōkū", "leʻa."),
    )
    turn = served.start_turn(f"star-{wire}", question, f"guide-{wire}")
    assert (turn["status"], turn["text"]) == ("completed", "Hōkūleʻa.")
    bodies = {request.raw for request in script.requests}
    assert (len(script.requests), len(bodies)) == (4, 1)  # the same bytes each time
    messages = served.server.get(f"/api/v1/sessions/star-{wire}/messages")
    assert "It is" not in str(messages)


@pytest.mark.parametrize("wire", WIRES)
def test_a_person_reads_why_a_model_does_not_answer(
    wire: str, home: Home, project: Project, provider: Provider
) -> None:
    script = provider.script("Is there wind?", reject(400))
    code, errors = home.run_failing(project.folder, "run", "Is there wind?", "--model", MODELS[wire])
    assert code == 6
    assert "The model is not available." in errors
    assert len(script.requests) == 1
    assert "journey-" not in errors  # as all keys begin


@pytest.mark.parametrize("wire", MODELS)
def test_a_person_attaches_a_picture_and_the_provider_gets_its_bytes(
    wire: str, home: Home, project: Project, provider: Provider
) -> None:
    picture = project.folder.parent / "chart.png"
    picture.write_bytes(PIXEL)
    script = provider.script("What is on the chart?", say("One red dot."))
    out = home.run(project.folder, "run", "What is on the chart?", "--attach", str(picture), "--model", MODELS[wire])
    assert out == "One red dot.\n"
    assert base64.b64encode(PIXEL).decode() in script.requests[0].text


@pytest.mark.parametrize("wire", MODELS)
def test_reasoning_is_shown_on_request_and_sent_back_between_calls(
    wire: str, home: Home, project: Project, provider: Provider
) -> None:
    readme, harbour = str(project.folder / "README.md"), str(project.folder / "harbour.py")
    both = calls(("Read", {"file_path": readme}), ("Read", {"file_path": harbour}))
    thinking = type(both)(reasoning="I must read both files.", calls=both.calls)
    script = provider.script("Compare the files.", thinking, say("They agree."))
    process = home.start(
        project.folder, "run", "Compare the files.", "-v", "--model", MODELS[wire], "--option", "reasoning=low"
    )
    out, errors = process.communicate()
    assert (process.returncode, out) == (0, "They agree.\n"), errors
    assert "I must read both files." in errors
    second = script.requests[1].text
    assert "A list of boats." in second
    assert r"BOATS = [\"vaka\", \"ama\"]" in second
    signed = {"responses": "c2VhbGVk", "anthropic": "c2lnbmVk", "gemini": base64.b64encode(b"signed").decode()}
    assert signed.get(wire, "") in second
