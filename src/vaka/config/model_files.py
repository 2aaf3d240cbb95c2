"""Model files in the GenX format: the provider, key and options of each model name. Reading one makes no request.

::

    schema: openai/chat/v1
    type: generator
    api_key: $OPENAI_API_KEY
    base_url: https://api.example.com/v1
    models:
      - {name: small-chat, model: some-model, generate_params: {temperature: 0.5}}

A file may hold a key: errors, notes and ``repr`` never quote its values.
"""

import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, cast

import msgspec

from vaka.config.documents import parse_json, read_errors
from vaka.config.model_tables import EXPECTED_BASE_URL, RESERVED, Wire, is_base_url, is_loopback_url
from vaka.core.types.errors import ConfigError
from vaka.core.types.keywords import find_near_names

SUFFIXES = (".json", ".yaml", ".yml")
MAX_FILE_BYTES = 256 * 1024
MAX_VALUES = 20_000
"""Values a file may hold, with each alias expanded."""

_FACT_NAMES = ("support_json_output", "support_tool_calls", "support_text_only", "use_system_role")
_FILE_KEYS = frozenset(
    {
        "schema",
        "type",
        "kind",
        "api_key",
        "base_url",
        "models",
        "app_id",
        "token",
        "cluster",
        "model",
        "voices",
        "default_params",
        "desc",
        "resource_id",
    }
)
_ENTRY_KEYS = frozenset(
    {
        "name",
        "model",
        *_FACT_NAMES,
        "extra_fields",
        "generate_params",
        "invoke_params",
        "voice",
        "resource_id",
        "desc",
    }
)
_VARIABLE_REFERENCE = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})", re.ASCII)
_TYPE_NAMES: dict[type, str] = {
    str: "a text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    list: "a list",
    dict: "a table",
    type(None): "nothing",
}
_INTEGER_PARAMS = ("max_tokens", "top_k")
_FLOAT_PARAMS = ("temperature", "top_p", "frequency_penalty", "presence_penalty")
_OPTION_PARAMS = ("seed", "stop")
"""Parameters outside of the format that vaka knows as options: each wire encodes them differently."""


class ModelDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """A model under its name. ``repr`` hides the key."""

    name: str
    wire: Wire
    model: str
    key: str = ""
    base_url: str = ""
    """Empty for the provider's usual address."""
    facts: dict[str, Any] = {}
    """Capabilities that the file states: ``support_json_output``, ``support_tool_calls``, ``support_text_only`` and
    ``use_system_role``, each only when the file has it, and ``invoke_params``: the options for structured output."""
    options: dict[str, Any] = {}
    """Default model options; the options of a request take precedence."""
    origin: str = ""
    """The file, and the path of the entry in it."""

    def __repr__(self) -> str:
        return (
            f"ModelDefinition(name={self.name!r}, wire={self.wire!r}, model={self.model!r}, "
            f"key={'…' if self.key else ''!r}, origin={self.origin!r})"
        )


class ModelFile(msgspec.Struct, frozen=True, kw_only=True):
    path: Path
    models: tuple[ModelDefinition, ...] = ()
    notes: tuple[str, ...] = ()
    """The ignored entries, with the reasons."""


def read_model_files(
    paths: Iterable[str | Path], environ: Mapping[str, str]
) -> tuple[tuple[ModelDefinition, ...], tuple[str, ...]]:
    """Return the models that files and folders define, and notes on what was ignored. The first of a name counts.

    A file without its key, or for something other than a text model, is left out with a note. Raises ``ConfigError``
    with file and place for a file that cannot be read or is not valid.
    """
    models: dict[str, ModelDefinition] = {}
    notes: list[str] = []
    for path in _expand_paths(paths):
        file = read_model_file(path, environ)
        notes += file.notes
        for definition in file.models:
            first = models.setdefault(definition.name, definition)
            if first is not definition:
                notes.append(f"{definition.origin}: {definition.name!r} does not count: {first.origin} has it already")
    return tuple(models.values()), tuple(notes)


def read_model_file(path: Path, environ: Mapping[str, str]) -> ModelFile:
    """Return the models of one file. Raises ``ConfigError`` with file and place."""
    table = _require_table(_parse_file(path), f"{path}")
    wire, why = _wire_of(table, path)
    if wire is None:
        return ModelFile(path=path, notes=(f"{path}: left out: {why}",))
    base_url = _read_base_url(table, path, environ)
    key, why = _read_key(table, path, environ)
    if not key and not is_loopback_url(base_url):
        return ModelFile(path=path, notes=(f"{path}: left out: {why}",))
    entries = _require_list(table.get("models", []), f"{path}: models")
    notes = _unknown_key_notes(table, _FILE_KEYS, f"{path}")
    models: list[ModelDefinition] = []
    for number, value in enumerate(entries):
        place = f"{path}: models[{number}]"
        entry = _require_table(value, place)
        notes += _unknown_key_notes(entry, _ENTRY_KEYS, place)
        name = _required_text(entry, "name", place)
        if name.lower() in RESERVED:
            notes.append(f"{place}: left out: the name {name!r} is reserved; choose another")
            continue
        models.append(
            ModelDefinition(
                name=name,
                wire=wire,
                model=_required_text(entry, "model", place),
                key=key,
                base_url=base_url,
                facts=_read_facts(entry, place),
                options=_read_options(entry, place),
                origin=place,
            )
        )
    if not models:
        notes.append(f"{path}: defines no models")
    return ModelFile(path=path, models=tuple(models), notes=tuple(notes))


