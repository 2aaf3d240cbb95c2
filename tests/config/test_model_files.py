"""Model files in the GenX format become definitions, notes, or an error with the place and no secret."""

import json
from pathlib import Path
from typing import Any

import pytest

from vaka.config.model_files import MAX_FILE_BYTES, ModelDefinition, ModelFile, read_model_file, read_model_files
from vaka.config.model_tables import EXPECTED_BASE_URL
from vaka.core.types.errors import ConfigError

ENVIRON = {"CHAT_KEY": "sesame-open-up", "EMPTY": ""}
SECRET = "sesame-open-up"


def write_file(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return path


def write_model_file(folder: Path, **changes: Any) -> Path:
    """Write a file with one model and ``changes``."""
    table = {
        "schema": "openai/chat/v1",
        "type": "generator",
        "api_key": SECRET,
        "models": [{"name": "a", "model": "m"}],
    }
    return write_file(folder, "models.json", json.dumps(table | changes))


def read_entry(folder: Path, **changes: Any) -> ModelDefinition:
    """Return the one model of a file, with ``changes`` in its entry."""
    path = write_model_file(folder, models=[{"name": "a", "model": "m"} | changes])
    (definition,) = read_model_file(path, ENVIRON).models
    return definition


def config_error(path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        read_model_files([path], ENVIRON)
    assert SECRET not in str(caught.value)
    return str(caught.value).replace(str(path), path.name)


def read_notes(path: Path) -> list[str]:
    definitions, notes = read_model_files([path], ENVIRON)
    assert definitions == ()
    return [note.replace(str(path), path.name) for note in notes]


def test_a_whole_file_becomes_definitions(tmp_path: Path) -> None:
    path = write_file(
        tmp_path,
        "openai.yaml",
        """
        schema: openai/chat/v1
        type: generator
        api_key: $CHAT_KEY
        base_url: https://api.example.com/v1
        models:
          - name: qwen/turbo
            model: turbo-1
            support_json_output: true
            support_tool_calls: false
            use_system_role: true
            generate_params: {max_tokens: 400, temperature: 0, top_p: 0.9, top_k: 0, n: 1, enable_search: true}
            invoke_params: {temperature: 0.1}
            extra_fields: {thinking: {type: disabled}}
          - {name: plain, model: turbo-2}
        """,
    )
    assert read_model_file(path, ENVIRON) == ModelFile(
        path=path,
        models=(
            ModelDefinition(
                name="qwen/turbo",
                wire="chat",
                model="turbo-1",
                key=SECRET,
                base_url="https://api.example.com/v1",
                facts={
                    "support_json_output": True,
                    "support_tool_calls": False,
                    "use_system_role": True,
                    "invoke_params": {"temperature": 0.1},
                },
                options={
                    "max_tokens": 400,
                    "temperature": 0,
                    "top_p": 0.9,
                    "extra": {"enable_search": True, "thinking": {"type": "disabled"}},
                },
                origin=f"{path}: models[0]",
            ),
            ModelDefinition(
                name="plain",
                wire="chat",
                model="turbo-2",
                key=SECRET,
                base_url="https://api.example.com/v1",
                origin=f"{path}: models[1]",
            ),
        ),
    )


@pytest.mark.parametrize(
    ("fields", "wire"),
    [
        ({"schema": "openai/chat/v1"}, "chat"),
        ({"schema": "OpenAI/Chat/v1"}, "chat"),
        ({"schema": "openai/responses/v1"}, "responses"),
        ({"schema": "anthropic/messages/v1"}, "anthropic"),
        ({"schema": "gemini/generate/v1"}, "gemini"),
        ({"schema": "google/generate/v1beta"}, "gemini"),
        ({"schema": None, "type": None, "kind": "openai"}, "chat"),
        ({"schema": "", "type": None, "kind": "Gemini"}, "gemini"),
        ({"type": None}, "chat"),
    ],
)
def test_a_schema_or_an_old_kind_names_the_wire(fields: dict[str, Any], wire: str, tmp_path: Path) -> None:
    (definition,), notes = read_model_files([write_model_file(tmp_path, **fields)], {})
    assert (definition.wire, notes) == (wire, ())


@pytest.mark.parametrize(
    ("fields", "note"),
    [
        ({"schema": "doubao/chat/v1"}, "schema 'doubao/chat/v1' is not known; expected one such as 'openai/chat/v1'"),
        (
            {"schema": "openai/images/v1"},
            "schema 'openai/images/v1' is not known; expected one such as 'openai/chat/v1'",
        ),
        ({"schema": "gemini"}, "schema 'gemini' is not known; expected one such as 'openai/chat/v1'"),
        ({"schema": None, "kind": "creds"}, "kind 'creds' is not known; expected 'openai' or 'gemini'"),
        ({"schema": None}, "it has neither a schema nor a kind"),
        ({"schema": "minimax/speech/v1", "type": "tts"}, "its type 'tts' is not a text model; expected 'generator'"),
        ({"api_key": None}, "it has no api_key"),
        ({"api_key": "  "}, "it has no api_key"),
        ({"api_key": "$OTHER_KEY"}, "the variable OTHER_KEY of its api_key is not set"),
        ({"api_key": "${EMPTY}"}, "the variable EMPTY of its api_key is not set"),
    ],
)
def test_an_unusable_file_is_left_out_with_a_note(fields: dict[str, Any], note: str, tmp_path: Path) -> None:
    assert read_notes(write_model_file(tmp_path, **fields)) == [f"models.json: left out: {note}"]


@pytest.mark.parametrize("text", ["$CHAT_KEY", "${CHAT_KEY}", f" {SECRET}\n"])
def test_a_key_is_a_variable_or_itself(text: str, tmp_path: Path) -> None:
    (definition,), _ = read_model_files([write_model_file(tmp_path, api_key=text)], ENVIRON)
    assert definition.key == SECRET


def test_only_a_leading_dollar_is_a_reference(tmp_path: Path) -> None:
    (definition,), _ = read_model_files([write_model_file(tmp_path, api_key="x-$CHAT_KEY")], ENVIRON)
    assert definition.key == "x-$CHAT_KEY"


def test_a_key_is_not_shown(tmp_path: Path) -> None:
    read = read_model_file(write_model_file(tmp_path), ENVIRON)
    assert read.models[0].key == SECRET
    assert SECRET not in repr(read)
    assert SECRET not in str(read.models)


@pytest.mark.parametrize("address", ["http://127.0.0.1:8080/v1", "http://localhost/v1", "http://[::1]:80/"])
def test_a_server_on_this_machine_needs_no_key(address: str, tmp_path: Path) -> None:
    path = write_model_file(tmp_path, api_key="$OTHER_KEY", base_url=address)
    (definition,), notes = read_model_files([path], ENVIRON)
    assert (definition.key, definition.base_url, notes) == ("", address, ())


def test_an_address_can_be_in_a_variable_and_falls_back_to_the_usual_one(tmp_path: Path) -> None:
    path = write_model_file(tmp_path, base_url="$ADDRESS")
    (named,), _ = read_model_files([path], {"ADDRESS": "https://api.example.com/v1"})
    (usual,), _ = read_model_files([path], {})
    assert (named.base_url, usual.base_url) == ("https://api.example.com/v1", "")


def test_keys_of_other_kinds_of_file_are_accepted(tmp_path: Path) -> None:
    path = write_model_file(tmp_path, app_id="$APP", token="t", cluster="c", voices=[], default_params={"speed": 1})
    (definition,), notes = read_model_files([path], ENVIRON)
    assert (definition.name, notes) == ("a", ())


def test_an_unknown_key_is_noted_with_the_nearest_one(tmp_path: Path) -> None:
    path = write_model_file(
        tmp_path, base_ulr="x", models=[{"name": "a", "model": "m", "use_systemrole": True, "zzz": 1}]
    )
    definitions, notes = read_model_files([path], ENVIRON)
    assert [definition.facts for definition in definitions] == [{}]
    assert notes == (
        f"{path}: 'base_ulr' is not a known key; did you mean 'base_url'?",
        f"{path}: models[0]: 'use_systemrole' is not a known key; did you mean 'use_system_role'?",
        f"{path}: models[0]: 'zzz' is not a known key",
    )


@pytest.mark.parametrize("models", [[], None])
def test_a_file_without_models_is_an_error(models: Any, tmp_path: Path) -> None:
    assert read_notes(write_model_file(tmp_path, models=models)) == ["models.json: defines no models"]


def test_folders_are_read_in_order_and_the_first_of_a_name_counts(tmp_path: Path) -> None:
    text = "{kind: openai, api_key: k, models: [{name: %s, model: %s}]}"
    first = write_file(tmp_path, "a.yml", text % ("x", "one"))
    again = write_file(tmp_path, "deep/er/b.YAML", text % ("x", "two"))
    other = write_file(
        tmp_path, "deep/c.json", json.dumps({"kind": "gemini", "api_key": "k", "models": [{"name": "y", "model": "g"}]})
    )
    write_file(tmp_path, "notes.txt", "{")
    definitions, notes = read_model_files([tmp_path, str(other), first], {})
    assert [(one.name, one.model, one.wire) for one in definitions] == [("x", "one", "chat"), ("y", "g", "gemini")]
    assert notes == (f"{again}: models[0]: 'x' does not count: {first}: models[0] has it already",)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"name": None}, "models[0]: name is missing"),
        ({"model": " "}, "models[0]: model is missing"),
        ({"model": 4}, "models[0]: model: expected a text, got a whole number"),
        ({"support_tool_calls": "yes"}, "models[0].support_tool_calls: expected true or false, got a text"),
        ({"generate_params": []}, None),
        ({"generate_params": [1]}, "models[0].generate_params: expected a table, got a list"),
        (
            {"generate_params": {"temperature": "hot"}},
            "models[0].generate_params.temperature: expected a number, got a text",
        ),
        (
            {"generate_params": {"temperature": True}},
            "models[0].generate_params.temperature: expected a number, got true or false",
        ),
        (
            {"invoke_params": {"max_tokens": -1}},
            "models[0].invoke_params.max_tokens: expected a whole number above zero, got a whole number",
        ),
        (
            {"invoke_params": {"top_k": 2.5}},
            "models[0].invoke_params.top_k: expected a whole number above zero, got a number",
        ),
        ({"extra_fields": "x"}, "models[0].extra_fields: expected a table, got a text"),
        ({"extra_fields": {"a": [1, {"b": float("inf")}]}}, "not JSON: Infinity is not a number"),
    ],
)
def test_an_invalid_entry_is_an_error_with_its_place(
    changes: dict[str, Any], expected: str | None, tmp_path: Path
) -> None:
    path = write_model_file(tmp_path, models=[{"name": "a", "model": "m"} | changes])
    if expected is None:
        assert read_model_file(path, {}).models[0].options == {}
    else:
        assert config_error(path) == f"models.json: {expected}"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"schema": 1}, "schema: expected a text, got a whole number"),
        ({"api_key": ["sesame-open-up"]}, "api_key: expected a text, got a list"),
        (
            {"api_key": "${sesame-open-up"},
            "api_key: expected the name of one variable, as $NAME or ${NAME}, or the value itself",
        ),
        ({"base_url": "sesame-open-up"}, f"base_url: {EXPECTED_BASE_URL}"),
        ({"base_url": "http://[bad"}, f"base_url: {EXPECTED_BASE_URL}"),
        ({"base_url": "https://h/v1?key=sesame"}, f"base_url: {EXPECTED_BASE_URL}"),
        ({"base_url": "ftp://x"}, f"base_url: {EXPECTED_BASE_URL}"),
        ({"models": {"name": "a"}}, "models: expected a list, got a table"),
        ({"models": ["a"]}, "models[0]: expected a table, got a text"),
    ],
)
def test_an_invalid_file_is_an_error_with_its_place(changes: dict[str, Any], expected: str, tmp_path: Path) -> None:
    assert config_error(write_model_file(tmp_path, **changes)) == f"models.json: {expected}"


