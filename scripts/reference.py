"""Write the pages of docs/reference that are made from docstrings and marks: ``python -m scripts.reference``."""

import ast
import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

import vaka
import vaka.memory as vaka_memory
import vaka.threads as vaka_threads
from vaka.config.setting_keys import SETTING_GROUPS, SettingKey, settings_of
from vaka.core.ports.sandbox import ResourceLimits
from vaka.core.types import context, control, monitor, progress
from vaka.core.types.body import BODY_TYPES
from vaka.core.types.event import Body
from vaka.core.types.limits import Limits
from vaka.genx.definitions.json_schema import definition_schema
from vaka.project.claude_keys import CLAUDE_KEYS, EXPECTED_VALUES

REFERENCE = Path(__file__).parents[1] / "docs" / "reference"
DEFINITIONS_HEAD = Path(__file__).with_name("definitions_head.md")
MODULES = (progress, control, context, monitor)
LISTED_FACES = (
    "vaka.errors",
    "vaka.content",
    "vaka.events",
    "vaka.models",
    "vaka.tools",
    "vaka.middleware",
    "vaka.luau",
    "vaka.policy",
    "vaka.files",
    "vaka.net",
    "vaka.sandbox",
    "vaka.transformers",
    "vaka.testing",
    "vaka.agentsdk",
    "vaka.genx",
    "vaka.lumos",
)
"""The modules whose names have one line each."""
CHANNELS = {
    "progress": "the course of a turn",
    "control": "inputs, decisions, and changes of a session",
    "monitor": "usage, failures and logs for operators",
}


def first_paragraph_of(text: str | None) -> str:
    """Return the first paragraph of a docstring as one line."""
    return " ".join((text or "").strip().split("\n\n")[0].split())


def signature_of(value: Any) -> str:
    """Return how something is called."""
    try:
        shown = inspect.signature(value)
    except (TypeError, ValueError):
        return ""
    parameters = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in shown.parameters.values()]
    return str(inspect.Signature(parameters))


def list_members(value: type[Any]) -> Iterator[str]:
    """Yield a line for each public method and property."""
    for name, member in sorted(vars(value).items()):
        target = member.fget if isinstance(member, property) else member
        if name.startswith("_") or not inspect.isfunction(target):
            continue
        shown = (
            "" if isinstance(member, property) else signature_of(target).replace("(self, ", "(").replace("(self)", "()")
        )
        yield f"- `{name}{shown}`: {first_paragraph_of(target.__doc__)}"


def class_node(value: type[Any]) -> ast.ClassDef:
    """Return the syntax tree of a class."""
    tree = ast.parse(Path(inspect.getsourcefile(value) or "").read_text("utf-8"))
    return next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == value.__name__)


