"""``vaka trace``: turns as waterfalls of spans, and their export."""

import json

from tests.cli.shell import Shell, call_line, say_line


def test_a_turn_is_shown_as_a_waterfall_and_exported(shell: Shell) -> None:
    shell.write_script(call_line("boom"), say_line("It failed."), say_line("Bye."))
    shell.run("Try it.", "--session", "demo")
    shell.run("Again.", "--session", "demo")
    (head, *spans) = shell.vaka("trace", "show", "demo").out.splitlines()
    assert head.startswith("demo trn_")
    assert " · ok · " in head
    assert [line.split("│")[0].split()[:2] for line in spans] == [
        ["turn", "payer"],
        ["step", "1"],
        ["model", "scripted"],
    ]
    first = shell.vaka("trace", "show", "demo", "--all", "--json").json["spans"][0]["id"]
    lines = shell.vaka("trace", "show", "demo", first).out.splitlines()
    (failed,) = [line for line in lines if "tool boom" in line]
    assert failed.lstrip().startswith("!tool boom")
    assert failed.endswith("error")
    exported = json.loads(shell.vaka("trace", "export", "demo", first).raw_out)
    names = [span["name"] for span in exported["resourceSpans"][0]["scopeSpans"][0]["spans"]]
    assert names[0] == "invoke_agent payer"
    assert "execute_tool boom" in names
    shown = shell.vaka("trace", "export", "demo", "--format", "json").json
    assert shown == shell.vaka("trace", "show", "demo", "--json").json


def test_an_unknown_session_or_turn_is_an_error(shell: Shell) -> None:
    shell.write_script(say_line("Hi."))
    shell.run("Hi.", "--session", "demo")
    assert "there is no session 'none'" in shell.vaka("trace", "show", "none").err
    done = shell.vaka("trace", "show", "demo", "trn_none")
    assert (done.code, "has no turn 'trn_none'" in done.err) == (2, True)
