"""Sessions across commands: forks, exports, undo, another model, and a remote server."""

import json

from tests.journeys.answers import call, say
from tests.journeys.installed import Home
from tests.journeys.project import Project
from tests.journeys.provider import MODELS, Provider
from tests.journeys.served_project import ServedProject


def test_a_person_tries_another_way_in_a_fork_and_the_first_session_stays(
    home: Home, project: Project, provider: Provider
) -> None:
    script = provider.script("Plan a voyage.", say("Sail north."), say("Then sail south."), say("And home."))
    run = ["--model", MODELS["chat"], "--session", "voyage"]
    assert home.run(project.folder, "run", "Plan a voyage.", *run) == "Sail north.\n"
    assert home.run(project.folder, "run", "Try it otherwise.", "--fork", "voyage") == "Then sail south.\n"
    assert home.run(project.folder, "run", "And after that?", "--session", "voyage") == "And home.\n"
    forked, continued = (request.text for request in script.requests[1:])
    assert "Sail north." in forked
    assert "Sail north." in continued
    assert "otherwise" not in continued
    sessions = json.loads(home.run(project.folder, "sessions", "list", "--json"))
    assert len(sessions) == 2


def test_a_session_goes_on_with_another_provider_and_keeps_what_was_said(
    home: Home, project: Project, provider: Provider
) -> None:
    path = str(project.folder / "plan.md")
    script = provider.script(
        "Read the plan.",
        call("Read", file_path=path),
        say("Two steps."),
        say("Anthropic agrees."),
        say("Gemini agrees."),
        say("Chat agrees."),
    )
    arguments = ["--session", "plan"]
    home.run(project.folder, "run", "Read the plan.", *arguments, "--model", MODELS["responses"])
    for wire in ("anthropic", "gemini", "chat"):
        out = home.run(project.folder, "run", f"Do you agree, {wire}?", *arguments, "--model", MODELS[wire])
        assert out == f"{wire.title()} agrees.\n"
    for request in script.requests[2:]:
        assert "Lash the outrigger." in request.text
        assert "Two steps." in request.text


def test_a_person_runs_a_turn_on_a_server_from_another_folder(served: ServedProject) -> None:
    read = call("Read", file_path=str(served.project.folder / "plan.md"))
    script = served.provider.script("What does the server know?", read, say("The plan."))
    elsewhere = served.home.folder / "elsewhere"
    elsewhere.mkdir(exist_ok=True)
    out = served.home.run(
        elsewhere,
        "run",
        "What does the server know?",
        "--server",
        served.server.url,
        "--session",
        "remote",
        VAKA_API_KEY=served.key,
    )
    assert out == "The plan.\n"
    assert "Lash the outrigger." in script.requests[1].text
    assert "ok" in served.vaka("sessions", "verify", "remote", *served.store)


def test_an_operator_backs_a_session_up_as_lines_and_every_line_is_an_event(served: ServedProject) -> None:
    served.provider.script("Keep this.", say("Kept."))
    served.start_turn("kept", "Keep this.")
    lines = served.server.request("GET", "/api/v1/sessions/kept/export").text.splitlines()
    events = [json.loads(line) for line in lines]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert events[-1]["type"] == "turn.completed"
    assert served.key not in "".join(lines)
    assert "journey-openai-key" not in "".join(lines)