YAML = "kind: openai\napi_key: sesame-open-up\n"
BOMB = "".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]\n" for n in range(1, 10))
MERGES = "".join(f"l{n}: &l{n} {{<<: [{', '.join([f'*l{n - 1}'] * 9)}]}}\n" for n in range(1, 10))


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        (
            "m.json",
            '{"api_key": "sesame-open-up",\n nope}',
            "m.json:2: not JSON: Expecting property name enclosed in double quotes (column 2)",
        ),
        ("m.json", '{"a": 1, "a": 2}', "m.json:1: 'a' appears twice"),
        ("m.json", "[" * 100_000, "m.json: not JSON: nested too deep, or a number has too many digits"),
        ("m.json", "[1" + "0" * 5000 + "]", "m.json: not JSON: nested too deep, or a number has too many digits"),
        ("m.json", "[]", "m.json: expected a table, got a list"),
        ("m.yaml", "", "m.yaml: expected a table, got nothing"),
        ("m.yaml", YAML + "models: [", "m.yaml:3: not YAML: expected the node content, but found …"),
        ("m.yaml", "kind: openai\napi_key: *sesame-open-up\n", "m.yaml:2: not YAML: found undefined alias …"),
        (
            "m.yaml",
            "kind: openai\napi_key: !!python/name:sesame-open-up x\n",
            "m.yaml:2: not YAML: could not determine a constructor for the tag …",
        ),
        ("m.yaml", YAML + "kind: gemini\n", "m.yaml:3: 'kind' appears twice"),
        ("m.yaml", YAML + "---\n" + YAML, "m.yaml:3: not YAML: but found another document"),
        ("m.yaml", YAML + "models: \x07", "m.yaml: not YAML: it has a character that YAML does not allow"),
        ("m.yaml", YAML + "models: 2026-99-99", "m.yaml: not YAML: it has an invalid number or date"),
        ("m.yaml", "[" * 100_000, "m.yaml: nested too deep"),
        ("m.yaml", "1: x", "m.yaml: expected a text as name, got a whole number"),
        (
            "m.yaml",
            YAML + "models: [{name: a, model: m, extra_fields: {when: 2026-01-01}}]",
            "m.yaml: models[0].extra_fields.when: expected a JSON value, got a date",
        ),
        (
            "m.yaml",
            YAML + "models: [{name: a, model: m, extra_fields: {a: {2: x}}}]",
            "m.yaml: models[0].extra_fields.a: expected a text as name, got a whole number",
        ),
        (
            "m.yaml",
            YAML + "models: [{name: a, model: m, extra_fields: {a: [1, {b: .inf}]}}]",
            "m.yaml: models[0].extra_fields.a[1].b: expected a finite number, got inf",
        ),
        ("m.yaml", "a: &a [*a]", "m.yaml:1: an alias refers to a value that contains it"),
        ("m.yaml", "l0: &l0 [x]\n" + BOMB, "m.yaml: has more than the 20000 values a model file may have"),
        ("m.yaml", "l0: &l0 {x: y}\n" + MERGES, "m.yaml: has more than the 20000 values a model file may have"),
        ("m.toml", "", "m.toml: expected a file that ends in .json, .yaml, .yml"),
    ],
)
def test_a_file_that_does_not_parse_is_an_error_with_its_line(
    name: str, text: str, expected: str, tmp_path: Path
) -> None:
    assert config_error(write_file(tmp_path, name, text)) == expected


