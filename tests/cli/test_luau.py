"""``vaka luau``: run a script as a program, a tool or an agent, without a session."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.cli.shell import Shell, say_line

ECHO = """
-- Tell a city's weather.
function invoke(ctx, args)
    print("looking at the sky of " .. tostring(args.city))
    return { city = args.city, rain = true }
end
"""

ASKS = """
function invoke(ctx, args)
    ctx.output({ question = "how many?" })
    local count = ctx.input()
    ctx.output("which colour?")
    return { item = args.item, count = count, colour = ctx.input() }
end
"""

CHAT = """
function run(ctx)
    ctx.emit({ text = "Hello. " })
    while true do
        local input = ctx.recv()
        if input == nil then break end
        ctx.emit({ text = "You said: " })
        ctx.emit({ text = input.text, eof = true })
    end
    local said = {}
    for _, message in ctx.agent.history:recent(10) do
        table.insert(said, message.role)
    end
    ctx.emit({ text = table.concat(said, " ") })
end
"""

EVENTS = """
function on_start(ctx)
    ctx.emit({ text = "ready", eof = true })
end
function on_input(ctx, input)
    ctx.agent.state.count = (ctx.agent.state.count or 0) + 1
    ctx.emit({ text = ctx.agent.state.count .. ": " .. input.text, eof = true })
end
function on_close(ctx)
    ctx.emit({ text = "closed after " .. ctx.agent.state.count })
end
"""


class EchoHandler(BaseHTTPRequestHandler):
    """Answers with the path of the request."""

    def do_GET(self) -> None:
        body = json.dumps({"path": self.path}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Log nothing."""


@pytest.fixture
def host() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), EchoHandler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_plain_script_prints_to_stdout_and_has_all_three_surfaces(shell: Shell) -> None:
    shell.write_file(
        "a.luau",
        """
        print("ctx", ctx.json.encode({ 1, 2 }))
        __builtin.kvs_set("k", { deep = true })
        print("builtin", __builtin.kvs_get("k").deep)
        print("rt", (rt:json_encode({ a = 1 })))
        __builtin.log("logged", 1)
        ctx.log.warn("careful")
        """,
    )
    done = shell.vaka("luau", "a.luau")
    assert (done.code, done.err) == (0, "warning: careful\n")
    assert done.out == 'ctx\t[1,2]\nbuiltin\ttrue\nrt\t{"a":1}\nlogged\t1\n'


def test_a_plain_script_gets_its_input_as_its_arguments_and_leaves_stdin_alone(shell: Shell) -> None:
    shell.write_file("a.luau", "print(select('#', ...), (...) and (...).name)")
    assert shell.vaka("luau", "a.luau", "--input", '{"name": "Kai"}', input=b"not read").out == "1\tKai\n"
    assert shell.vaka("luau", "a.luau").out == "0\tnil\n"


def test_a_script_may_print_as_much_as_it_likes(shell: Shell) -> None:
    shell.write_file("a.luau", "for line = 1, 20000 do print(line, string.rep('x', 50)) end")
    lines = shell.vaka("luau", "a.luau").out.splitlines()
    assert (len(lines), lines[-1]) == (20000, f"20000\t{'x' * 50}")


def test_async_changes_nothing(shell: Shell) -> None:
    shell.write_file("a.luau", "local p = rt:sleep(1) p:await() print(coroutine.isyieldable(), 'done')")
    plain, long, short = (shell.vaka("luau", "a.luau", *flag) for flag in ((), ("--async",), ("-a",)))
    assert (plain.code, plain.out) == (long.code, long.out) == (short.code, short.out)
    assert "Accepted for compatibility and ignored" in " ".join(shell.vaka("luau", "--help").out.split())


