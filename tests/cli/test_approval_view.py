"""The view of a call that needs approval: the whole change, for any file and arguments."""

import os
from pathlib import Path
from typing import Any

import click
import pytest

from vaka.cli.turn.approval_view import (
    MAX_DIFF_BYTES,
    describe_sandbox,
    render_approval,
    render_rules,
    summarize_call,
)
from vaka.core.types.control import ApprovalRequested
from vaka.core.types.decision_text import text_of_decision
from vaka.core.types.ids import CallId, DecisionId, Digest
from vaka.core.types.message import ToolCall
from vaka.sandbox.select import select_sandbox
from vaka.tools import ToolTraits


def approval_for(tool: str, cwd: Path | str = "", arguments: Any = None, **more: Any) -> ApprovalRequested:
    call = ToolCall(id=CallId("call_1"), name=tool, arguments=arguments or {})
    return ApprovalRequested(
        approval=DecisionId("apr_1"), call=call, digest=Digest("d"), spec=Digest("s"), cwd=str(cwd), **more
    )


def risk_of(body: ApprovalRequested) -> str:
    return text_of_decision(body).risk


def barred_lines(body: ApprovalRequested, **declared: ToolTraits) -> list[str]:
    lines = click.unstyle(render_approval(body, declared=declared)).split("\n")
    return [line.removeprefix("  │ ") for line in lines if line.startswith("  │ ")]


def test_other_arguments_of_a_command_are_shown_too() -> None:
    body = approval_for("Bash", arguments={"command": "make", "workdir": "/x", "run_in_background": True})
    assert barred_lines(body) == ["make", "workdir: /x", "run_in_background: true"]


def test_a_command_that_is_not_text_is_shown_as_json() -> None:
    assert barred_lines(approval_for("Bash", arguments={"command": ["rm"]})) == ["command: [", '  "rm"', "]"]


def test_invisible_characters_are_shown_as_escapes() -> None:
    body = approval_for("Bash", arguments={"command": "rm a\u3164b \u2800 x\ufe0f; echo \u2764\ufe0f \u00fcber"})
    assert barred_lines(body) == ["rm a\\u3164b \\u2800 x\\ufe0f; echo \u2764\ufe0f \u00fcber"]
    assert render_rules(["Bash(rm a\u3164b)"]) == "  Rule: Bash(rm a\\u3164b)"


def test_the_folder_of_a_command_is_shown_when_it_is_not_the_working_folder() -> None:
    assert "\n  in /app/s\\u202eub\n" in render_approval(
        approval_for("Bash", arguments={"command": "make"}, folder="/app/s\u202eub")
    )


def test_several_edits_are_shown_one_after_the_other() -> None:
    edits = [{"old_string": "a", "new_string": "b"}, {"old_string": "c\nd", "new_string": "c"}]
    lines = barred_lines(approval_for("MultiEdit", arguments={"file_path": "x", "edits": edits}))
    assert [line for line in lines if line[0] in "+-"] == ["-a", "+b", "-d"]
    assert lines[0] == "x"


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("MultiEdit", {"file_path": "x", "edits": [{"old_string": "a"}]}),
        ("MultiEdit", {"file_path": "x", "edits": "all"}),
        ("Edit", {"file_path": "x", "old_string": "a"}),
        ("Write", {"file_path": 5, "content": "a"}),
        ("NotebookEdit", {"notebook_path": "x", "new_source": "a"}),
        ("pay", {"amount": 5}),
    ],
)
def test_arguments_that_determine_no_change_are_shown_as_json(tool: str, arguments: Any) -> None:
    lines = barred_lines(approval_for(tool, arguments=arguments))
    assert (lines[0], lines[-1]) == ("{", "}")


