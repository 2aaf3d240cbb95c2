"""The selection of built-in tools by name."""

import pytest

from vaka.core.types.errors import InvalidInput
from vaka.tools.builtin import OPT_IN, TOOLS, builtin_tools, select_tools


def test_by_default_all_tools_but_the_opt_in_ones_are_selected() -> None:
    assert select_tools() == tuple(name for name in TOOLS if name not in OPT_IN)
    assert [tool.spec.name for tool in builtin_tools()] == list(select_tools())


def test_an_empty_selection_selects_no_tool() -> None:
    assert select_tools(()) == ()


@pytest.mark.parametrize(
    ("enabled", "name"),
    [
        ("bash", "Bash"),
        ("BASH", "Bash"),
        ("file_read", "Read"),
        ("File-Read", "Read"),
        ("file write", "Write"),
        ("file_edit", "Edit"),
        ("bash_output", "BashOutput"),
        ("BashOutput", "BashOutput"),
        ("web_fetch", "WebFetch"),
        ("ask_user_question", "AskUserQuestion"),
        ("kill_task", "KillTask"),
        ("task-create", "TaskCreate"),
    ],
)
def test_a_tool_name_may_be_written_in_several_ways(enabled: str, name: str) -> None:
    assert select_tools([enabled]) == (name,)


def test_a_disallowed_tool_is_not_selected_even_when_enabled() -> None:
    assert select_tools(["bash", "Read"], ["BASH", "somebody_elses"]) == ("Read",)
    assert "WebFetch" not in select_tools(None, ["web-fetch"])


def test_all_and_an_opt_in_tool_can_be_named_together() -> None:
    assert set(select_tools(["all", *OPT_IN])) == set(TOOLS)


def test_an_unknown_tool_name_is_an_error_with_a_suggestion() -> None:
    with pytest.raises(InvalidInput, match=r"no built-in tool 'Grepp'.*Grep"):
        select_tools(["Grepp"])
