"""Models on the command line: list, test, and the model flags of a run."""

import asyncio
import base64
import json
import re
import signal
import subprocess
import sys
from typing import Any
from urllib.request import Request, urlopen

import pytest

from tests.cli.shell import CommandResult, Shell, call_line, say_line
from vaka.testing.fake_provider import FakeProvider, Fault
from vaka.testing.models import say as answer

KEY = "sk-a-key-to-hide"
PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII=")
SCHEMA = {"type": "object", "properties": {"boats": {"type": "integer"}}, "required": ["boats"]}


async def run_vaka(shell: Shell, provider: FakeProvider, *words: str, **env: str) -> CommandResult:
    """Run a command with every provider's address set to the fake one."""
    variables = {
        "OPENAI_BASE_URL": provider.url,
        "ANTHROPIC_BASE_URL": provider.url,
        "GEMINI_BASE_URL": provider.url,
        "OPENAI_API_KEY": KEY,
        "ANTHROPIC_API_KEY": KEY,
        "GEMINI_API_KEY": KEY,
        **env,
    }
    return await asyncio.to_thread(lambda: shell.vaka(*words, **variables, input=None))


def test_the_list_shows_whether_keys_are_set_and_never_their_values(shell: Shell) -> None:
    shell.write_file(
        "models/house.json",
        json.dumps(
            {
                "schema": "openai/chat/v1",
                "type": "generator",
                "api_key": "$HOUSE_KEY",
                "models": [{"name": "house/small", "model": "small-1"}],
            }
        ),
    )
    shell.write_file(
        "models/other.json",
        json.dumps(
            {
                "schema": "gemini/v1",
                "type": "generator",
                "api_key": "$NOT_SET",
                "models": [],
            }
        ),
    )
    shell.write_file(
        "vaka.toml", "[tiers]\nlow = 'fast'\n[models.fast]\nmodel = 'openai/small'\n[models.none]\nmodel = 'opnai/y'\n"
    )
    env = {
        "OPENAI_API_KEY": KEY,
        "HOUSE_KEY": KEY,
        "VAKA_MODEL_FILES": "models",
        "GOOGLE_API_KEY": KEY,
        "OLLAMA_BASE_URL": f"http://kim:{KEY}@box.lan:11434",
    }
    done, plain = (shell.vaka("models", "list", *more, input=None, **env) for more in (("--json",), ()))
    assert KEY not in done.out + done.err + plain.out + plain.err
    listing = done.json
    keys = {one["name"]: (one["key"], one["key_from"]) for one in listing["providers"]}
    assert [keys[name] for name in ("openai", "openai-chat", "anthropic", "gemini", "ollama", "azure")] == [
        ("set", "OPENAI_API_KEY"),
        ("set", "OPENAI_API_KEY"),
        ("not set", None),
        ("set", "GOOGLE_API_KEY"),
        ("not needed", None),
        ("no address", None),
    ]
    assert (
        next(one["address"] for one in listing["providers"] if one["name"] == "ollama") == "http://***@box.lan:11434/v1"
    )
    assert {one["name"]: one.get("problem", "").partition(" (")[0] for one in listing["models"]} == {
        "fast": "",
        "none": "models.none: model 'opnai/y' is not known; did you mean 'openai/y'?",
        "house/small": "",
    }
    assert (listing["tiers"], listing["local"]) == ({"low": "fast"}, {"available": True, "install": None})
    assert [note for note in listing["notes"] if "NOT_SET" in note]
    assert re.search(
        r"^openai/… +set +OPENAI_API_KEY +responses +https://api\.openai\.com/v1$", plain.out, re.MULTILINE
    )
    assert re.search(r"^fast +openai/small +.*vaka\.toml:3$", plain.out, re.MULTILINE)
    assert re.search(r"^low +fast$", plain.out, re.MULTILINE)
    assert "note: " in plain.err


