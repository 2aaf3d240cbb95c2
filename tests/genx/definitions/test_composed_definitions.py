"""Definitions made of others: ``$include`` of files and ``extends``, and what they refuse."""

import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.genx.definitions.test_folder import without_folder, write_files
from vaka.genx.definitions.agents import ReactDefinition
from vaka.genx.definitions.codecs import MAX_FILE_BYTES, encode_definition
from vaka.genx.definitions.fields import ParseSettings
from vaka.genx.definitions.folder import load_definition_file, load_definitions
from vaka.genx.definitions.generators import GeneratorDefinition
from vaka.genx.definitions.tools import HttpToolDefinition, LuaToolDefinition

ROUND = "the files include each other: first.yaml → second.json → first.yaml"


def definition_of(folder: Path, kind: Any, name: str) -> Any:
    found = load_definitions(folder, is_known=lambda kind, name: True)
    assert found.problems == ()
    definition = found.find(kind, name)
    assert definition is not None
    return definition.value


def problems_of(folder: Path, files: dict[str, str], *, trusted: bool = True) -> list[str]:
    found = load_definitions(
        write_files(folder, files), ParseSettings(trusted=trusted), is_known=lambda kind, name: True
    )
    return without_folder(folder, found.problems)


def test_a_file_is_included_as_a_document_as_a_text_and_as_items_of_a_list(tmp_path: Path) -> None:
    write_files(
        tmp_path,
        {
            "agents/a.yaml": "prompt: {$include: ../parts/prompt.md}\n"
            "tools: [{name: Read}, {$include: ../parts/tools.json}, {name: Bash}]\n"
            "generator: {$include: ../parts/model.yaml, temperature: 1}\n",
            "parts/prompt.md": "You help.\nAlways.\n",
            "parts/tools.json": '[{"name": "Grep"}, {"$include": "deeper/tool.yaml"}]',
            "parts/deeper/tool.yaml": "name: Glob\nquit: true\n",
            "parts/model.yaml": "model: small\ntemperature: 0\nmax_tokens: 5\n",
            "agents/b.json": '{"$include": "../parts/whole.yaml", "prompt": "B"}',
            "parts/whole.yaml": "prompt: Whole.\ndescription: D\n",
        },
    )
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools/packed.msgpack").write_bytes(
        msgspec.msgpack.encode({"name": "p", "params": {"$include": "../parts/p.json"}})
    )
    write_files(tmp_path, {"parts/p.json": '{"type": "object"}'})
    agent: ReactDefinition = definition_of(tmp_path, "agent", "a")
    assert agent.prompt == "You help.\nAlways.\n"
    assert [(slot.name, slot.quit) for slot in agent.tools] == [
        ("Read", False),
        ("Grep", False),
        ("Glob", True),
        ("Bash", False),
    ]
    assert agent.generator.definition == GeneratorDefinition(model="small", temperature=1, max_tokens=5)
    assert definition_of(tmp_path, "agent", "b") == ReactDefinition(name="b", prompt="B", description="D")
    assert definition_of(tmp_path, "tool", "p").params == {"type": "object"}
    assert sorted({path.name for path in load_definitions(tmp_path).included}) == [
        "model.yaml",
        "p.json",
        "prompt.md",
        "tool.yaml",
        "tools.json",
        "whole.yaml",
    ]