@pytest.mark.parametrize(
    ("words", "input", "city"),
    [
        (["--input", '{"city": "Hilo"}'], None, '"Hilo"'),
        ([], b'{"city": "Hilo"}', '"Hilo"'),
        ([], b'\xef\xbb\xbf\n{\n  "city":\n  "a {b"\n}\n', '"a {b"'),
        (["--untrusted"], '{"city": "Hālawa"}'.encode(), '"Hālawa"'),
    ],
)
def test_a_tool_prints_its_result_and_nothing_else(
    shell: Shell, words: list[str], input: bytes | None, city: str
) -> None:
    shell.write_file("weather.luau", ECHO)
    done = shell.vaka("luau", "weather.luau", "--mode", "tool", *words, input=input)
    assert (done.code, done.out) == (0, f'{{"city":{city},"rain":true}}\n')
    assert done.err == f"looking at the sky of {json.loads(city)}\n"


def test_a_tool_without_arguments_gets_none(shell: Shell) -> None:
    shell.write_file("a.luau", "rt:output({ got = rt:input() })")
    assert shell.vaka("luau", "a.luau", "--mode", "tool").out == '{"got":{}}\n'
    assert shell.vaka("luau", "a.luau", "--mode", "tool", "--input", "[1]").out == '{"got":[1]}\n'


@pytest.mark.parametrize(
    ("words", "input"),
    [
        ([], b'{"item": "rope"}\n4\n"red"\n'),
        (["--input", '{"item": "rope"}'], b'4\n"red"'),
        ([], b'{"item":\n"rope"}\n\n4\n\n"red"'),
    ],
)
def test_a_tool_that_asks_for_more_gets_the_next_values_of_stdin(shell: Shell, words: list[str], input: bytes) -> None:
    shell.write_file("asks.luau", ASKS)
    done = shell.vaka("luau", "asks.luau", "--mode", "tool", *words, input=input)
    assert (done.code, done.json) == (0, {"item": "rope", "count": 4, "colour": "red"})
    assert done.err == '{"question":"how many?"}\nwhich colour?\n'


def test_a_tool_that_asks_at_the_end_of_stdin_gets_an_error(shell: Shell) -> None:
    shell.write_file("asks.luau", ASKS)
    done = shell.vaka("luau", "asks.luau", "--mode", "tool", "--input", "{}")
    assert (done.code, done.out) == (1, "")
    assert done.err.endswith("script error: asks.luau:4: input: stdin has ended\n")


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ("function invoke() return nil end", "null\n"),
        ("return function() end", None),
        ("function invoke() return { [1] = 'a', [3] = 'c' } end", '{"1":"a","3":"c"}\n'),
        ("function invoke() return 0 / 0 end", "null\n"),
        ("return { invoke = function(ctx, args) return ctx.json.encode({}) end }", '"{}"\n'),
        ("function invoke(ctx) ctx.output(1) ctx.output(2) end", "2\n"),
    ],
)
def test_the_result_of_a_tool_is_printed_as_json(shell: Shell, source: str, wanted: str | None) -> None:
    shell.write_file("a.luau", source)
    done = shell.vaka("luau", "a.luau", "--mode", "tool")
    assert (done.code, done.out) == ((0, wanted) if wanted else (1, ""))


def test_a_tool_that_never_calls_output_or_outputs_an_error_has_failed(shell: Shell) -> None:
    shell.write_file("a.luau", "local nothing = 1")
    shell.write_file("b.luau", "rt:output(nil, 'no such city')")
    done = shell.vaka("luau", "a.luau", "--mode", "tool")
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("script error: a.luau: tool did not call output, ")
    failed = shell.vaka("luau", "b.luau", "--mode", "tool")
    assert (failed.code, failed.out, failed.err) == (1, "", "script error: no such city\n")