def test_key_settings_of_an_untrusted_folder_are_noted_and_ignored(shell: Shell) -> None:
    shell.write_file(
        "vaka.toml", "[models.away]\nprovider = 'openai'\nmodel = 'm'\nbase_url = 'https://evil.example/v1'\n"
    )
    careful = shell.vaka("models", "list", "--json", OPENAI_API_KEY=KEY)
    assert careful.json["models"] == []
    assert "note: " in careful.err
    assert "vaka.toml:1: models.away does not count: base_url could send keys" in careful.err
    assert shell.vaka("run", "Hi.", "--model", "away", OPENAI_API_KEY=KEY).code == 3
    trusting = shell.vaka("models", "list", "--json", "--trust", OPENAI_API_KEY=KEY)
    assert [one["name"] for one in trusting.json["models"]] == ["away"]


async def test_a_model_that_answers_and_calls_passes_its_test(shell: Shell) -> None:
    report: Any = {"tool_calls": [{"name": "report_temperature", "arguments": {"celsius": 21}}]}
    async with FakeProvider(answer("ready"), report) as provider:
        done = await run_vaka(shell, provider, "models", "test", "openai/gpt-5-mini", "--tools")
    assert done.code == 0, done.err
    assert re.fullmatch(
        r"openai/gpt-5-mini answers: ready\n  first chunk after [\d.]+ ms, complete"
        r" after [\d.]+ ms; \d+ tokens in, \d+ out"
        r', US\$ 0\.\d+\nopenai/gpt-5-mini calls tools: report_temperature \{"celsius":21\}\n  first chunk .*\n',
        done.out,
    )
    asked = provider.requests[1].body
    assert asked["tool_choice"] == {"type": "function", "name": "report_temperature"}


async def test_a_model_that_cannot_be_forced_is_asked_for_a_call_in_words(shell: Shell) -> None:
    report: Any = {"tool_calls": [{"name": "report_temperature", "arguments": {"celsius": 21}}]}
    async with FakeProvider(answer("ready"), report) as provider:
        done = await run_vaka(shell, provider, "models", "test", "anthropic/claude-sonnet-5-5", "--tools")
    assert (done.code, "calls tools: report_temperature" in done.out) == (0, True), done.err
    asked = provider.requests[1].body
    assert asked.get("tool_choice", {"type": "auto"})["type"] == "auto"
    assert "Call report_temperature" in json.dumps(asked["messages"])


@pytest.mark.parametrize(
    ("fault", "code", "expected"),
    [
        (
            Fault(status=401, body=b'{"error": {"message": "bad key"}}'),
            4,
            "store a key with `vaka login`, or set its variable",
        ),
        (Fault(status=404, body=b'{"error": {"message": "no such model"}}'), 6, "check the name of the model"),
        (Fault(status=503), 75, "try again; if it fails again, check the address"),
        (Fault(status=429), 75, "wait and try again"),
        (Fault(cut=60), 75, "a proxy between here and the provider"),
    ],
)
async def test_a_failed_model_test_prints_advice(shell: Shell, fault: Fault, code: int, expected: str) -> None:
    async with FakeProvider(answer("ready"), fault=fault) as provider:
        done = await run_vaka(shell, provider, "models", "test", "anthropic/claude-x")
        data = await run_vaka(shell, provider, "models", "test", "anthropic/claude-x", "--json")
    assert (done.code, data.code, done.out, data.json["ok"]) == (code, code, "", False)
    assert expected in done.err
    assert data.json["trials"][0]["exit_code"] == code
    assert KEY not in done.err + data.out
    assert len(provider.requests) == 2


