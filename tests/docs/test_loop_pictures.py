"""The pictures of the kernel in docs/design.md are those of the code."""

from scripts.loop_pictures import PAGE, PICTURES, insert_pictures


def test_the_pictures_are_up_to_date() -> None:
    page = PAGE.read_text("utf-8")
    assert insert_pictures(page, PICTURES) == page, "run: python -m scripts.loop_pictures"


def test_the_pictures_name_each_state_and_the_events_that_change_it() -> None:
    agent, call = PICTURES["agent"](), PICTURES["call"]()
    for phase in ("ready", "prepared", "asking", "answered", "finished", "done"):
        assert f"│{phase:^12}│" in agent
    for event in ("step.started", "message.completed", "tool.called", "step.completed", "agent.continued"):
        assert event in agent
    for state in ("Requested", "Asked", "Permitted", "Started", "Returned", "Done", "Lost"):
        assert f"│{state:^12}│" in call
    assert "tool.started   ──▶ Lost  (effect once)" in call
