"""Hooks are read from every shape that settings, plugins and older files have; what is wrong is reported."""

from typing import Any

import pytest

from vaka.config.hook_definition import select_hooks
from vaka.hooks import Hook, parse_hooks
from vaka.matching.mcp_names import tool_name


def read(document: Any, **more: Any) -> list[tuple[str, str, str]]:
    return [(hook.event, hook.matcher, hook.text) for hook in parse_hooks(document, **more).hooks]


@pytest.mark.parametrize(
    "document",
    [
        {"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "check"}]}]}},
        {"PreToolUse": [{"matcher": "Bash", "hooks": [{"command": "check"}]}]},
        {"description": "checks", "hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [{"command": "check"}]}]}},
        {"hooks": {"PreToolUse": {"Bash": "check", "Read": ""}}},
        {"hooks": {"PreToolUse": [{"matcher": "Bash", "type": "command", "command": "check"}]}},
        {"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": ["check"]}]}},
        {"hooks": {"PreToolUse": {"matcher": "Bash", "hooks": [{"command": "check"}]}}},
        {"hooks": [{"event": "PreToolUse", "matcher": "Bash", "command": "check", "description": "Checks."}]},
    ],
)
def test_a_hook_is_read_from_every_shape(document: Any) -> None:
    assert read(document) == [("PreToolUse", "Bash", "check")]


def test_all_fields_of_a_hook_are_read() -> None:
    fields = {
        "type": "command",
        "command": "${CLAUDE_PLUGIN_ROOT}/run $HOME",
        "timeout": 5,
        "async": True,
        "once": True,
        "statusMessage": "Checking",
        "if": "Bash(git commit:*)",
    }
    parsed = parse_hooks(
        {"Stop": [{"hooks": [fields]}]}, origin="a.json", variables={"CLAUDE_PLUGIN_ROOT": "/plugin"}, managed=True
    )
    assert parsed.problems == ()
    assert parsed.hooks == (
        Hook(
            event="Stop",
            command="/plugin/run $HOME",
            timeout=5.0,
            detached=True,
            once=True,
            origin="a.json",
            status_message="Checking",
            condition="Bash(git commit:*)",
            env={"CLAUDE_PLUGIN_ROOT": "/plugin"},
            managed=True,
        ),
    )


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ({"hooks": {"PreTolUse": [{"hooks": [{"command": "x"}]}]}}, "did you mean PreToolUse?"),
        ({"hooks": {"Setup": [{"hooks": [{"command": "x"}]}]}}, "not an event of vaka"),
        ({"hooks": {"Stop": [{"hooks": [{"type": "webhook", "url": "x"}]}]}}, "'webhook' is not supported"),
        ({"hooks": {"Stop": [{"hooks": [{"command": " "}]}]}}, "has no command"),
        ({"hooks": {"Stop": [{"hooks": [{"type": "prompt"}]}]}}, "has no prompt"),
        ({"hooks": {"PreToolUse": [{"matcher": "(", "hooks": [{"command": "x"}]}]}}, "not a regular expression"),
        ({"hooks": {"Stop": [{"hooks": [{"command": "x", "timeout": -1}]}]}}, "the timeout -1"),
        ({"hooks": {"Stop": [{"hooks": [{"command": "x", "tiemout": 1}]}]}}, "'tiemout' is not known"),
        ({"hooks": {"Stop": [7, {"hooks": [[1]]}]}}, "expected an object"),
        ([1, 2], "expected an object"),
    ],
)
def test_what_is_wrong_is_reported_with_its_place_and_the_rest_is_kept(document: Any, problem: str) -> None:
    parsed = parse_hooks(document, origin="settings.json")
    assert any(problem in text and text.startswith("settings.json: ") for text in parsed.problems)
    if "hooks" in document:
        more = {"SessionEnd": [{"hooks": [{"command": "kept"}]}]}
        kept = parse_hooks({"hooks": document["hooks"] | more})
        assert ("SessionEnd", "", "kept") in [(hook.event, hook.matcher, hook.text) for hook in kept.hooks]


@pytest.mark.parametrize(
    ("matcher", "name", "matches"),
    [
        ("", "Bash", True),
        ("*", "Bash", True),
        ("Bash", "Bash", True),
        ("Bash", "BashOutput", False),
        ("bash", "Bash", False),
        ("Edit|Write", "Write", True),
        ("Edit|Write", "NotebookEdit", False),
        ("Notebook.*", "NotebookEdit", True),
        ("mcp__.*__delete.*", "mcp__files__delete_all", True),
    ],
)
def test_a_matcher_must_match_the_whole_name(matcher: str, name: str, matches: bool) -> None:
    assert Hook(event="PreToolUse", matcher=matcher, command="x").matches({"tool_name": name}) is matches


def test_a_matcher_with_the_whole_name_of_an_mcp_tool_matches_the_cut_name() -> None:
    long = f"create_{'very_' * 12}long"
    hook = Hook(event="PreToolUse", matcher=f"Bash|mcp__git__{long}", command="x")
    assert hook.matches({"tool_name": tool_name("git", long)})
    assert not hook.matches({"tool_name": "mcp__git__create"})
    assert not hook.matches({"tool_name": ""})


def test_the_default_timeout_depends_on_the_kind_and_is_short_at_the_end_of_a_session() -> None:
    assert Hook(event="Stop", command="x").seconds == 600
    assert Hook(event="Stop", kind="prompt", prompt="x").seconds == 30
    assert Hook(event="SessionEnd", command="x").seconds == 60
    assert Hook(event="SessionEnd", command="x", timeout=90).seconds == 90


def test_the_matcher_of_an_event_without_a_name_is_ignored() -> None:
    assert Hook(event="Stop", matcher="Bash", command="x").matches({})
    assert Hook(event="UserPromptSubmit", matcher="Bash", command="x").matches({"prompt": "hi"})


def test_a_hook_that_cannot_run_is_listed_with_the_reason_and_a_star_matches_everything() -> None:
    document = {
        "_comment": {"by": "hand"},
        "Setup": [{"hooks": [{"command": "a"}]}],
        "PreToolUse": [
            {"matcher": "*", "hooks": [{"command": "b"}]},
            {"matcher": "*.py", "hooks": [{"command": "c"}]},
            {"hooks": [{"type": "http", "url": "http://host/d"}]},
        ],
        "Stop": [{"matcher": "*", "hooks": [{"command": "e"}]}],
    }
    parsed = parse_hooks({"hooks": document})
    assert [hook.text for hook in parsed.hooks] == ["a", "b", "c", "http://host/d", "e"]
    assert [bool(hook.disabled) for hook in parsed.hooks] == [False, False, True, True, False]
    assert len(parsed.problems) == 3
    assert not any("did you mean" in problem for problem in parsed.problems)
    assert [hook.text for hook in select_hooks(parsed.hooks, "PreToolUse", {"tool_name": "Bash"})] == ["b"]
