"""Tools of a served project, as installed: scripts, MCP servers, hooks, commands, child agents, approvals."""

from tests.journeys.answers import call, calls, say
from tests.journeys.served_project import ServedProject


def test_a_script_of_a_downloaded_tool_runs_in_a_confined_process(served: ServedProject) -> None:
    script = served.provider.script("Tide of Hilo, please.", call("tide", harbour="Hilo"), say("0.4 m."))
    turn = served.start_turn("luau-tide", "Tide of Hilo, please.")
    assert (turn["status"], turn["text"], turn["tool_calls"]) == ("completed", "0.4 m.", ["tide"])
    result = script.requests[1].body["messages"][-1]
    assert result == {"role": "tool", "tool_call_id": "call_tide_0", "content": '{"harbour":"Hilo","metres":0.4}'}


def test_the_model_calls_a_tool_of_the_projects_mcp_server_after_an_approval(served: ServedProject) -> None:
    script = served.provider.script(
        "How deep is the bay?", call("mcp__sounding__depth", place="the bay"), say("12 fathoms.")
    )
    turn = served.decide(served.start_turn("mcp-depth", "How deep is the bay?"))
    assert (turn["status"], turn["text"]) == ("completed", "12 fathoms.")
    assert "mcp__sounding__depth" in script.requests[0].text
    assert script.requests[1].body["messages"][-1]["content"] == "12 fathoms at the bay"


def test_a_hook_sees_every_command_and_stops_a_forbidden_one(served: ServedProject) -> None:
    script = served.provider.script(
        "Push the branch.",
        call("Bash", command="git push --force"),
        call("Bash", command="wc -l README.md"),
        say("It is forbidden, so I counted lines."),
    )
    turn = served.start_turn("hook-push", "Push the branch.")
    assert (turn["status"], turn["text"]) == ("completed", "It is forbidden, so I counted lines.")
    seen = served.project.read("commands.log").splitlines()
    assert {"git push --force", "wc -l README.md"} <= set(seen)
    denied, counted = (request.body["messages"][-1]["content"] for request in script.requests[1:])
    assert "No command of this harbour uses force." in denied
    assert "3 README.md" in counted


def test_an_approved_command_writes_in_the_project_and_nowhere_else(served: ServedProject) -> None:
    outside = served.home.folder / "outside.txt"
    command = f"echo lashed > outrigger.txt; echo escaped > {outside}; cat outrigger.txt"
    script = served.provider.script("Tie the outrigger down.", call("Bash", command=command), say("Lashed."))
    turn = served.decide(served.start_turn("bash-lash", "Tie the outrigger down."))
    assert (turn["status"], turn["text"]) == ("completed", "Lashed.")
    served.project.expect_status("?? outrigger.txt")
    assert served.project.read("outrigger.txt") == "lashed\n"
    assert not outside.exists()
    assert "lashed" in script.requests[1].body["messages"][-1]["content"]


def test_an_agent_sends_two_scouts_at_once_and_reports_what_they_saw(served: ServedProject) -> None:
    west = {"description": "look", "prompt": "Look to the west.", "subagent_type": "scout"}
    east = {"description": "look", "prompt": "Look to the east.", "subagent_type": "scout"}
    captain = served.provider.script("Find land.", calls(("Task", west), ("Task", east)), say("Land in the west."))
    western = served.provider.script("Look to the west.", say("Birds, and a mountain."))
    eastern = served.provider.script("Look to the east.", say("Nothing but water."))
    turn = served.start_turn("scouts", "Find land.")
    assert (turn["status"], turn["text"]) == ("completed", "Land in the west.")
    for scout in (western, eastern):
        assert "You are the scout." in scout.requests[0].text
        assert "Find land." not in scout.requests[0].text
    results = [message["content"] for message in captain.requests[1].body["messages"][-2:]]
    assert "Birds, and a mountain." in results[0]
    assert "Nothing but water." in results[1]


def test_a_change_is_made_only_after_a_person_has_approved_it(served: ServedProject) -> None:
    path = str(served.project.folder / "anchor.md")
    script = served.provider.script(
        "Write about the anchor.", call("Write", file_path=path, content="It holds.\n"), say("Written.")
    )
    waiting = served.start_turn("write-anchor", "Write about the anchor.")
    assert not (served.project.folder / "anchor.md").exists()
    assert len(script.requests) == 1
    turn = served.decide(waiting)
    assert turn["text"] == "Written."
    served.project.expect_status("?? anchor.md")
    assert served.project.read("anchor.md") == "It holds.\n"


def test_a_rejected_change_reaches_the_model_with_the_reason_of_the_person(served: ServedProject) -> None:
    path = str(served.project.folder / "harbour.py")
    edit = {"file_path": path, "old_string": '"ama"', "new_string": '"raft"'}
    script = served.provider.script(
        "Rename the boat.", call("Read", file_path=path), call("Edit", **edit), say("I left it.")
    )
    waiting = served.start_turn("rename-boat", "Rename the boat.")
    turn = served.decide(waiting, "reject", message="The ama keeps its name.")
    assert turn["status"] == "completed", turn
    assert "The ama keeps its name." in script.requests[2].text


def test_a_decision_from_another_terminal_continues_the_turn_of_the_server(served: ServedProject) -> None:
    path = str(served.project.folder / "sail.md")
    served.provider.script("Describe the sail.", call("Write", file_path=path, content="A claw.\n"), say("Described."))
    waiting = served.start_turn("describe-sail", "Describe the sail.")
    (decision,) = waiting["decisions"]
    assert decision["id"] in served.vaka("approvals", "list", *served.store)
    served.vaka("approvals", "resolve", decision["id"], "--approve", *served.store)
    turn = served.server.post(f"/api/v1/sessions/describe-sail/turns/{waiting['id']}/wait", {})
    assert (turn["status"], turn["text"]) == ("completed", "Described.")
    served.project.expect_status("?? sail.md")
    assert served.project.read("sail.md") == "A claw.\n"