@pytest.mark.parametrize(
    ("words", "input", "heard"),
    [
        ([], b"one\ntwo\n", ["one", "two"]),
        ([], b"one\r\ntwo", ["one", "two"]),
        (["--input", "one and two"], b"not read\n", ["one and two"]),
        ([], None, [""]),
        ([], b"", [""]),
        ([], b"\n", [""]),
    ],
)
def test_an_agent_reads_line_by_line_until_stdin_ends(
    shell: Shell, words: list[str], input: bytes | None, heard: list[str]
) -> None:
    shell.write_file("chat.luau", CHAT)
    done = shell.vaka("luau", "chat.luau", "--mode", "agent", *words, input=input)
    assert (done.code, done.err) == (0, "")
    roles = " ".join(["assistant", *["user assistant"] * len(heard)])
    assert done.out == "Hello. \n" + "".join(f"You said: {text}\n" for text in heard) + f"{roles}\n"


def test_an_agent_of_events_keeps_its_state_from_one_input_to_the_next(shell: Shell) -> None:
    shell.write_file("events.luau", EVENTS)
    done = shell.vaka("luau", "events.luau", "--mode", "agent", input=b"a\nb\n")
    assert (done.code, done.out) == (0, "ready\n1: a\n2: b\nclosed after 2\n")


def test_an_agent_answers_a_pipe_before_it_ends(shell: Shell) -> None:
    shell.write_file("chat.luau", CHAT)
    shell.bash("mkfifo in")
    done = shell.bash(
        "vaka luau chat.luau --mode agent < in > out & exec 3> in; echo one >&3; "
        "until grep -q 'You said: one' out; do :; done; echo two >&3; exec 3>&-; wait $!; cat out"
    )
    assert done.out.splitlines()[1:3] == ["You said: one", "You said: two"]


def test_a_terminal_prompts_for_input_of_agents_and_tools(shell: Shell) -> None:
    shell.write_file("chat.luau", CHAT)
    terminal = shell.terminal("luau", "chat.luau", "--mode", "agent")
    terminal.expect("> ")
    terminal.send_line("ahoy")
    terminal.expect("You said: ahoy")
    terminal.expect("> ")
    terminal.send_line("\x04")
    assert terminal.wait_exit() == 0
    shell.write_file("asks.luau", ASKS)
    terminal = shell.terminal("luau", "asks.luau", "--mode", "tool")
    for question, answer in (("how many?", "4"), ("which colour?", '"red"')):
        terminal.expect(question)
        terminal.expect("> ")
        terminal.send_line(answer)
    terminal.expect('"colour": "red"')
    assert terminal.wait_exit() == 0


def test_require_searches_the_script_folder_the_libs_and_the_libraries_of_vaka(shell: Shell) -> None:
    shell.write_file("scripts/a.luau", "print(require('greet'), type(require('haivivi').pal))")
    shell.write_file("libs/greet/init.luau", "return 'from beside'")
    shell.write_file("mine/greet.luau", "return 'from mine'")
    shell.write_file("other/greet.luau", "return 'from other'")
    assert shell.vaka("luau", "scripts/a.luau").out == "from beside\ttable\n"
    assert shell.vaka("luau", "scripts/a.luau", "--libs", "mine", "--libs", "other").out == "from mine\ttable\n"
    missing = shell.vaka("luau", "scripts/a.luau", "--libs", "other/../mine/..")
    assert (missing.code, missing.err[:34]) == (1, "script error: a.luau:1: require: m")
    assert shell.vaka("luau", "scripts/a.luau", "--libs", "nowhere").code == 2


def test_a_script_reaches_public_hosts_and_those_it_is_allowed(shell: Shell, host: str) -> None:
    shell.write_file("a.luau", f"print(ctx.http.get('http://{host}/x?y=1').json.path)")
    refused = shell.vaka("luau", "a.luau")
    assert refused.code == 1
    assert "'127.0.0.1' is this machine itself; only trusted hosts may be" in refused.err
    for words in (["--allow-host", host], ["--allow-host", "10.0.0.1", "--allow-host", "127.0.0.1", "--untrusted"]):
        assert shell.vaka("luau", "a.luau", *words).out == "/x?y=1\n"
    assert shell.vaka("luau", "a.luau", VAKA_ALLOW_HOST=host).out == "/x?y=1\n", "the setting"


