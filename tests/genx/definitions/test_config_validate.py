"""``vaka config validate`` and ``vaka config schema`` with definitions of agents, tools, rules, contexts and models."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path

import jsonschema_rs
import pytest
from click.testing import CliRunner
from inline_snapshot import snapshot

from vaka.cli.main import cli
from vaka.genx.definitions.references import KINDS
from vaka.luau.program import load_pyluau

SCHEMAS = Path(__file__).parents[3] / "schema"
FILES = {
    "vaka.toml": '[models.fast]\nmodel = "openai/some-model"\n',
    "agents/router.yaml": """
type: match
rules: [{$ref: rule:music}]
route: [{rules: [music], agent: {$ref: agent:player}}]
default: {$ref: agent:helper}
""",
    "agents/player.yaml": "generator: {$ref: model:local-model}\ntools: [{$ref: tool:stop, quit: true}]\n",
    "agents/helper.json": '{"generator": {"$ref": "fast"},\n "tools": [{"$ref": "tool:Read"}, {"$ref": "mcp__a__b"}]}',
    "tools/stop.yaml": "lua: |\n  function invoke(ctx) return 'bye' end\n",
    "rules/music.yaml": "vars: {title: {label: Song}}\npatterns: ['play [title]']\n",
    "models/local.yaml": "schema: openai/chat/v1\napi_key: k\nmodels: [{name: local-model, model: m}]\n",
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    write(FILES)
    return tmp_path


def write(files: Mapping[str, str]) -> None:
    for name, text in files.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)


def validate(*words: str) -> list[str]:
    return CliRunner().invoke(cli, ["config", "validate", *words]).stderr.splitlines()


def test_a_project_with_definitions_is_valid(project: Path) -> None:
    assert validate(".") == [".: ok"]
    assert validate("agents", "agents/player.yaml", "models", "--strict") == [
        "agents: ok",
        "agents/player.yaml: ok",
        "models: ok",
    ]


def test_every_part_of_a_definition_is_checked_with_file_and_line(project: Path) -> None:
    write(
        {
            "agents/router.yaml": "type: match\nrules:\n  - $ref: rule:musik\n",
            "agents/helper.json": '{"promt": "x",\n "prompt": "y"}',
            "tools/stop.yaml": "description: Stop.\nlua: |\n  function invoke(\n",
            "tools/get.yaml": "type: http\nendpoint: https://example.com\n\nresp_body_jq: '.['\n",
            "rules/music.yaml": "vars: {title: {label: Song}}\npatterns:\n  - play\n  - 'play [song]'\n",
            "models/local.yaml": "schema: openai/chat/v1\napi_key: k\nmodels: [{name: 3}]\n",
        }
    )
    assert validate(".") == snapshot(
        [
            (
                "note: agents/helper.json:1: agent helper: 'promt' is not a known key and has no effect; did you "
                "mean 'prompt'?"
            ),
            "note: tools/get.yaml:1: the tool type 'http' is deprecated; `vaka config convert` makes a Luau tool of it",
            (
                'error: tools/get.yaml:4: tool get: resp_body_jq: invalid jq expression ".[": syntax error, '
                "unexpected '|'"
            ),
            (
                "error: tools/stop.yaml:2: tool stop: lua: stop:2: Expected identifier when parsing variable name, "
                "got <eof>"
            ),
            'error: rules/music.yaml:4: rule "music": pattern "play [song]" has placeholder [song] not defined in vars',
            "error: agents/player.yaml:1: agent player: generator 'local-model' not found; define it in models/",
            "error: agents/router.yaml:3: agent router: rule 'musik' not found; did you mean 'music'?",
            "error: models/local.yaml: models[0]: name: expected a text, got a whole number",
        ]
    )
    assert validate("agents/helper.json", "--strict") == snapshot(
        [
            (
                "error: agents/helper.json:1: parse react agent: agent helper: 'promt' is not a known key; did you "
                "mean 'prompt'?"
            )
        ]
    )
    assert validate("models") == snapshot(
        ["error: models/local.yaml: models[0]: name: expected a text, got a whole number"]
    )


def test_the_folder_of_the_setting_and_the_urls_of_requests_are_checked(project: Path) -> None:
    url = "https://{host}.example.com/"
    write(
        {
            "elsewhere/vaka.toml": 'definitions = "defs"\n',
            "elsewhere/defs/tools/one.yaml": f"type: http\nendpoint: {url}\n",
            "elsewhere/defs/agents/two.yaml": f"tools: [{{type: http, name: inner, endpoint: '{url}'}}]\n",
            "elsewhere/defs/agents/three.yaml": "default: {}\n",
        }
    )
    words = "endpoint: an argument such as {name} may stand in the path and the query"
    assert [line for line in validate("elsewhere") if line.startswith("error")] == [
        f"error: elsewhere/defs/agents/two.yaml:1: tool inner: {words}",
        f"error: elsewhere/defs/tools/one.yaml:1: tool one: {words}",
    ]


def test_a_file_outside_of_the_folders_is_known_by_its_keys(project: Path) -> None:
    write(
        {
            "one.yaml": "type: match\nname: a\nroute: [{rules: [x], agent: {$ref: y}}]\n",
            "two.json": '{"name": "t", "type": "http"}',
            "three.json": '{"permissions": {"allow": 3}}',
            "four.yaml": "some: thing\n",
            "tools/broken.json": "{",
            "empty/settings.json": "{}",
            "intents/one.yaml": "name: a\npatterns: ['[x]']\n",
            "intents/two.yaml": "- {name: b, patterns: [b]}\n",
            "mixed/one.yaml": "name: a\npatterns: ['[x]']\n",
            "mixed/two.yaml": "services: {}\n",
            "broken/one.yaml": "name: [\n",
        }
    )
    assert validate("intents", "mixed", "broken") == [
        "mixed: ok",
        "broken: ok",
        'error: intents/one.yaml:2: rule "a": pattern "[x]" has placeholder [x] not defined in vars',
    ]
    found = validate(
        "one.yaml", "two.json", "three.json", "four.yaml", "tools/broken.json", "empty/settings.json", "empty"
    )
    assert found == snapshot(
        [
            "note: two.json:1: the tool type 'http' is deprecated; `vaka config convert` makes a Luau tool of it",
            "empty/settings.json: ok",
            "empty: ok",
            (
                "error: one.yaml:3: parse match agent: agent a: route[0]: 'x' is not the name of one of its rules; "
                "the agent has no rules"
            ),
            "error: two.json:1: tool t: endpoint is required",
            "error: three.json:1: permissions.allow: expected a list of texts, not 3",
            (
                "error: four.yaml:1: does not define an agent, a tool, a rule, a context or a generator; put it into "
                "agents/, tools/, …"
            ),
            "error: tools/broken.json:1: not JSON: Expecting property name enclosed in double quotes (column 2)",
        ]
    )


def test_what_cannot_be_checked_without_a_package_is_noted(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write({"tools/get.yaml": "type: text_processor\nprompt: p\nmodel: m\n"})
    write({"tools/steps.yaml": "type: composite\nsteps: [{id: a, tool: {$ref: get}, input_jq: .unheard}]\n"})
    monkeypatch.setitem(sys.modules, "jq", None)
    monkeypatch.setitem(sys.modules, "pyluau._native", None)
    load_pyluau.cache_clear()
    found = validate(".")
    load_pyluau.cache_clear()
    assert found[-1] == ".: ok"
    assert [line for line in found if "not checked" in line] == snapshot(
        [
            (
                "note: jq expressions are not checked: jq expressions need the package jq, which is not installed: "
                "pip install 'vaka[definitions]'"
            ),
            (
                "note: scripts are not checked: Luau needs pyluau: pip install ./pyluau in a clone of vaka, or pip "
                "install 'vaka[luau]' from an index"
            ),
        ]
    )


def test_the_schema_of_each_kind_is_the_committed_one(project: Path) -> None:
    for kind in KINDS:
        printed = json.loads(CliRunner().invoke(cli, ["config", "schema", kind]).stdout)
        assert printed == json.loads((SCHEMAS / f"{kind}.schema.json").read_text())
    everything = json.loads(CliRunner().invoke(cli, ["config", "schema"]).stdout)
    jsonschema_rs.validator_for(everything).validate({"name": "a", "prompt": "Hello."})
    assert "'robot' is not one of" in CliRunner().invoke(cli, ["config", "schema", "robot"]).stderr


def test_json_that_is_neither_a_definition_nor_settings_is_refused_as_yaml_is(project: Path) -> None:
    (project / "other.json").write_text('{"foo": 1}')
    (project / "mine.json").write_text('{"permissions": {"allow": ["Read"]}}')
    message = "error: other.json: is neither a definition nor a settings file: no key of either is in it"
    assert validate("other.json") == [message]
    assert validate("mine.json") == ["mine.json: ok"]


def test_a_text_processor_is_marked_as_deprecated(project: Path) -> None:
    (project / "tools/polish.yaml").write_text("type: text_processor\nname: polish\nprompt: Polish it.\nmodel: local\n")
    note = "the tool type 'text_processor' is deprecated; `vaka config convert` makes a Luau tool of it"
    assert validate("tools/polish.yaml") == [f"note: tools/polish.yaml:1: {note}", "tools/polish.yaml: ok"]