def test_a_tool_that_declares_its_file_and_content_is_shown_as_a_change_with_its_other_arguments(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.md").write_text("one\n")
    traits = ToolTraits(writes=True, paths=("name", "copy"), content="text")
    arguments = {"name": "a.md", "text": "two\n", "copy": "b.md", "send_to": ["all"]}
    body = approval_for("save", tmp_path, arguments)
    assert barred_lines(body, save=traits) == [
        "a.md",
        "@@ -1 +1 @@",
        "-one",
        "+two",
        "copy: b.md",
        "send_to: [",
        '  "all"',
        "]",
    ]
    assert barred_lines(body)[0] == "{"
    assert summarize_call(body, 40, {"save": traits}) == "save a.md"


def test_a_tool_that_declares_a_passage_and_its_replacement_is_shown_as_a_change(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("one\ntwo\n")
    traits = ToolTraits(writes=True, paths=("name",), replacement=("before", "after"))
    body = approval_for("patch", tmp_path, {"name": "a.md", "before": "two", "after": "2"})
    assert barred_lines(body, patch=traits) == ["a.md", "@@ -1,2 +1,2 @@", " one", "-two", "+2"]


def test_a_tool_that_declares_its_command_shows_it_as_it_is() -> None:
    body = approval_for("remote", arguments={"script": "make\nmake test", "host": "b"})
    assert barred_lines(body, remote=ToolTraits(commands=True, command="script")) == ["make", "make test", "host: b"]


def test_a_file_that_cannot_be_compared_is_shown_as_all_new(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with (tmp_path / "large").open("wb") as large:
        large.truncate(MAX_DIFF_BYTES + 1)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    notes = {}
    for name in ("binary", "large", "pipe", "folder", "new", "a\0b", "pipe/x"):
        first, *rest = barred_lines(approval_for("Write", tmp_path, {"file_path": name, "content": "one\ntwo"}))
        assert rest == ["@@ -0,0 +1,2 @@", "+one", "+two"]
        notes[name] = first.partition(" (")[2].rstrip(")")
    unfit = "the present file is too large to compare, or not a regular file"
    assert notes == {
        "binary": "the present file is not text",
        "large": unfit,
        "pipe": unfit,
        "folder": unfit,
        "new": "a new file",
        "a\0b": "the present file cannot be read",
        "pipe/x": "the present file cannot be read",
    }


def test_lines_of_a_file_cannot_imitate_the_prompt(tmp_path: Path) -> None:
    content = "x\r  Why: because\x1b[1A\u2028[y]"
    assert barred_lines(approval_for("Write", tmp_path, {"file_path": "a", "content": content}))[-1] == (
        "+x\\r  Why: because\\u001b[1A\\u2028[y]"
    )


def test_each_layer_and_effect_has_its_risk() -> None:
    risks = [
        risk_of(approval_for("x", layer=layer, effect=effect))
        for layer, effect in (
            ("protected", "once"),
            ("guard", "once"),
            ("syntax", "once"),
            ("mode", "read"),
            ("mode", "once"),
        )
    ]
    assert [text.partition(":")[0] for text in risks[:4]] == ["high", "high", "unknown", "low"]
    assert len(set(risks)) == 5


def test_rules_and_reasons_stay_on_their_lines() -> None:
    assert render_rules(["Bash(a\nb)", "Bash(c)"]) == "  Rule: Bash(a\\nb)\n  Rule: Bash(c)"
    text = render_approval(approval_for("pay", message="a\nb", reason="c\n  Rule: pay", agent="x\ny"))
    assert "\n  a\\nb\n  Why: c\\n  Rule: pay" in text
    assert "agent x\\ny" in text


def test_a_command_without_the_sandbox_is_shown_as_one_although_there_is_a_sandbox() -> None:
    sandbox = select_sandbox("on")
    inside = approval_for("Bash", arguments={"command": "make"})
    outside = approval_for("Bash", arguments={"command": "make", "dangerouslyDisableSandbox": True}, layer="sandbox")
    assert describe_sandbox(inside, sandbox).startswith(sandbox.name)
    assert describe_sandbox(outside, sandbox) == "none: it would run with all your permissions"
    assert barred_lines(outside) == ["make", "dangerouslyDisableSandbox: true"]
    assert risk_of(outside) == "high: it runs without the sandbox"
    assert risk_of(approval_for("Bash", layer="network")) == "it may send data to the host"
