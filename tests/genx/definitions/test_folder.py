"""A folder of definitions: lookups by kind and name, and every problem with its file and line."""

from pathlib import Path

import pytest
from inline_snapshot import snapshot

from vaka.genx.definitions.agents import ReactDefinition
from vaka.genx.definitions.definition_set import Definition, DefinitionSet
from vaka.genx.definitions.fields import ParseSettings
from vaka.genx.definitions.folder import guess_kind, load_definition_file, load_definitions
from vaka.genx.definitions.generators import ContextDefinition, GeneratorDefinition
from vaka.genx.definitions.references import Reference
from vaka.genx.definitions.tools import BuiltinToolDefinition


def write_files(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def without_folder(folder: Path, texts: tuple[str, ...]) -> list[str]:
    return [text.replace(f"{folder}/", "") for text in texts]


def test_a_folder_has_definitions_of_every_kind_with_their_origin(tmp_path: Path) -> None:
    write_files(
        tmp_path,
        {
            "agents/helper.yaml": "# A helper.\n\nprompt: Help.\ntools: [{$ref: tool:clock}, {$ref: Read}]\n",
            "tools/all.json": '[\n{"name": "clock"},\n{"name": "bell"}]',
            "rules/music.yml": "patterns: [play music]\n",
            "rules/house.yaml": "rules:\n  - {name: light, patterns: [light]}\n  - {name: door, patterns: [door]}\n",
            "contexts/style.yaml": "prompt: Be kind.\n",
            "models/small.yaml": "model: openai/small\n",
            "models/provider.yaml": "schema: openai/chat/v1\nmodels: []\n",
            "models/weights.json": '{"layers": 3}',
            "agents/.hidden.yaml": "[",
            "agents/notes.txt": "nothing",
            "agents/deeper/other.yaml": "[",
            "agent_v1/old.json": '{"name": "older", "context_layers": [{"$ref": "character:style"}]}',
        },
    )
    found = load_definitions(tmp_path, is_known=lambda kind, name: (kind, name) == ("tool", "Read"))
    assert found.problems == ()
    assert without_folder(tmp_path, found.notes) == [
        "models/weights.json:1: does not define a generator: it has none of its keys"
    ]
    assert found.model_files == (tmp_path / "models/provider.yaml",)
    assert without_folder(tmp_path, tuple(f"{one.origin} {one.kind} {one.name}" for one in found)) == [
        "agents/helper.yaml:3 agent helper",
        "agent_v1/old.json:1 agent older",
        "tools/all.json:2 tool clock",
        "tools/all.json:3 tool bell",
        "rules/house.yaml:2 rule light",
        "rules/house.yaml:3 rule door",
        "rules/music.yml:1 rule music",
        "contexts/style.yaml:1 context style",
        "models/small.yaml:1 generator small",
    ]
    assert len(found) == 9
    assert isinstance(found.agent("helper"), ReactDefinition)
    assert found.tool("bell") == BuiltinToolDefinition(name="bell")
    assert found.rule("music") == {"name": "music", "patterns": ["play music"]}
    assert found.context("style") == ContextDefinition(name="style", prompt="Be kind.")
    assert found.generator("small") == GeneratorDefinition(name="small", model="openai/small")
    assert found.resolve(Reference("context", "style", "character")) is found.find("context", "style")
    assert list(found.table("tool")) == ["clock", "bell"]
    assert (found.agent("x"), found.rule("x"), found.resolve(Reference("rule", "x"))) == (None, None, None)
    assert load_definitions(tmp_path / "none").problems == ()


def test_the_lines_of_a_long_list_are_counted_once(tmp_path: Path) -> None:
    rules = ",\n".join(f'{{"name": "r{number}", "patterns": ["play {number}"]}}' for number in range(3000))
    write_files(tmp_path, {"rules/all.json": f"[\n{rules}]"})  # minutes, if each rule counted the lines again
    found = load_definitions(tmp_path).find("rule", "r2999")
    assert found is not None
    assert found.line == 3001


def test_a_definition_in_code_has_no_origin() -> None:
    made = Definition(kind="tool", name="t", value=BuiltinToolDefinition(name="t"))
    assert made.origin == ""
    assert DefinitionSet([made, made]).tool("t") == made.value


def test_every_problem_of_a_folder_has_its_line(tmp_path: Path) -> None:
    write_files(
        tmp_path,
        {
            "agents/a.yaml": "name: a\ntools:\n  - $ref: tool:clokc\n  - {$ref: tool:zzz}\ngenerator: {$ref: none}\n",
            "agents/b.yaml": "name: a\n",
            "agents/c.yaml": "name: c\npromt: x\n",
            "agents/list.yaml": "- name: x\n",
            "agents/broken.yaml": "name: [\n",
            "agents/router.json": '{"type": "match", "name": "r",\n "route": [\n  {"rules": []}]}',
            "agents/loop.yaml": "tools:\n  - type: agent\n    name: again\n    agent: {$ref: loop}\n",
            "tools/clock.yaml": "name: clock\n",
            "tools/many.yaml": "- name: one\n- prompt: two\n",
            "tools/c1.yaml": "type: composite\nsteps:\n- {id: a, tool: {$ref: c2}}\n",
            "tools/c2.yaml": "type: composite\ncomposite:\n  steps:\n  - {id: a, tool: {$ref: tool:c1}}\n",
        },
    )
    found = load_definitions(tmp_path, ParseSettings(strict=True))
    assert without_folder(tmp_path, found.problems) == snapshot(
        [
            "agents/b.yaml:1: agent 'a' is defined twice: agents/a.yaml:1",
            "agents/broken.yaml:2: not YAML: did not find expected node content",
            "agents/c.yaml:2: parse react agent: agent c: 'promt' is not a known key; did you mean 'prompt'?",
            "agents/list.yaml:1: expected the definition of an agent, got a list",
            "agents/router.json:3: parse match agent: agent r: route[0]: rules is required",
            "agents/router.json:3: parse match agent: agent r: route[0]: agent is required",
            "tools/many.yaml:2: built-in tool: name is required",
            "tools/many.yaml:2: 'prompt' is not a known key",
            "agents/a.yaml:5: agent a: generator 'none' not found; define it in models/",
            "agents/a.yaml:3: agent a: tool 'clokc' not found; did you mean 'clock'?",
            "agents/a.yaml:4: agent a: tool 'zzz' not found; define it in tools/",
            "agents/loop.yaml:4: the references form a cycle: agent 'loop' → agent 'loop'",
            "tools/c1.yaml:3: the references form a cycle: tool 'c1' → tool 'c2' → tool 'c1'",
        ]
    )
    assert not [note for note in found.notes if "deprecated" not in note]


def test_only_so_many_cycles_are_reported(tmp_path: Path) -> None:
    names = [f"a{number}" for number in range(30)]
    write_files(tmp_path, {f"agents/{name}.yaml": f"type: match\ndefault: {{$ref: {name}}}\n" for name in names})
    problems = load_definitions(tmp_path).problems
    assert len(problems) == 20
    assert all("the references form a cycle: agent 'a" in problem for problem in problems)


def test_the_scripts_of_a_file_are_found_beside_it_and_in_the_project(tmp_path: Path) -> None:
    write_files(
        tmp_path,
        {
            "tools/near.yaml": "lua_file: near.luau",
            "tools/far.yaml": "lua_file: scripts/far.luau",
            "tools/near.luau": "return 1",
            "scripts/far.luau": "return 2",
            "alone.yaml": "{name: x, lua_file: tools/near.luau}",
        },
    )
    assert load_definitions(tmp_path).problems == ()
    assert load_definition_file(tmp_path / "tools/far.yaml", "tool").problems == ()
    assert load_definition_file(tmp_path / "alone.yaml", "tool").problems == ()


KINDS: "list[tuple[object, str | None]]" = [
    ({"type": "match", "name": "a"}, "agent"),
    ({"name": "a", "prompt": "x", "generator": {}}, "agent"),
    ({"name": "a", "prompt": "x", "description": "y"}, "agent"),
    ({"name": "a", "prompt": "x"}, "context"),
    ([{"name": "r", "patterns": []}], "rule"),
    ({"type": "generator", "name": "g", "generator": {}}, "tool"),
    ({"name": "l", "lua": ""}, "tool"),
    ({"model": "m"}, "generator"),
    ({"permissions": {}}, None),
    ([], None),
    ("text", None),
]


@pytest.mark.parametrize(("document", "kind"), KINDS)
def test_the_kind_of_a_file_outside_of_a_folder_follows_from_its_keys(document: object, kind: str | None) -> None:
    assert guess_kind(Path("file.yaml"), document) == kind
    assert guess_kind(Path("agents/file.yaml"), document) == "agent"