def test_a_problem_of_an_included_file_names_both_places(tmp_path: Path) -> None:
    problems = problems_of(
        tmp_path,
        {
            "agents/a.yaml": "prompt: P\ntools:\n- {name: x}\n- $include: parts/tools.yaml\n- {name: []}\n",
            "agents/parts/tools.yaml": "- {name: y}\n- name: z\n  type: ftp\n",
            "agents/b.yaml": "prompt: P\ngenerator:\n  $include: parts/model.json\n  seed: x\n",
            "agents/parts/model.json": '{"model": "m",\n "top_k": "many"}',
        },
    )
    assert [problem.partition("parse ")[0] for problem in problems] == [
        "agents/a.yaml:4: agents/parts/tools.yaml:3: ",
        "agents/a.yaml:5: ",
        "agents/b.yaml:4: ",
        "agents/b.yaml:3: agents/parts/model.json:2: ",
    ]


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("none.yaml", "$include: 'none.yaml' not found in agents"),
        ("../../outside.yaml", "$include: '../../outside.yaml' is not inside of FOLDER"),
        ("OUTSIDE", "$include: 'OUTSIDE' is not inside of FOLDER"),
        ("link.yaml", "$include: 'link.yaml' is not inside of FOLDER"),
        ("linked/outside.yaml", "$include: 'linked/outside.yaml' is not inside of FOLDER"),
        ("../.env", "$include: '../.env' does not end in .json, .yaml, .yml, .msgpack, .md or .txt"),
        ("folder.yaml", "$include: 'folder.yaml' not found in agents"),
        ("pipe.yaml", "$include: 'pipe.yaml' not found in agents"),
        ("\\0.yaml", "$include: '\\x00.yaml' not found in agents"),
        (f"{'x' * 300}.yaml", f"$include: '{'x' * 300}.yaml' not found in agents"),
        ("round.yaml", "$include: 'round.yaml' not found in agents"),
        ("broken.yaml", "$include: agents/broken.yaml:2: not YAML: did not find expected node content"),
        ("large.md", f"$include: agents/large.md: larger than {MAX_FILE_BYTES} bytes"),
        ("binary.txt", "$include: agents/binary.txt: not UTF-8: invalid start byte at byte 0"),
        ("a.yaml", "the files include each other: a.yaml → a.yaml"),
        ("first.yaml", f"agents/first.yaml:1: agents/second.json:1: {ROUND}"),
    ],
)
def test_a_file_that_cannot_be_included_is_an_error_with_its_line(tmp_path: Path, written: str, expected: str) -> None:
    folder = tmp_path / "project"
    outside = tmp_path / "outside.yaml"
    name = str(outside) if written == "OUTSIDE" else written
    write_files(
        folder,
        {
            "agents/a.yaml": f'name: a\nprompt:\n  $include: "{name}"\n',
            ".env": "KEY=secret\n",
            "agents/broken.yaml": "[",
            "agents/large.md": "x" * (MAX_FILE_BYTES + 1),
            "agents/first.yaml": "prompt: {$include: second.json}\n",
            "agents/second.json": '{"$include": "first.yaml"}',
        },
    )
    outside.write_text("prompt: outside")
    (folder / "agents/folder.yaml").mkdir()
    (folder / "agents/binary.txt").write_bytes(b"\xff")
    (folder / "agents/link.yaml").symlink_to(outside)
    (folder / "agents/linked").symlink_to(tmp_path)
    (folder / "agents/round.yaml").symlink_to("round.yaml")
    os.mkfifo(folder / "agents/pipe.yaml")
    found = load_definitions(folder)
    first = next(problem for problem in found.problems if problem.startswith(f"{folder}/agents/a.yaml"))
    expected = expected.replace("FOLDER", str(folder)).replace("OUTSIDE", str(outside))
    assert first.replace(f"{folder}/", "") == f"agents/a.yaml:3: {expected}"
    assert found.agent("a") is None


def test_fields_are_added_to_an_included_table_alone(tmp_path: Path) -> None:
    problems = problems_of(
        tmp_path,
        {
            "agents/a.yaml": "prompt: P\ntools:\n  $include: tools.yaml\n  name: x\n",
            "agents/tools.yaml": "[]",
            "contexts/b.yaml": "prompt:\n  $include: [x]\n",
        },
    )
    assert problems == [
        "agents/a.yaml:3: $include: 'tools.yaml' has a list, to which no fields can be added",
        "agents/tools.yaml:1: expected the definition of an agent, got a list",
        "contexts/b.yaml:2: $include: expected the name of a file",
    ]