async def test_a_model_that_does_not_call_what_it_must_fails_its_test(shell: Shell) -> None:
    for wrong, expected in (
        (answer("It is warm."), "the answer does not call report_temperature"),
        (
            {"tool_calls": [{"name": "report_temperature", "arguments": {"celsius": "warm"}}]},
            "lacks the number celsius",
        ),
        ({"tool_calls": [{"name": "report_temperature", "arguments": "[1]"}]}, "are not a JSON object"),
    ):
        async with FakeProvider(answer("ready"), wrong) as provider:
            done = await run_vaka(shell, provider, "models", "test", "openai-chat/x", "--tools")
        assert (done.code, expected in done.err) == (6, True), done.err
    async with FakeProvider(answer("")) as provider:
        done = await run_vaka(shell, provider, "models", "test", "openai-chat/x")
    assert (done.code, "the answer is empty (stop: end)" in done.err) == (6, True)


def test_a_model_without_a_key_or_with_an_unknown_name_fails_at_once(shell: Shell) -> None:
    for words in (("models", "test"), ("run", "Hi.", "--model")):
        missing = shell.vaka(*words, "openai/x")
        assert missing.code == 4
        assert (
            "error: openai/x: there is no key for openai; set OPENAI_API_KEY, or store it with `vaka login openai`\n"
            in missing.err
        )
        unknown = shell.vaka(*words, "opnai/x")
        assert (unknown.code, "did you mean 'openai/x'?" in unknown.err) == (3, True)
    assert shell.vaka("sessions", "list", "--json").json["sessions"] == []


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("openai/x", "/v1/responses"),
        ("openai-chat/x", "/v1/chat/completions"),
        ("anthropic/x", "/v1/messages"),
        ("gemini/x", "/v1beta/models/x:streamGenerateContent"),
    ],
)
async def test_a_run_asks_the_provider_its_model_names(shell: Shell, name: str, path: str) -> None:
    async with FakeProvider(answer("Hello there.")) as provider:
        done = await run_vaka(shell, provider, "run", "Say hello.", "--model", name, "--session", "s")
        assert (done.code, done.out) == (0, "Hello there.\n"), done.err
        assert [request.path for request in provider.requests] == [path]
    assert KEY not in shell.vaka("sessions", "export", "s").out


async def test_a_session_changes_its_model_from_run_to_run_and_usage_has_both(shell: Shell) -> None:
    async with FakeProvider(answer("One."), answer("Two.")) as provider:
        await run_vaka(shell, provider, "run", "First.", "--model", "anthropic/claude-sonnet-5", "--session", "s")
        await run_vaka(shell, provider, "run", "Second.", "--model", "openai-chat/gpt-5-mini", "--session", "s")
    texts = [message["content"] for message in provider.requests[1].body["messages"]]
    assert texts[0].startswith("You are vaka")
    assert texts[1:] == ["First.", "One.", "Second."]
    usage = shell.vaka("sessions", "stats", "s")
    assert re.findall(r"^(\S+) +(\d+) ", usage.out, re.MULTILINE) == [
        ("anthropic/claude-sonnet-5", "1"),
        ("openai-chat/gpt-5-mini", "1"),
        ("all", "2"),
    ]
    stats = shell.vaka("sessions", "stats", "s", "--json").json
    names = {"anthropic/claude-sonnet-5", "openai-chat/gpt-5-mini"}
    assert (stats["request_count"], set(stats["by_model"])) == (2, names)
    assert stats["usage"]["cost"] > 0