def _expand_paths(paths: Iterable[str | Path]) -> list[Path]:
    """Return the files; files of a folder come in the order of their paths."""
    files: list[Path] = []
    for path in map(Path, paths):
        if path.is_dir():
            inside = [Path(folder) / name for folder, _, names in os.walk(path) for name in names]
            files += sorted(file for file in inside if file.suffix.lower() in SUFFIXES)
        elif not path.exists():
            raise ConfigError(f"{path}: there is no such file or folder")
        elif path.suffix.lower() not in SUFFIXES:
            raise ConfigError(f"{path}: expected a file that ends in {', '.join(SUFFIXES)}")
        else:
            files.append(path)
    return list(dict.fromkeys(files))


def _wire_of(table: dict[str, Any], path: Path) -> tuple[Wire | None, str]:
    """Return the wire of a file, or why no wire fits."""
    schema = _optional_text(table, "schema", f"{path}")
    kind = _optional_text(table, "kind", f"{path}")
    if not schema and not kind:
        return None, "it has neither a schema nor a kind"
    if schema:
        type = _optional_text(table, "type", f"{path}") or "generator"
        if type != "generator":
            return None, f"its type {type!r} is not a text model; expected 'generator'"
        provider, _, subject = schema.lower().partition("/")
        subject = subject.partition("/")[0]
        wires: dict[str, Wire] = {"openai/chat": "chat", "openai/responses": "responses"}
        vendors: dict[str, Wire] = {"anthropic": "anthropic", "gemini": "gemini", "google": "gemini"}
        wire = wires.get(f"{provider}/{subject}") or (vendors.get(provider) if subject else None)
        return wire, f"schema {schema!r} is not known; expected one such as 'openai/chat/v1'"
    kinds: dict[str, Wire] = {"openai": "chat", "gemini": "gemini"}
    return kinds.get(kind.lower()), f"kind {kind!r} is not known; expected 'openai' or 'gemini'"


def _read_key(table: dict[str, Any], path: Path, environ: Mapping[str, str]) -> tuple[str, str]:
    """Return the key, or why there is none."""
    text = _optional_text(table, "api_key", f"{path}").strip()
    if not text.startswith("$"):
        return text, "it has no api_key"
    name = _variable_name(text, f"{path}: api_key")
    return environ.get(name, "").strip(), f"the variable {name} of its api_key is not set"


def _read_base_url(table: dict[str, Any], path: Path, environ: Mapping[str, str]) -> str:
    url = _optional_text(table, "base_url", f"{path}").strip()
    if url.startswith("$"):
        url = environ.get(_variable_name(url, f"{path}: base_url"), "").strip()
    if url and not is_base_url(url):
        raise ConfigError(f"{path}: base_url: {EXPECTED_BASE_URL}")
    return url


def _variable_name(reference: str, place: str) -> str:
    match = _VARIABLE_REFERENCE.fullmatch(reference)
    if match is None:
        raise ConfigError(f"{place}: expected the name of one variable, as $NAME or ${{NAME}}, or the value itself")
    return match[1] or match[2]


def _read_facts(entry: dict[str, Any], place: str) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    for name in _FACT_NAMES:
        value = entry.get(name)
        if value is None:
            continue
        if not isinstance(value, bool):
            raise _type_error(value, "true or false", f"{place}.{name}")
        facts[name] = value
    invoke = _read_params(entry, "invoke_params", place)
    return facts | ({"invoke_params": invoke} if invoke else {})


def _read_options(entry: dict[str, Any], place: str) -> dict[str, Any]:
    options = _read_params(entry, "generate_params", place)
    fields = _require_table(entry.get("extra_fields") or {}, f"{place}.extra_fields")
    if fields:
        options["extra"] = {**options.get("extra", {}), **_check_json_value(fields, f"{place}.extra_fields")}
    return options


def _read_params(entry: dict[str, Any], name: str, place: str) -> dict[str, Any]:
    """Return parameters as model options; an integer of zero means not set in this format."""
    place = f"{place}.{name}"
    options: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    for word, value in _require_table(entry.get(name) or {}, place).items():
        if value is None or (word == "n" and value == 1) or (word in _INTEGER_PARAMS and value == 0):
            continue
        if word in _INTEGER_PARAMS:
            options[word] = _check_number(value, f"{place}.{word}", whole=True)
        elif word in _FLOAT_PARAMS:
            options[word] = _check_number(value, f"{place}.{word}", whole=False)
        elif word in _OPTION_PARAMS:
            options[word] = _check_json_value(value, f"{place}.{word}")
        else:
            extra[word] = value
    return options | ({"extra": _check_json_value(extra, place)} if extra else {})


