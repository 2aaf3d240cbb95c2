"""The tool definitions of a file or folder as Luau tools."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import yaml

from vaka.core.types.errors import ConfigError, InvalidInput
from vaka.genx.conversion.tool_scripts import CONVERTED_KINDS, TEXT_PARAMETERS, UnconvertedTool, convert_tool
from vaka.genx.definitions.context_layers import (
    ContextLayer,
    ContextLayerReference,
    EnvironmentLayer,
    FieldLayer,
    InlineLayer,
)
from vaka.genx.definitions.definition_set import Definition, DefinitionSet
from vaka.genx.definitions.folder import FOLDERS, load_definition_file, load_definitions
from vaka.genx.definitions.tools import (
    CompositeToolDefinition,
    GeneratorToolDefinition,
    TextProcessorDefinition,
    ToolDefinition,
    ToolSlot,
)
from vaka.genx.definitions.variables import find_variables, unescape_text


class ConvertedTool(NamedTuple):
    """A tool definition as plain data, and its script."""

    document: dict[str, Any]
    script: str


class Conversion(NamedTuple):
    """The converted tools of a file or folder, and why others were not converted."""

    tools: list[ConvertedTool]
    failures: list[str]


def convert_definitions(source: Path) -> Conversion:
    """Convert the tools of a file or folder. Raises ``ConfigError`` if it cannot be read."""
    definitions, chosen = _load(source)
    conversion = Conversion([], [])
    for definition in chosen:
        try:
            document = _tool_document(definition.value, definitions)
            conversion.tools.append(ConvertedTool(document, convert_tool(document, _short_origin(definition))))
        except UnconvertedTool as error:
            conversion.failures.append(f"{definition.origin}: {definition.name}: not converted: {error}")
    return conversion


def _load(source: Path) -> tuple[DefinitionSet, list[Definition]]:
    """Return the definitions that references may name, and those to convert. Raises ``ConfigError``."""
    if not source.exists():
        raise InvalidInput(f"{source} does not exist")
    if source.is_dir():
        definitions = found = load_definitions(source, is_known=lambda kind, name: True)
    else:
        found = load_definition_file(source, "tool")
        in_project = source.resolve().parent.name in FOLDERS
        folder = source.resolve().parent.parent
        definitions = load_definitions(folder, is_known=lambda kind, name: True) if in_project else found
    if found.problems:
        raise ConfigError("\n".join(found.problems))
    return definitions, [one for one in found.table("tool").values() if one.value.type in CONVERTED_KINDS]


def _tool_document(tool: ToolDefinition, definitions: DefinitionSet) -> dict[str, Any]:
    """Return a definition as plain data, with the definitions that it refers to in place of the references."""
    document: dict[str, Any] = {"type": tool.type, **msgspec.structs.asdict(tool)}
    if isinstance(tool, CompositeToolDefinition):
        document["steps"] = [
            {"id": step.id, "input_jq": step.input_jq, "tool": _step_tool(step.tool, definitions)}
            for step in tool.steps
        ]
    elif isinstance(tool, GeneratorToolDefinition | TextProcessorDefinition):
        layers = list(_layer_texts(tool, definitions)) if isinstance(tool, GeneratorToolDefinition) else []
        texts = [tool.prompt, tool.model, *(layer for layer in layers if isinstance(layer, str))]
        if names := [name for text in texts for name in find_variables(text)]:
            raise UnconvertedTool(f"a text has the variable {names[0]}; name it in a context layer with $env instead")
        document |= {"prompt": unescape_text(tool.prompt), "model": unescape_text(tool.model)}
        if isinstance(tool, GeneratorToolDefinition):
            document["context"] = [unescape_text(layer) if isinstance(layer, str) else layer for layer in layers]
    if document.get("auth") is not None:
        document["auth"] = msgspec.structs.asdict(document["auth"])
    return document


def _step_tool(slot: ToolSlot, definitions: DefinitionSet) -> dict[str, Any]:
    """Return the definition of a step's tool, or how a script calls a tool that stays as it is."""
    tool = slot.definition
    if slot.reference is not None:
        found = definitions.resolve(slot.reference)
        tool = found.value if found is not None else None
    if tool is not None and tool.type in CONVERTED_KINDS:
        return _tool_document(tool, definitions)
    if slot.reference is None:
        raise UnconvertedTool(f"the inline tool {slot.name!r} needs a file of its own, so that a script can call it")
    return {"type": "invoke", "name": slot.name}


def _layer_texts(tool: GeneratorToolDefinition, definitions: DefinitionSet) -> Iterator[Any]:
    """Yield the context layers as texts, and variables as ``{"env": name}``."""
    for layer in tool.context_layers:
        text = _layer_text(layer, tool, definitions)
        if text:
            yield text


def _layer_text(layer: ContextLayer, tool: GeneratorToolDefinition, definitions: DefinitionSet) -> Any:
    match layer:
        case InlineLayer():
            return layer.text
        case FieldLayer():
            fields = ("prompt", "name", "description", "model", "mode")
            return getattr(tool, layer.field) if layer.field in fields else ""
        case EnvironmentLayer():
            return {"env": layer.variable}
        case ContextLayerReference():
            found = definitions.resolve(layer.reference)
            if found is None:
                raise UnconvertedTool(f"the context {layer.reference.name!r} is not found")
            return found.value.prompt
        case _:
            return ""  # a generator tool has no memory


def write_tools(folder: Path, converted: Sequence[ConvertedTool]) -> list[Path]:
    """Write a script and the definition of its tool for each; return the files.

    Raises ``ConfigError`` if one of the files exists.
    """
    texts: dict[Path, str] = {}
    for tool in converted:
        file = re.sub(r"[^\w.-]", "_", tool.document["name"])
        document = {
            "type": "lua",
            "name": tool.document["name"],
            "description": tool.document["description"],
            "params": _parameters_of(tool.document),
            "lua_file": f"{file}.luau",
        }
        present = {key: value for key, value in document.items() if value}
        texts[folder / f"{file}.luau"] = tool.script
        texts[folder / f"{file}.yaml"] = yaml.safe_dump(present, sort_keys=False, allow_unicode=True)
    existing = [str(path) for path in texts if path.exists()]
    if existing:
        raise ConfigError(f"{', '.join(existing)}: exists already; choose another folder with --output")
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in texts.items():
        path.write_text(text, "utf-8")
    return [*texts]


def _parameters_of(document: dict[str, Any]) -> dict[str, Any] | None:
    """Return the JSON Schema of a tool's arguments; for a composite tool, the schema of its first step."""
    if document["type"] == "composite":
        return _parameters_of(document["steps"][0]["tool"])
    if document["type"] in TEXT_PARAMETERS:
        name = TEXT_PARAMETERS[document["type"]]
        return {"type": "object", "properties": {name: {"type": "string"}}, "required": [name]}
    return document.get("params")


def _short_origin(definition: Definition) -> str:
    """Return the file of a definition with its folder, and the line."""
    return f"{definition.path.parent.name}/{definition.path.name}:{definition.line}" if definition.path else ""