async def test_options_and_a_tool_that_must_be_called_reach_the_provider(shell: Shell) -> None:
    lines = ({"tool_calls": [{"name": "add", "arguments": {"a": 1, "b": 2}}]}, answer("3."))
    words = (
        "run",
        "Add.",
        "--model",
        "openai-chat/x",
        "--agent",
        "agent.py:agent",
        "--tool-choice",
        "add",
        "--option",
        "temperature=0",
        "--option",
        "reasoning=high",
        "--option",
        "stop=END",
        "--option",
        "user=42",
        "--option",
        'extra={"x": [1]}',
    )
    async with FakeProvider(*lines) as provider:
        done = await run_vaka(shell, provider, *words)
        assert (done.code, done.out) == (0, "3.\n"), done.err
    first, second = (request.body for request in provider.requests)
    assert (first["temperature"], first["reasoning_effort"], first["x"]) == (0, "high", [1])
    assert (first["stop"], first["user"]) in ((["END"], "42"), ("END", "42"))
    assert first["tool_choice"] == {"type": "function", "function": {"name": "add"}}
    assert second.get("tool_choice", "auto") == "auto"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--option", "temprature=0"), "there is no model option 'temprature'; did you mean 'temperature'?"),
        (("--option", "temperature=warm"), "expected a number from 0 on, got 'warm'"),
        (("--option", "reasoning=hgh"), "expected none, minimal, low, medium, high, max, or a number of tokens"),
        (
            ("--option", "stop=a", "--option", "stop=b"),
            'leave one of them out; for several texts write stop=["',
        ),
        (("--option", "high"), "--option high: expected KEY=VALUE"),
        (("--tool-choice", "ad"), "agent 'payer' has no tool 'ad' for tool_choice; did you mean 'add'?"),
        (("--output-schema", "none.json"), "--output-schema none.json: No such file"),
        (("--output-schema", "agent.py"), "--output-schema agent.py: expected a JSON Schema"),
        (("--output-schema", "bad.json"), "--output-schema bad.json: not a usable JSON Schema"),
        (("--output-schema", "good.json", "--option", "output={}"), "leave one of them out"),
        (("--output-schema", "huge.json"), "--output-schema huge.json: larger than the 1048576 bytes"),
        (("--option", f"extra={'[' * 5000}"), "model option 'extra': expected an object, got '["),
        (("--attach", "none.png"), "--attach none.png: No such file"),
        (("--attach", "empty.txt"), "--attach empty.txt: the file is empty"),
        (("--attach", "latin.txt"), "--attach latin.txt: text/plain cannot be sent to a model"),
        (("--attach", "data.zip"), "--attach data.zip: application/zip cannot be sent to a model"),
        (("--attach", "big.txt"), "--attach big.txt: larger than 20 MB"),
        (("--attach", "https://h.example/x"), "unknown kind of content; write image=URL"),
        (("--attach", *(["most.txt", "--attach"] * 3), "most.txt"), "all files together are larger than 50 MB"),
    ],
)
def test_invalid_model_flags_fail_before_anything_runs(shell: Shell, words: tuple[str, ...], expected: str) -> None:
    shell.write_script(say_line("Hi."))
    shell.write_file("bad.json", '{"type": "nonsense"}')
    shell.write_file("good.json", json.dumps(SCHEMA))
    shell.write_file("empty.txt", "")
    shell.write_file("huge.json", " " * 2_000_000 + "{}")
    (shell.folder / "data.zip").write_bytes(b"PK\3\4\0\0")
    (shell.folder / "latin.txt").write_bytes(b"caf\xe9")
    with (shell.folder / "big.txt").open("wb") as file:
        file.truncate(21 * 1024 * 1024)
    with (shell.folder / "most.txt").open("wb") as file:
        file.write(b"x" * (13 * 1024 * 1024))
    done = shell.run("Hi.", *words, agent="agent.py:agent")
    assert done.code == (3 if "tool-choice" in words[0] else 2)
    assert expected in done.err
    assert shell.vaka("sessions", "list", "--json").json["sessions"] == []


