"""Built-in tools are chosen by the names people use for them."""

import pytest

from vaka.core.types.errors import InvalidInput
from vaka.tools.builtin import OPT_IN, TOOLS, builtin_tools, select_tools


def test_without_a_word_all_come_but_those_one_must_ask_for() -> None:
    assert select_tools() == tuple(name for name in TOOLS if name not in OPT_IN)
    assert [tool.spec.name for tool in builtin_tools()] == list(select_tools())


def test_none_is_none() -> None:
    assert select_tools(()) == ()


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("bash", "Bash"), ("BASH", "Bash"), ("file_read", "Read"), ("File-Read", "Read"), ("file write", "Write"),
        ("file_edit", "Edit"), ("bash_output", "BashOutput"), ("BashOutput", "BashOutput"), ("web_fetch", "WebFetch"),
        ("ask_user_question", "AskUserQuestion"), ("kill_task", "KillTask"), ("task-create", "TaskCreate"),
    ],
)  # fmt: skip
def test_a_name_may_be_written_in_many_ways(said: str, name: str) -> None:
    assert select_tools([said]) == (name,)


def test_what_is_disallowed_does_not_come_whoever_asks_for_it() -> None:
    assert select_tools(["bash", "Read"], ["BASH", "somebody_elses"]) == ("Read",)
    assert "WebFetch" not in select_tools(None, ["web-fetch"])


def test_all_and_one_more_can_be_named() -> None:
    assert set(select_tools(["all", *OPT_IN])) == set(TOOLS)


def test_a_name_that_nothing_has_is_an_error_that_helps() -> None:
    with pytest.raises(InvalidInput, match=r"no built-in tool 'Grepp'.*Grep"):
        select_tools(["Grepp"])