def _check_number(value: object, place: str, *, whole: bool) -> int | float:
    is_number = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
    if not is_number or not math.isfinite(cast("float", value)) or (whole and cast("int", value) < 1):
        raise _type_error(value, "a whole number above zero" if whole else "a number", place)
    return cast("int | float", value)


def _check_json_value(value: Any, place: str) -> Any:
    """Return ``value`` if JSON can express it: YAML has dates, bytes and keys that are not texts."""
    items: list[Any] = value
    if isinstance(value, dict):
        for name, inner in _require_table(value, place).items():
            _check_json_value(inner, f"{place}.{name}")
    elif isinstance(value, list):
        for number, inner in enumerate(items):
            _check_json_value(inner, f"{place}[{number}]")
    elif isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{place}: expected a finite number, got {value}")
    elif not isinstance(value, str | bool | int | float | None):
        raise _type_error(value, "a JSON value", place)
    return items


def _required_text(entry: dict[str, Any], name: str, place: str) -> str:
    text = _optional_text(entry, name, place).strip()
    if not text:
        raise ConfigError(f"{place}: {name} is missing")
    return text


def _optional_text(table: dict[str, Any], name: str, place: str) -> str:
    value = table.get(name)
    if value is not None and not isinstance(value, str):
        raise _type_error(value, "a text", f"{place}: {name}")
    return value or ""


def _require_list(value: Any, place: str) -> list[Any]:
    items: list[Any] = value or []
    if value is not None and not isinstance(value, list):
        raise _type_error(value, "a list", place)
    return items


def _require_table(value: Any, place: str) -> dict[str, Any]:
    table: dict[str, Any] = value
    if not isinstance(value, dict):
        raise _type_error(value, "a table", place)
    for name in table:
        if not isinstance(cast("object", name), str):
            raise _type_error(name, "a text as name", place)
    return table


def _type_error(value: object, expected: str, place: str) -> ConfigError:
    """Return the error with only the type of the value, which may be a misplaced secret."""
    kind = next((word for known, word in _TYPE_NAMES.items() if type(value) is known), f"a {type(value).__name__}")
    return ConfigError(f"{place}: expected {expected}, got {kind}")


def _unknown_key_notes(table: dict[str, Any], known: frozenset[str], place: str) -> list[str]:
    notes: list[str] = []
    for name in table:
        if name not in known:
            near = find_near_names(name, known, n=1)
            notes.append(f"{place}: {name!r} is not a known key{f'; did you mean {near[0]!r}?' if near else ''}")
    return notes


def _parse_file(path: Path) -> Any:
    with read_errors(path):
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise ConfigError(f"{path}: larger than the {MAX_FILE_BYTES} bytes a model file may have")
        text = data.decode("utf-8-sig")
    if path.suffix.lower() == ".json":
        return parse_json(text, str(path))
    try:
        return _parse_yaml(path, text)
    except RecursionError:
        raise ConfigError(f"{path}: nested too deep") from None


def _parse_yaml(path: Path, text: str) -> Any:
    import yaml  # noqa: PLC0415  # takes 30 ms, and most commands read no YAML

    # Not the loader in C: deep nesting overflows its stack and kills the process.
    try:
        loader = yaml.SafeLoader(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return None
            _check_yaml_nodes(node, path)
            construct: Callable[[Any], Any] = cast("Any", loader).construct_document
            return construct(node)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        # The message may quote a piece of a key.
        words = re.sub(r"'[^']{2,}'", "…", error.problem or "it cannot be read")
        raise ConfigError(f"{path}:{line}: not YAML: {words}") from None
    except yaml.YAMLError:
        raise ConfigError(f"{path}: not YAML: it has a character that YAML does not allow") from None
    except (ValueError, OverflowError):
        raise ConfigError(f"{path}: not YAML: it has an invalid number or date") from None


def _check_yaml_nodes(root: Any, path: Path) -> None:
    """Refuse duplicate names, recursive aliases, and aliases that expand a small file to a huge value."""
    sizes: dict[int, int | None] = {}

    def size_of(node: Any) -> int:
        if id(node) in sizes:
            known = sizes[id(node)]
            if known is None:
                raise ConfigError(f"{path}:{node.start_mark.line + 1}: an alias refers to a value that contains it")
            return known
        sizes[id(node)] = None
        items: list[Any] = node.value
        total, names = 1, set[str]()
        for item in items if isinstance(node.value, list) else ():
            value: object = item
            pair: tuple[Any, ...] = item if isinstance(value, tuple) else (item,)
            if len(pair) == 2:
                _reject_duplicate(pair[0], names, path)
            total += sum([size_of(inner) for inner in pair])
        if total > MAX_VALUES:
            raise ConfigError(f"{path}: has more than the {MAX_VALUES} values a model file may have")
        sizes[id(node)] = total
        return total

    size_of(root)


def _reject_duplicate(node: Any, names: set[str], path: Path) -> None:
    name = node.value
    if isinstance(name, str) and name != "<<":
        if name in names:
            raise ConfigError(f"{path}:{node.start_mark.line + 1}: {name!r} appears twice")
        names.add(name)
