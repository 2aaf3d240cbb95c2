"""``vaka config convert``: tool definitions of older kinds as Luau tools, written or printed."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from vaka.cli.main import cli
from vaka.core.types.errors import ConfigError, InvalidInput
from vaka.genx.definitions.folder import load_definitions

FILES = {
    "tools/weather.yaml": """
type: http
name: weather
description: The weather of a city.
endpoint: https://api.example.com/v1/{city}
params: {city: {type: string}}
auth: {type: bearer, token: $WEATHER_TOKEN}
resp_body_jq: ".days[0]"
""",
    "tools/report.json": """{"type": "composite", "name": "report", "steps": [
  {"id": "sky", "tool": {"$ref": "tool:weather"}},
  {"id": "poem", "tool": {"$ref": "tool:poet"}, "input_jq": "{input: .steps.sky}"},
  {"id": "mail", "tool": {"$ref": "tool:send_mail"}, "input_jq": "{text: .steps.poem}"}]}""",
    "tools/poet.yaml": """
type: generator
name: poet
model: default
prompt: Rhyme.
context_layers: [In German., {$ref: context:style}, {$this: .name}, {$this: .none}, {$env: MOOD}, {$mem: {recent: 3}}]
""",
    "tools/cut.yaml": "{type: text_processor, name: cut, model: default, prompt: Cut.}",
    "tools/known.yaml": "{name: clock}",
    "contexts/style.yaml": "{name: style, prompt: Be short.}",
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in FILES.items():
        path = tmp_path / "project" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "project"


def convert(*words: str) -> Result:
    return CliRunner().invoke(cli, ["config", "convert", *words])


def test_a_folder_is_converted_to_scripts_and_definitions_that_load(project: Path) -> None:
    done = convert(".", "--output", "new")
    assert (done.exit_code, done.stderr) == (0, "")
    names = ["cut", "poet", "report", "weather"]
    assert sorted(Path(line).name for line in done.stdout.splitlines()) == sorted(
        f"{name}.{end}" for name in names for end in ("luau", "yaml")
    )
    loaded = load_definitions(project / "new")
    assert (loaded.problems, sorted(loaded.table("tool"))) == ((), names)
    weather, report = loaded.tool("weather"), loaded.tool("report")
    assert (weather and weather.description, getattr(weather, "params", None)) == (
        "The weather of a city.",
        {"city": {"type": "string"}},
    )
    assert getattr(report, "params", None) == {"city": {"type": "string"}}
    assert getattr(loaded.tool("cut"), "params", {})["required"] == ["content"]
    poet = (project / "new/tools/poet.luau").read_text()
    assert 'prompt_of("Rhyme.", "In German.", "Be short.", "poet", __builtin.env("MOOD"))' in poet
    text = (project / "new/tools/report.luau").read_text()
    assert 'ctx.invoke("send_mail", arguments)' in text
    assert text.startswith("-- Converted from the composite tool 'report' of tools/report.json:1.\n")
    again = convert(".", "--output", "new")
    assert isinstance(again.exception, ConfigError)
    assert "exists already; choose another folder" in str(again.exception)


def test_a_file_is_printed_and_what_cannot_be_converted_is_reported(project: Path) -> None:
    done = convert("tools/report.json")
    assert (done.exit_code, "local function weather(args" in done.stdout) == (0, True)
    hard = "- {type: http, name: hard, endpoint: 'https://a/', resp_body_jq: 'reduce .[] as $x (0; . + $x)'}\n"
    inline = "- {type: composite, name: seq, steps: [{id: a, tool: {name: clock}}]}\n"
    lost = "- {type: generator, name: gen, model: m, context_layers: [{$ref: 'context:lost'}]}\n"
    named = "- {type: text_processor, name: cutter, model: m, prompt: 'Cut for ${READER}.'}\n"
    (project / "more.yaml").write_text(
        f"{hard}{inline}{lost}{named}- {{type: http, name: easy, endpoint: 'https://a/'}}\n"
    )
    done = convert("more.yaml")
    assert done.exit_code == 1
    assert 'return send("GET", "https://a/"' in done.stdout
    assert "hard: not converted: resp_body_jq" in done.stderr
    assert "seq: not converted: the inline tool 'clock' needs a file of its own" in done.stderr
    assert "gen: not converted: the context 'lost' is not found" in done.stderr
    assert "cutter: not converted: a text has the variable READER; name it in a context layer" in done.stderr


def test_an_escaped_variable_of_a_text_is_written_as_the_text_that_it_stands_for(project: Path) -> None:
    (project / "more.yaml").write_text(
        "- {type: text_processor, name: a, model: m, prompt: 'Write $${A} as is.'}\n"
        "- {type: generator, name: b, model: m, prompt: 'Say $${B} and ${1}.',\n"
        "   context_layers: ['Or $${C}.', {$env: D}]}\n"
    )
    done = convert("more.yaml")
    assert (done.exit_code, done.stderr) == (0, "")
    assert "$${" not in done.stdout
    assert all(text in done.stdout for text in ("Write ${A} as is.", "Say ${B} and ${1}.", "Or ${C}."))


def test_a_path_without_such_tools_or_with_problems_says_so(project: Path) -> None:
    assert "no tools of the kinds http, generator" in convert("tools/known.yaml").stderr
    assert isinstance(convert("missing.yaml").exception, InvalidInput)
    (project / "bad.yaml").write_text("{type: http, name: bad}")
    assert "tool bad: endpoint is required" in str(convert("bad.yaml").exception)