def test_a_script_sees_only_the_variables_it_is_given(shell: Shell) -> None:
    shell.write_file("a.luau", "print(__builtin.env('HOME'), __builtin.env('SHOWN'), __builtin.env('ABSENT'))")
    assert shell.vaka("luau", "a.luau", SHOWN="yes").out == "nil\tnil\tnil\n"
    assert shell.vaka("luau", "a.luau", "--env", "SHOWN", "--env", "ABSENT", SHOWN="yes").out == "nil\tyes\tnil\n"
    shell.write_file("vaka.toml", 'script_env = ["SHOWN"]\n')
    assert shell.vaka("luau", "a.luau", SHOWN="yes").out == "nil\tnil\tnil\n", "the folder is not trusted"
    shell.vaka("trust")
    assert shell.vaka("luau", "a.luau", SHOWN="yes").out == "nil\tyes\tnil\n"


def test_a_script_uses_the_default_model_or_one_by_name(shell: Shell) -> None:
    model = shell.write_script(say_line("Aloha!"), say_line("Aloha again!"))
    shell.write_file("a.luau", "print(ctx.generate('default', 'Hello?'), ctx.agent.model)")
    assert shell.vaka("luau", "a.luau", "--model", model).out == f"Aloha!\t{model}\n"
    assert shell.vaka("luau", "a.luau", VAKA_MODEL=model).out == f"Aloha!\t{model}\n"
    shell.write_file("b.luau", f"print(rt:generate('{model}', 'Hello?'))")
    assert shell.vaka("luau", "b.luau").out == "Aloha!\tnil\n"


def test_a_script_without_a_model_gets_an_error_and_an_untrusted_one_opens_no_files(shell: Shell) -> None:
    model = shell.write_script(say_line("secret"))
    shell.write_file("a.luau", "print(rt:generate('x', 'Hello?')) print(pcall(ctx.generate, 'default', 'Hello?'))")
    done = shell.vaka("luau", "a.luau")
    assert done.out.startswith("nil\tgenerator not configured: no --model was given, and model 'x' is not known; ")
    assert "there is no model 'default'; give one with --model NAME\n" in done.out
    shell.write_file("b.luau", f"print(rt:generate('{model}', 'Hello?'))")
    assert shell.vaka("luau", "b.luau", "--untrusted").out == (
        f"nil\tgenerator not configured: this script may ask the model 'default' only, not '{model}', because it is "
        f"confined; give that model with --model {model} and ask 'default', or run the script with --trusted\n"
    )
    shell.write_file("c.luau", "print(rt:generate('default', 'Hello?'))")
    assert shell.vaka("luau", "c.luau", "--untrusted", "--model", model).out == "secret\tnil\n"
    assert shell.vaka("luau", "b.luau", "--trusted").out == "secret\tnil\n"


def test_a_profile_prints_timings(shell: Shell) -> None:
    shell.write_file("a.luau", "ctx.uuid() ctx.uuid() ctx.sleep(0) print('done')")
    done = shell.vaka("luau", "a.luau", "--profile")
    lines = done.err.splitlines()
    assert done.out == "done\n"
    assert [line.split()[0] for line in lines[:5]] == ["compile", "run", "vm", "memory", "calls"]
    assert lines[4].split()[1] == "3"
    assert sorted(line.split()[:2] for line in lines[5:]) == [["sleep", "1"], ["uuid", "2"]]
    assert lines[3].endswith("KiB")
    away = shell.vaka("luau", "a.luau", "--profile", "--untrusted").err.splitlines()
    assert away[3] == "memory   in a worker"
    assert len(away) == len(lines)


def test_values_a_script_stores_are_gone_when_it_ends(shell: Shell) -> None:
    shell.write_file("a.luau", "print(__builtin.kvs_get('k')) __builtin.kvs_set('k', 1) print(__builtin.kvs_get('k'))")
    assert [shell.vaka("luau", "a.luau").out for _ in range(2)] == ["nil\n1\n"] * 2
    assert not (shell.folder / "data").exists()