def test_included_files_cannot_make_a_document_large_or_deep(tmp_path: Path) -> None:
    twice = "a: {$include: %s}\nb: {$include: %s}\n"
    files = {f"agents/parts/{n}.yaml": twice % (f"{n + 1}.yaml", f"{n + 1}.yaml") for n in range(20)}
    deep = {f"contexts/parts/{n}.json": json.dumps({"a": {"$include": f"{n + 1}.json"}}) for n in range(80)}
    same = {f"models/parts/{n}.json": json.dumps({"$include": f"{n + 1}.json"}) for n in range(80)}
    values = "[" + ",".join("1" for _ in range(9_000)) + "]"
    problems = problems_of(
        tmp_path,
        {
            **files,
            "agents/parts/20.yaml": "x",
            "agents/a.yaml": "prompt: {$include: parts/0.yaml}\n",
            **deep,
            "contexts/c.yaml": "prompt: {$include: parts/0.json}\n",
            **same,
            "models/m.yaml": "model: {$include: parts/0.json}\n",
            "rules/r.yaml": "patterns: [" + ", ".join("{$include: parts/values.json}" for _ in range(9)) + "]\n",
            "rules/parts/values.json": values,
            "tools/t.yaml": "params: [" + ", ".join("{$include: parts/text.md}" for _ in range(9)) + "]\n",
            "tools/parts/text.md": "x" * (MAX_FILE_BYTES // 2),
        },
    )
    assert [problem.rpartition(": ")[2] for problem in problems] == [
        "a definition includes more than 100 files or 4194304 bytes",
        "a definition includes more than 100 files or 4194304 bytes",
        "the document has more than 50000 values or 64 levels with what it includes",
        "the document has more than 50000 values or 64 levels with what it includes",
        "files include each other more than 64 deep",
    ]


def test_aliases_cannot_make_a_document_larger_than_can_be_walked(tmp_path: Path) -> None:
    def grow(*, first: str, part: str) -> str:
        """Return fields of which each has the one before it twice: the last one has 2 ** 60 values."""
        return f"f0: &f0 {first}\n" + "".join(f"f{n}: &f{n} {part % (n - 1, n - 1)}\n" for n in range(1, 61))

    lists = grow(first="[x]", part="[*f%d, *f%d]")
    tables = grow(first="{prompt: P}", part="{agent: *f%d, default: *f%d}")
    problems = problems_of(
        tmp_path,
        {
            "agents/lists.yaml": f"prompt: P\n{lists}",
            "agents/tables.yaml": f"prompt: P\n{tables}agent: *f60\n",
            "agents/derived.yaml": "description: D\nextends: tables\n",
            "agents/with.yaml": "prompt: P\ntools: {$include: parts/lists.yaml}\n",
            "agents/parts/lists.yaml": lists,
        },
    )
    large = "the document has more than 50000 values"
    assert problems[0] == f"agents/derived.yaml:2: agents/tables.yaml:1: {large}"
    assert problems[1:3] == [f"agents/lists.yaml:1: {large}", f"agents/tables.yaml:1: {large}"]
    assert problems[3].startswith("agents/with.yaml:2: agents/parts/lists.yaml:")
    assert problems[3].endswith(f"{large} or 64 levels with what it includes")


def test_an_untrusted_folder_includes_files_of_its_definitions_alone(tmp_path: Path) -> None:
    files = {
        "agents/a.yaml": "prompt: {$include: parts/p.md}\n",
        "agents/parts/p.md": "P",
        "agents/b.yaml": "prompt: {$include: ../notes.md}\n",
        "agents/c.yaml": "prompt: {$include: link.md}\n",
        "notes.md": "private",
        "contexts/d.yaml": "prompt: {$include: ../agents/parts/p.md}\n",
    }
    write_files(tmp_path, files)
    (tmp_path / "agents/link.md").symlink_to("../notes.md")
    folders = "is not inside of a folder of definitions such as agents/; `vaka trust` allows it"
    assert problems_of(tmp_path, files, trusted=False) == [
        f"agents/b.yaml:1: $include: '../notes.md' {folders}",
        f"agents/c.yaml:1: $include: 'link.md' {folders}",
    ]
    assert problems_of(tmp_path, files) == []


def test_a_definition_has_the_fields_of_what_it_extends(tmp_path: Path) -> None:
    write_files(
        tmp_path,
        {
            "agents/base.yaml": "prompt: Base.\ndescription: D\ngenerator: {model: m, temperature: 0, extra: {a: 1}}\n"
            "tools: [{name: Read, quit: true}]\ncontext_layers: [{$this: .prompt}]\n",
            "agents/middle.json": '{"extends": "agent:base", "generator": {"temperature": 1, "extra": {"b": 2}}}',
            "agents/last.yaml": "extends: middle\nname: end\nprompt: Last.\ndescription:\ntools: []\n",
            "agents/referring.yaml": "extends: {$ref: base}\ngenerator: {$ref: generator:small}\n",
            "models/large.yaml": "model: m\ntop_k: 3\n",
            "models/small.yaml": "extends: model:large\ntop_k: 1\n",
            "tools/script.yaml": "description: S\nlua: return 1\nparams: {a: {type: string}}\n",
            "tools/other.yaml": "extends: script\nscript: return 2\n",
            "tools/web.yaml": "type: http\nhttp: {endpoint: 'https://example.com', headers: {A: a}}\n",
            "tools/post.yaml": "extends: tool:web\nhttp: {method: POST, headers: {B: b}}\n",
            "agents/with.yaml": "prompt: P\ntools:\n- {extends: tool:script, name: near, quit: true}\n"
            "- {type: agent, name: ask, agent: {extends: base, name: inline}}\ngenerator: {extends: large}\n",
        },
    )
    base: ReactDefinition = definition_of(tmp_path, "agent", "base")
    generator = GeneratorDefinition(model="m", temperature=1, extra={"a": 1, "b": 2})
    middle: ReactDefinition = definition_of(tmp_path, "agent", "middle")
    assert (middle.name, middle.prompt, middle.tools) == ("middle", "Base.", base.tools)
    assert middle.generator.definition == generator
    last: ReactDefinition = definition_of(tmp_path, "agent", "end")
    assert (last.prompt, last.description, last.tools) == ("Last.", "", ())
    assert (last.generator, last.context_layers) == (middle.generator, base.context_layers)
    assert definition_of(tmp_path, "agent", "referring").generator.name == "small"
    assert definition_of(tmp_path, "generator", "small") == GeneratorDefinition(name="small", model="m", top_k=1)
    other: LuaToolDefinition = definition_of(tmp_path, "tool", "other")
    assert (other.script.text, other.description, other.params) == ("return 2", "S", {"a": {"type": "string"}})
    post: HttpToolDefinition = definition_of(tmp_path, "tool", "post")
    assert (post.method, post.endpoint, post.headers) == ("POST", "https://example.com", {"A": "a", "B": "b"})
    near, ask = definition_of(tmp_path, "agent", "with").tools
    assert (near.definition.name, near.definition.script.text, near.quit) == ("near", "return 1", True)
    assert ask.definition.agent.definition == msgspec.structs.replace(base, name="inline")
    assert definition_of(tmp_path, "agent", "with").generator.definition == GeneratorDefinition(model="m", top_k=3)
    alone = load_definition_file(tmp_path / "tools/other.yaml", "tool")
    assert (alone.problems, [one.value for one in alone]) == ((), [other])
    assert b"extends" not in encode_definition(other, "yaml")


def test_what_cannot_be_extended_is_an_error_with_its_line(tmp_path: Path) -> None:
    problems = problems_of(
        tmp_path,
        {
            "agents/a.yaml": "prompt: P\nextends: agent:b\n",
            "agents/b.yaml": "extends: c\nprompt: P\n",
            "agents/c.yaml": "prompt: P\n\nextends: {$ref: agent:a}\n",
            "agents/self.yaml": "prompt: P\nextends: self\n",
            "agents/near.yaml": "prompt: P\nextends: sefl\n",
            "agents/kind.yaml": "prompt: P\nextends: tool:t\n",
            "agents/number.yaml": "prompt: P\nextends: 3\n",
            "agents/wrong.yaml": "tools: 3\n",
            "agents/more.yaml": "description: more\n\nextends: wrong\n",
            "agents/broken.yaml": "[",
            "agents/derived.yaml": "description: D\nextends: broken\n",
            "agents/inner.yaml": "prompt: P\ntools:\n  - name: x\n    extends: y\n",
            "tools/t.yaml": "name: t\n",
            "rules/r.yaml": "patterns: [x]\nextends: other\n",
        },
    )
    wrong = "parse react agent: agent {}: tools: expected a list, got a whole number"
    broken = "agents/broken.yaml:2: not YAML: did not find expected node content"
    a = "agents/a.yaml:2: "
    b = "agents/b.yaml:1: "
    c = "agents/c.yaml:3: "
    assert problems == [
        f"{a}{b}{c}{a}extends: they extend each other: b → c → a → b",
        f"{b}{c}{a}{b}extends: they extend each other: c → a → b → c",
        broken,
        f"{c}{a}{b}{c}extends: they extend each other: a → b → c → a",
        f"agents/derived.yaml:2: extends: agent 'broken' cannot be used: {broken}",
        "agents/inner.yaml:4: extends: tool 'y' not found",
        "agents/kind.yaml:2: extends: expected the name of another agent, such as agent:NAME",
        f"agents/more.yaml:3: agents/wrong.yaml:1: {wrong.format('more')}",
        "agents/near.yaml:2: extends: agent 'sefl' not found; did you mean 'self'?",
        "agents/number.yaml:2: extends: expected the name of another agent, such as agent:NAME",
        "agents/self.yaml:2: agents/self.yaml:2: extends: they extend each other: self → self",
        f"agents/wrong.yaml:1: {wrong.format('wrong')}",
    ]


def test_a_file_of_another_program_with_extends_is_only_noted(tmp_path: Path) -> None:
    files = {"tools/tsconfig.json": '{"extends": "../tsconfig.json", "compilerOptions": {}}'}
    found = load_definitions(write_files(tmp_path, files))
    assert found.problems == ()
    assert without_folder(tmp_path, found.notes) == [
        "tools/tsconfig.json:1: does not define a tool: it has none of its keys"
    ]


def test_a_long_chain_of_definitions_that_extend_each_other_is_an_error(tmp_path: Path) -> None:
    files = {f"models/m{n}.yaml": f"model: m\nextends: m{n + 1}\n" for n in range(60)}
    problems = problems_of(tmp_path, {**files, "models/m60.yaml": "model: m\n"})
    assert "more than 32 extend each other" in problems[0]
    assert isinstance(load_definitions(tmp_path).generator("m60"), GeneratorDefinition)