async def test_files_and_addresses_go_with_the_prompt(shell: Shell) -> None:
    (shell.folder / "dot.bin").write_bytes(PNG)
    (shell.folder / "page.pdf").write_bytes(b"%PDF-1.4 tiny")
    shell.write_file("notes.md", "# Boats\n```\nhull\n```\n")
    attached = (
        "--attach",
        "dot.bin",
        "--attach",
        "page.pdf",
        "--attach",
        "notes.md",
        "--attach",
        "https://h.example/a.png",
        "--attach",
        "image=https://h.example/b",
    )
    async with FakeProvider(answer("Seen.")) as provider:
        done = await run_vaka(
            shell, provider, "run", "Look.", "--model", "anthropic/claude-x", "--session", "s", *attached
        )
        assert (done.code, done.out) == (0, "Seen.\n"), done.err
    words, dot, page, notes, link, other = provider.requests[0].body["messages"][0]["content"]
    assert words["text"] == "Look."
    assert dot["source"] == {"type": "base64", "media_type": "image/png", "data": base64.b64encode(PNG).decode()}
    assert (page["type"], page["source"]["media_type"]) == ("document", "application/pdf")
    assert notes["text"] == "notes.md:\n````\n# Boats\n```\nhull\n```\n````"
    assert [part["source"]["url"] for part in (link, other)] == ["https://h.example/a.png", "https://h.example/b"]


async def test_audio_is_attached_as_audio_and_svg_as_text(shell: Shell) -> None:
    (shell.folder / "hi").write_bytes(b"RIFF\4\0\0\0WAVEfmt ")
    shell.write_file("boat.svg", "<svg/>")
    async with FakeProvider(answer("Heard.")) as provider:
        words = ("run", "Listen.", "--model", "gemini/gemini-x", "--attach", "hi", "--attach", "boat.svg")
        done = await run_vaka(shell, provider, *words)
    assert done.code == 0, done.err
    _, sound, drawing = provider.requests[0].body["contents"][0]["parts"]
    assert sound["inlineData"]["mimeType"] == "audio/wav"
    assert drawing == {"text": "boat.svg:\n```\n<svg/>\n```"}


def test_an_attachment_the_model_cannot_take_is_an_error(shell: Shell) -> None:
    (shell.folder / "dot.png").write_bytes(PNG)
    done = shell.vaka("run", "Look.", "--attach", "dot.png", "--model", "local", "-q")
    assert (done.code, "local cannot take this image: it reads text only" in done.err) == (6, True)
    assert shell.vaka("run", "--session", "s", "--resume", "--attach", "dot.png").code == 2


def test_an_answer_is_checked_against_the_output_schema(shell: Shell) -> None:
    shell.write_file("boats.json", json.dumps(SCHEMA))
    bad_lines = [say_line('{"boats": "three"}')] * 3 + [say_line("Three boats.")] * 3
    shell.write_script(say_line('```json\n{"boats": 3}\n```'), *bad_lines)
    words = ("How many?", "--output-schema", "boats.json", "--session", "s")
    good = shell.run(*words)
    assert (good.code, good.out) == (0, '{"boats": 3}\n')
    bad = shell.run(*words)
    assert (bad.code, "error: the answer does not match the schema: " in bad.err) == (6, True)
    assert bad.err.count("asking again: The answer does not match the schema") == 2
    none = shell.run(*words, "--output", "json")
    assert (none.code, none.json["status"], none.json["structured_output"]) == (6, "failed", None)
    assert none.json["error"]["code"] == "invalid_output"


def test_the_output_type_of_an_agent_gives_structured_output_too(shell: Shell) -> None:
    shell.write_file(
        "harbour.py",
        """
import vaka, dataclasses, datetime, pydantic

@dataclasses.dataclass
class Boat:
    name: str
    built: datetime.date

class Hull(pydantic.BaseModel):
    length: float

agent = vaka.Agent("harbour", output=Boat)
hull = vaka.Agent("hull", output=Hull)
""",
    )
    shell.write_script(say_line('{"name": "a", "built": "1975-03-08"}'))
    done = shell.run("Which?", "--output", "json", agent="harbour.py")
    assert done.json["structured_output"] == {"name": "a", "built": "1975-03-08"}
    shell.write_script(say_line('{"length": 19}'))
    assert shell.run("Which?", "--output", "json", agent="harbour.py:hull").json["structured_output"] == {
        "length": 19.0
    }
    shell.write_file("boats.json", json.dumps(SCHEMA))
    shell.write_script(say_line('{"boats": 3}'))
    assert shell.run("Which?", "--output-schema", "boats.json", agent="harbour.py").code == 0
    shell.write_script(*[say_line("No boat.")] * 3)
    assert shell.run("Which?", agent="harbour.py").code == 6