def cell(text: str) -> str:
    """Return text that stands in a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")


def code_cell(node: ast.expr | None) -> str:
    """Return an annotation or a default as code, without the quotes of a forward reference."""
    if node is None:
        return ""
    text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ast.unparse(node)
    return f"`{cell(text)}`" if text else '`""`'


def default_cell(node: ast.expr | None) -> str:
    """Return a default as code; nothing for a required argument, or one whose default is private."""
    return "" if node is None or ast.unparse(node).startswith("_") else f"`{cell(ast.unparse(node))}`"


def list_fields(value: type[Any]) -> Iterator[str]:
    """Yield a row for each field of a class: its name, type, default and docstring."""
    settings = settings_by_field(value)
    for name, node, text in fields_of(value):
        shown = code_cell(type_of(node.annotation)), default_cell(node.value), cell(text + settings.get(name, ""))
        yield f"| `{name}` | {' | '.join(shown)} |"


def fields_of(value: type[Any]) -> Iterator[tuple[str, ast.AnnAssign, str]]:
    """Yield the name, the definition and the docstring of each public field of a class."""
    body = class_node(value).body
    for node, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and not node.target.id.startswith("_"):
            text = after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else ""
            yield node.target.id, node, str(text)


def type_of(annotation: ast.expr) -> ast.expr:
    """Return the type in an annotation, without its marks."""
    if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) == "Annotated":
        assert isinstance(annotation.slice, ast.Tuple)
        return annotation.slice.elts[0]
    return annotation


def settings_by_field(value: type[Any]) -> dict[str, str]:
    """Return, for each field of a class that is a setting, its flag, its key and its variable."""
    found: dict[str, str] = {}
    for key in settings_of(value) if value in SETTING_GROUPS else ():
        flag = f"flag `{key.flag.name}`, " if key.flag is not None else ""
        found[key.field] = f" ({flag}setting `{key.name}`, variable `{key.variable}`)"
    return found


def list_arguments(value: type[Any]) -> Iterator[str]:
    """Yield a row for each argument of a constructor: its name, type, default and text in the docstring."""
    init = next((n for n in class_node(value).body if isinstance(n, ast.FunctionDef) and n.name == "__init__"), None)
    if init is None:
        return
    texts = argument_texts(ast.get_docstring(init) or "")
    required = len(init.args.args) - len(init.args.defaults)
    defaults: list[ast.expr | None] = [*[None] * required, *init.args.defaults]
    pairs = [
        *zip(init.args.args, defaults, strict=True),
        *zip(init.args.kwonlyargs, init.args.kw_defaults, strict=True),
    ]
    for argument, default in pairs:
        if argument.arg != "self":
            shown = code_cell(argument.annotation), default_cell(default), cell(texts.get(argument.arg, ""))
            yield f"| `{argument.arg}` | {' | '.join(shown)} |"


def argument_texts(docstring: str) -> dict[str, str]:
    """Return the texts of the ``Args:`` section of a docstring."""
    section = docstring.partition("Args:\n")[2].partition("\n\n")[0]
    found = re.findall(r"^    (\w+): (.*(?:\n        .*)*)", section, re.MULTILINE)
    return dict(found)


def table_of(kind: str, rows: list[str]) -> list[str]:
    """Return rows as a table with a heading, nothing without rows."""
    return [f"| {kind} | type | default | |", "|---|---|---|---|", *rows, ""] if rows else []


def class_lines(value: type[Any]) -> list[str]:
    """Return the fields, arguments, methods and properties of a class."""
    if issubclass(value, msgspec.Struct) or getattr(value, "_is_protocol", False):
        lines = table_of("field", list(list_fields(value)))
    else:
        lines = table_of("argument", list(list_arguments(value))) if value in (vaka.Agent, vaka.Runtime) else []
    listed = list(list_members(value))
    return [*lines, *([*listed, ""] if listed else [])]


def name_lines(face: str, name: str, value: Any) -> list[str]:
    """Return the section of one name."""
    lines = [f"## `{face}.{name}`", "", first_paragraph_of(value.__doc__), ""]
    return [*lines, *(class_lines(value) if inspect.isclass(value) else [f"`{name}{signature_of(value)}`", ""])]


def list_lines(face: ModuleType) -> list[str]:
    """Return the section of a module, with one line for each of its names."""
    lines = [f"## `{face.__name__}`", "", first_paragraph_of(face.__doc__), ""]
    for name in getattr(face, "__all__", dir(face)):
        value = getattr(face, name)
        if name.startswith("_") or isinstance(value, ModuleType):
            continue
        has_docstring = callable(value) and str(getattr(value, "__module__", "")).startswith("vaka")
        lines.append(f"- `{name}`: {first_paragraph_of(value.__doc__)}" if has_docstring else f"- `{name}`")
    return [*lines, ""]


def python_page() -> str:
    """Return the page of the public names."""
    lines = ["# The Python names", "", "Made from the docstrings by `python -m scripts.reference`.", ""]
    for face in (vaka, vaka_memory, vaka_threads):
        names = [name for name in face.__all__ if not name.startswith("_")]
        lines += chain.from_iterable(name_lines(face.__name__, name, getattr(face, name)) for name in names)
    lines += chain.from_iterable(list_lines(importlib.import_module(face)) for face in LISTED_FACES)
    return "\n".join(lines).rstrip() + "\n"


def events_page() -> str:
    """Return the page of the events."""
    lines = ["# The events", "", "Made from the docstrings by `python -m scripts.reference`.", ""]
    lines += [
        "Every event travels in the same envelope: `v`, `seq`, `id`, `ts`, `session`, `turn`, `step`, `path`,",
        "`channel`, `type`, `data`, `prev`. Live events (marked ·) are shown and not stored:",
        "they have no `seq`, `id` or `prev`. `schema/events.schema.json` has it as JSON Schema.",
        "",
    ]
    known = sorted(
        (body for body in BODY_TYPES.values() if body.__module__ in {m.__name__ for m in MODULES}), key=_order_of
    )
    for channel, meaning in CHANNELS.items():
        lines += [f"## {channel}: {meaning}", "", "| type | data | |", "|---|---|---|"]
        lines += [event_row(body) for body in known if body.channel == channel]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def event_row(body: type[Body]) -> str:
    """Return the line of one event."""
    fields = ", ".join(f"`{field}`" for field in body.__struct_fields__)
    return f"| `{body.type}`{'' if body.durable else ' ·'} | {fields} | {first_paragraph_of(body.__doc__)} |"


def _order_of(body: type[Body]) -> tuple[int, int]:
    module = next(at for at, module in enumerate(MODULES) if module.__name__ == body.__module__)
    return module, list(BODY_TYPES).index(body.type)


def claude_settings_page() -> str:
    """Return the page of the keys of ``.claude`` settings."""
    counts = {"yes": "counts", "trusted": "counts if the folder is trusted", "never": "does not count"}
    effects = [
        f"| `{key.name}` | {EXPECTED_VALUES[key.kind]} | {key.effect} | {counts[key.project]} |"
        for key in CLAUDE_KEYS.values()
        if key.effect
    ]
    others = [f"| `{key.name}` | {key.instead} |" for key in CLAUDE_KEYS.values() if not key.effect]
    return "\n".join(
        [
            "# Keys of `.claude` settings",
            "",
            "[Bring your `.claude` folder](../guides/claude-folder.md#settings) explains the layers and their order.",
            "",
            "| key | value | effect | value of a project |",
            "|---|---|---|---|",
            *effects,
            "",
            "These are accepted and have no effect here; `vaka config validate` lists those that a file has:",
            "",
            "| key | why, or what to use |",
            "|---|---|",
            *others,
            "",
        ]
    )


SETTINGS_HEAD = """# The settings