def test_aliases_and_merges_are_fine(tmp_path: Path) -> None:
    path = write_file(
        tmp_path,
        "m.yaml",
        "kind: openai\napi_key: k\nmodels:\n"
        "  - &base {name: a, model: m, generate_params: &params {temperature: 0.5}}\n"
        "  - {<<: *base, name: b, invoke_params: *params}\n",
    )
    first, second = read_model_file(path, {}).models
    assert first.options == second.options == second.facts["invoke_params"] == {"temperature": 0.5}


def test_a_missing_binary_or_large_file_is_an_error(tmp_path: Path) -> None:
    assert config_error(tmp_path / "none.json") == "none.json: there is no such file or folder"
    binary = tmp_path / "b.json"
    binary.write_bytes(b'{"a": "\xff"}')
    assert config_error(binary) == "b.json: not UTF-8: invalid start byte at byte 7"
    large = write_file(tmp_path, "l.yaml", "x" * (MAX_FILE_BYTES + 1))
    assert config_error(large) == f"l.yaml: larger than the {MAX_FILE_BYTES} bytes a model file may have"


def test_unknown_parameters_are_passed_on_and_extra_fields_win(tmp_path: Path) -> None:
    definition = read_entry(tmp_path, generate_params={"n": 2, "a": 1, "top_p": None}, extra_fields={"a": 3})
    assert definition.options == {"extra": {"n": 2, "a": 3}}


def test_a_seed_and_stop_texts_become_options(tmp_path: Path) -> None:
    definition = read_entry(tmp_path, generate_params={"seed": 4, "stop": ["END"]}, invoke_params={"stop": "."})
    assert definition.options == {"seed": 4, "stop": ["END"]}
    assert definition.facts["invoke_params"] == {"stop": "."}


@pytest.mark.parametrize("name", ["local", "low", "Sonnet", "default"])
def test_a_reserved_name_is_left_out_with_a_note(name: str, tmp_path: Path) -> None:
    path = write_model_file(tmp_path, models=[{"name": name, "model": "m"}, {"name": "mine", "model": "m"}])
    found = read_model_file(path, {})
    assert [definition.name for definition in found.models] == ["mine"]
    assert f"models[0]: left out: the name {name!r} is reserved; choose another" in found.notes[0]