async def test_the_output_schema_is_sent_and_the_answer_parsed(shell: Shell) -> None:
    shell.write_file("boats.json", json.dumps(SCHEMA))
    async with FakeProvider(answer('{"boats": 3}')) as provider:
        words = ("run", "How many?", "--model", "openai-chat/x", "--output-schema", "boats.json", "--output", "json")
        done = await run_vaka(shell, provider, *words)
    assert (done.code, done.json["structured_output"]) == (0, {"boats": 3}), done.err
    sent = provider.requests[0].body["response_format"]["json_schema"]
    assert (sent["name"], sent["schema"]["properties"]) == ("boats", SCHEMA["properties"])


def test_verbose_shows_reasoning_beside_the_answer(shell: Shell) -> None:
    shell.write_script({"reasoning": "Let me see.", "text": "It is 3."})
    loud, plain = shell.run("Add.", "-v"), shell.run("Add.")
    assert (loud.out, plain.out) == ("It is 3.\n", "It is 3.\n")
    assert "Let me see.\n" in loud.err
    assert "Let me see." not in plain.err


def test_reasoning_and_answer_do_not_share_a_line_of_a_terminal(shell: Shell) -> None:
    shell.write_script({"reasoning": "Let me see.", "text": "It is 3."})
    terminal = shell.terminal("run", "Add.", "--model", "scripted:script.jsonl", "-v", "--ask", "deny")
    assert terminal.wait_exit() == 0
    lines = [re.sub(r"\x1b\[[?\d]*[A-Za-z]", "", line) for line in terminal.screen.splitlines()]
    assert "Let me see." in lines
    assert "It is 3." in lines


async def test_a_session_continues_with_a_model_without_vision_and_warns_once(shell: Shell) -> None:
    (shell.folder / "photo.png").write_bytes(PNG)
    async with FakeProvider(answer("A canoe.")) as provider:
        await run_vaka(
            shell, provider, "run", "Look.", "--attach", "photo.png", "--model", "openai/x", "--session", "s"
        )
        words = ("run", "And?", "--model", "deepseek/y", "--session", "s")
        results = [(await run_vaka(shell, provider, *words, DEEPSEEK_BASE_URL=provider.url)) for _ in range(2)]
    assert [(one.code, one.out.strip()) for one in results] == [(0, "A canoe.")] * 2
    assert "warning: deepseek/y cannot take 1 image of this conversation" in results[0].err
    assert "warning" not in results[1].err


async def test_a_budget_in_money_needs_a_price(shell: Shell) -> None:
    words = ("run", "Hi.", "--model", "openai/unheard-of", "--max-budget-usd", "1")
    async with FakeProvider(answer("Hi.")) as provider:
        unpriced = await run_vaka(shell, provider, *words)
        assert (unpriced.code, provider.requests) == (3, [])
        assert 'prices."openai/unheard-of" = { input' in unpriced.err
        shell.write_file("conf/vaka/config.toml", '[prices."openai/unheard-of"]\ninput = 1\noutput = 2\n')
        priced = await run_vaka(shell, provider, *words, "--output", "json")
    assert (priced.code, priced.json["cost"] > 0) == (0, True)
    shell.write_script(say_line("Hi."))
    assert shell.run("Hi.", "--max-budget-usd", "1").code == 0