Made from the option groups by `python -m scripts.reference`.

The variable of a setting is `VAKA_` and its name in capitals, such as `VAKA_MAX_STEPS`.
The [guide](../guides/configuration.md) explains the files, the order of the layers, and what a project may set. In the
column `trust`, `needed` means that the files of a project set it only if the folder is trusted, and `each run` only
with `--trust`.
"""
SETTING_VALUES = {
    "text": "text",
    "list": "list of texts",
    "whole": "whole number above 0",
    "count": "whole number, 0 or more",
    "number": "number above 0",
    "seconds": "seconds, or `90s`, `5m`, `2h`",
    "table": "table",
}
UNITS = {1: "", 1024**2: ", in MiB"}
SETTING_INTRODUCTIONS: dict[type[Any], str] = {
    Limits: "The limits of a turn. Default: the limits of the agent.",
    ResourceLimits: "The resources that one command may use.",
}
"""What a group of settings is, where its class says more."""


def settings_page() -> str:
    """Return the page of the settings."""
    lines = [SETTINGS_HEAD]
    for group in SETTING_GROUPS:
        title = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", group.__name__).capitalize()
        about = SETTING_INTRODUCTIONS.get(group, first_paragraph_of(group.__doc__))
        lines += [f"## {title}", "", about.replace("``", "`"), ""]
        lines += ["| setting | flag | value | default | trust | |", "|---|---|---|---|---|---|"]
        texts = {name: text for name, _, text in fields_of(group)}
        lines += [setting_row(key, texts[key.field]) for key in settings_of(group)]
        lines.append("")
    return "\n".join(lines)


def setting_row(key: SettingKey, text: str) -> str:
    """Return the line of one setting."""
    flags = ", ".join(f"`{name}`" for name in (key.flag.name, *key.flag.aliases)) if key.flag is not None else ""
    value = ", ".join(f"`{choice}`" for choice in key.choices) or key.path or SETTING_VALUES[key.kind]
    if key.path and key.kind == "list":
        value = f"list of {key.path}s"
    default = "" if key.default in (None, "", (), {}) else f"`{key.default}`"
    trust = "each run" if key.per_run else "needed" if key.widens else ""
    cells = (f"`{key.name}`", flags, f"{value}{UNITS[key.unit]}", default, trust, cell(text.replace("``", "`")))
    return f"| {' | '.join(cells)} |"


DEFINITION_SECTIONS = {
    "Agents": ("react_agent", "match_agent", "RouteDefinition", "lua_agent"),
    "Tools": (
        "built-in_tool",
        "lua_tool",
        "agent_tool",
        "http_tool",
        "HttpAuth",
        "generator_tool",
        "text_processor_tool",
        "composite_tool",
        "CompositeStep",
    ),
    "Rules": ("written_rule",),
    "Contexts": ("written_context",),
    "Generators": ("written_generator",),
}
DEFINITION_TITLES = {
    "RouteDefinition": "An item of `route`",
    "HttpAuth": "`auth`",
    "CompositeStep": "An item of `steps`",
    "written_rule": "A rule",
    "written_context": "A context",
    "written_generator": "A generator",
}


INCLUDE = {"$ref": "#/$defs/include"}
"""What every text, table and list may be."""


def describe_type(schema: dict[str, Any]) -> str:
    """Return the type of a field of a definition in words."""
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    target = schema.get("$ref", "").removeprefix("#/$defs/")
    if target.endswith("_slot"):
        return f"{target.removesuffix('_slot')}, or `$ref`"
    if target:
        return {"context_layer": "context layer", "HttpAuth": "table"}.get(target, "table")
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(describe_type(part) for part in schema["anyOf"] if part != INCLUDE))
    kinds = schema.get("type", "table")
    words = {"string": "text", "object": "table", "array": "list", "boolean": "true or false"}
    shown = " or ".join(words.get(kind, kind) for kind in ([kinds] if isinstance(kinds, str) else kinds))
    items = describe_type(schema["items"]) if "items" in schema else ""
    return f"{shown} of {items}s" if items in ("text", "table", "context layer") else shown


def describe_definition(name: str, schema: dict[str, Any]) -> list[str]:
    """Return the section of one kind of definition."""
    words = name.rpartition("_")
    title = DEFINITION_TITLES.get(name) or f"`type: {words[0]}`"
    hidden = {"$schema", "quit", "built_in", "builtin", "built-in", "parameters"} | ({words[0]} - {"lua", "agent"})
    required = {*schema.get("required", ()), *(schema.get("anyOf", [{}])[0].get("required", ()))}
    rows: list[str] = []
    for field, part in schema["properties"].items():
        default = f" Default: `{part['default']}`." if "default" in part else ""
        about = part.get("description", "") + default + (" Required." if field in required else "")
        if field not in hidden:
            rows.append(f"| `{field}` | {describe_type(part)} | {about} |")
    deprecated = " Deprecated: `vaka config convert` makes a [Luau tool](../guides/tool-definitions.md) of it."
    about = schema.get("description", "") + (deprecated if schema.get("deprecated") else "")
    return [f"### {title}", "", about, "", "| field | value | what it is |", "|---|---|---|", *rows, ""]


def definitions_page() -> str:
    """Return the page of the fields of definitions."""
    parts = definition_schema()["$defs"]
    lines = [DEFINITIONS_HEAD.read_text("utf-8")]
    for section, names in DEFINITION_SECTIONS.items():
        lines += [f"## {section}", "", *(line for name in names for line in describe_definition(name, parts[name]))]
    return "\n".join(lines)


PAGES = {
    "claude-settings.md": claude_settings_page,
    "python.md": python_page,
    "settings.md": settings_page,
    "events.md": events_page,
    "definitions.md": definitions_page,
}


def main() -> int:
    """Write the pages."""
    for name, page in PAGES.items():
        (REFERENCE / name).write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