async def test_tiers_and_names_of_the_settings_are_models(shell: Shell) -> None:
    shell.write_file(
        "conf/vaka/config.toml",
        f"""
model = "low"
[tiers]
low = "fast"
[models.fast]
model = "openai-chat/small"
key = "{KEY}-other"
options = {{ temperature = 0.5 }}
""",
    )
    provider = FakeProvider(answer(f"Your key is {KEY}-other."))
    async with provider:
        done = await run_vaka(shell, provider, "run", "Hi.", "--session", "s")
        assert (done.code, "Your key is" in done.out) == (0, True), done.err
        assert (await run_vaka(shell, provider, "run", "Hi.", "--model", "high")).code == 3
    request = provider.requests[0]
    assert (request.model, request.body["temperature"]) == ("small", 0.5)
    assert request.headers["authorization"] == f"Bearer {KEY}-other"
    log = shell.vaka("sessions", "export", "s").out
    assert (f"{KEY}-other" in log, '"model.selected"' in log) == (False, True)


@pytest.mark.parametrize("as_json", [True, False])
def test_the_local_model_is_served_to_other_programs(shell: Shell, as_json: bool) -> None:
    more = ("--json",) if as_json else ("--key-env", "SERVED_KEY")
    command = [sys.executable, "-m", "vaka", "models", "serve-local", *more]
    pipe, env = subprocess.PIPE, {**shell.env, "SERVED_KEY": KEY}
    with subprocess.Popen(command, cwd=shell.folder, env=env, stdout=pipe, stderr=pipe) as serving:
        assert serving.stdout is not None
        line = serving.stdout.readline().decode().strip()
        served = json.loads(line) if as_json else {"url": line, "key": KEY}
        body = json.dumps({"model": "local", "max_tokens": 8, "messages": [{"role": "user", "content": "Say hi."}]})
        request = Request(
            f"{served['url']}/chat/completions",
            body.encode(),
            {"content-type": "application/json", "authorization": f"Bearer {served['key']}"},
        )
        with urlopen(request, timeout=60) as response:
            assert json.load(response)["choices"][0]["message"]["content"]
        serving.send_signal(signal.SIGINT)
        assert serving.wait(60) == 130


def test_the_variable_of_key_env_must_be_set(shell: Shell) -> None:
    refused = shell.vaka("models", "serve-local", "--key-env", "NOT_SET")
    assert (refused.code, "--key-env NOT_SET: the variable is not set" in refused.err) == (3, True)


def test_the_local_model_answers_and_calls_what_it_must(shell: Shell) -> None:
    done = shell.vaka("run", "Say hello.", "--model", "local")
    assert (done.code, bool(done.out.strip())) == (0, True)
    assert "loading SmolLM2-135M" in done.err
    forced = shell.vaka(
        "run",
        "Add 1 and 2.",
        "--model",
        "local",
        "--agent",
        "agent.py:agent",
        "--tool-choice",
        "add",
        "-q",
        "--output",
        "json",
        "--max-steps",
        "1",
    )
    assert [one["name"] for one in forced.json["tool_calls"]][:1] == ["add"]


def test_scripts_of_the_shell_still_run_without_a_model(shell: Shell) -> None:
    done = shell.vaka("run", "Hi.")
    assert (done.code, "no model; give one with --model" in done.err) == (3, True)
    shell.write_script(call_line("add", a=1, b=2), say_line("3."))
    assert shell.run("Add.").out == "3.\n"


def test_config_validate_finds_models_that_cannot_be_built(shell: Shell) -> None:
    shell.write_file("vaka.toml", "[models.good]\nmodel = 'openai/x'\n\n[models.bad]\nmodel = 'opnai/x'\n")
    done = shell.vaka("config", "validate", "vaka.toml")
    assert done.code == 3
    assert "vaka.toml:4: models.bad: model 'opnai/x' is not known; did you mean 'openai/x'?" in done.err
    shell.write_file("vaka.toml", "[models.bad]\nmodel = 'openai/x'\noptions = { tempreature = 1 }\n")
    assert "there is no model option 'tempreature'" in shell.vaka("config", "validate", "vaka.toml").err
