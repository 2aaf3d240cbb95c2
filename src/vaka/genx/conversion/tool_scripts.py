"""Convert tool definitions of the kinds http, generator, text_processor and composite to Luau scripts.

A definition is plain data with the keys of its kind. Of a composite tool each step has ``id``, ``input_jq`` and
``tool``: the definition of a tool, or ``{"type": "invoke", "name": …}`` for a tool that the script calls by its name.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import unquote_plus

from vaka.core.types.ids import JSON
from vaka.genx.conversion.jq_parser import UntranslatableJq
from vaka.genx.conversion.jq_translation import JqTranslator, indent, luau_key, luau_string, luau_table
from vaka.tools.schema.json_types import is_array, is_object

MAX_TIMEOUT = 120.0
"""The longest timeout of ``ctx.http`` in seconds."""
CONVERTED_KINDS = ("http", "generator", "text_processor", "composite")

Definition = Mapping[str, Any]

_MIB = 1024**2
_TEMPLATE = re.compile(r"\$\$|\$\{(\w+)\}|\$([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\}")
_VARIABLE = re.compile(r"\$\$|\$\{(\w+)\}|\$([A-Za-z_]\w*)")
TEXT_PARAMETERS = {"generator": "input", "text_processor": "content"}


class UnconvertedTool(Exception):
    """A definition that has no equivalent script; the message says why."""


def convert_tool(definition: Definition, origin: str = "") -> str:
    """Return the script of a definition, which comes from ``origin``. Raises ``UnconvertedTool``."""
    converter = _Converter()
    body = converter.convert(definition)
    comments = [f"-- {line}".rstrip() for line in str(definition.get("description", "")).splitlines()]
    comments.append(
        f"-- Converted from the {definition['type']} tool {definition['name']!r}{origin and f' of {origin}'}."
    )
    main = f"function invoke(ctx, args)\n{indent(body)}\nend\n"
    parts = ["\n".join(comments) + "\n", converter.jq.helpers, *converter.functions.values(), main]
    return "\n".join(part for part in parts if part)


def luau_value(value: JSON) -> str:
    """Return JSON data as a Luau expression. Raises ``UnconvertedTool`` for null, which Luau tables cannot hold."""
    if isinstance(value, str):
        return luau_string(value)
    if isinstance(value, bool | int | float):
        return str(value).lower() if isinstance(value, bool) else repr(value)
    if is_object(value):
        entries = [f"{luau_key(str(key))} = {luau_value(item)}" for key, item in value.items()]
        return luau_table(entries)
    if is_array(value):
        return luau_table([luau_value(item) for item in value]) if value else 'ctx.json.decode("[]")'
    raise UnconvertedTool("JSON data with null has no equivalent in a Luau table")


class _Converter:
    """The functions of one script."""

    def __init__(self) -> None:
        self.jq = JqTranslator()
        self.functions: dict[str, str] = {}
        """The functions of steps by the name of their tool, in the order of their definition."""

    def convert(self, definition: Definition) -> str:
        """Return the lines of the function that does what a tool does."""
        kind = definition["type"]
        if kind == "http":
            return _HttpConverter(self.jq, definition).body()
        return self._composite(definition) if kind == "composite" else self._model_call(definition)

    def _model_call(self, definition: Definition) -> str:
        parameter = TEXT_PARAMETERS[definition["type"]]
        is_json = definition.get("mode") == "json_output" or definition.get("output_mode") == "json"
        layers = [definition.get("prompt", ""), *definition.get("context", ())]
        options = {"system": self._system(layers)} if any(layers) else {}
        options |= {key: luau_value(value) for key, value in definition.get("options", {}).items()}
        arguments = [luau_string(definition["model"]), f"args.{parameter}"]
        function = "generate_json" if is_json else "generate"
        arguments += [luau_value(definition["output_schema"])] if is_json else []
        arguments += [luau_table([f"{luau_key(key)} = {value}" for key, value in options.items()])] if options else []
        return f"return ctx.{function}({', '.join(arguments)})"

    def _system(self, layers: Sequence[Any]) -> str:
        """Return the system prompt of texts and of variables, ``{"env": name}``; a variable may be missing."""
        if all(isinstance(layer, str) for layer in layers):
            return luau_string("\n\n".join(layer for layer in layers if layer))
        parts = [
            luau_string(layer) if isinstance(layer, str) else f"__builtin.env({luau_string(layer['env'])})"
            for layer in layers
            if layer
        ]
        return f"{self.jq.use('prompt_of')}({', '.join(parts)})"

    def _composite(self, definition: Definition) -> str:
        lines = ["local steps = {}"]
        steps: Sequence[Definition] = definition["steps"]
        for number, step in enumerate(steps):
            arguments = self._step_arguments(step, steps[number - 1] if number else None)
            run = f"{self.jq.use('step')}({luau_string(step['id'])}, {self._step_function(step['tool'])}, {arguments})"
            is_last = number == len(steps) - 1
            lines.append(
                f"return {run}" if is_last else f"{_member('steps', step['id'])} = {self.jq.use('parsed')}({run})"
            )
        return "\n".join(lines)

    def _step_arguments(self, step: Definition, previous: Definition | None) -> str:
        if previous is None:
            return "args"
        if step.get("input_jq"):
            members = {"input": "args", "steps": "steps"}
            root = "{ input = args, steps = steps }"
            return _translate(self.jq, step["input_jq"], root, f"step {step['id']}: input_jq", members)
        output = _member("steps", previous["id"])
        parameter = _text_parameter(step["tool"])
        return f'{self.jq.use("as_parameter")}("{parameter}", {output})' if parameter else output

    def _step_function(self, tool: Definition) -> str:
        """Return the function that runs the tool of a step, defined before the main function."""
        name = tool["name"]
        if tool["type"] == "invoke":
            return f"function(arguments) return ctx.invoke({luau_string(name)}, arguments) end"
        function = re.sub(r"\W", "_", name)
        if luau_key(function) != function or self.jq.is_taken(function):
            function = f"tool_{function}"
        body = self.convert(tool)
        text = f"-- The {tool['type']} tool {name!r}.\nlocal function {function}(args: any): any\n{indent(body)}\nend\n"
        if self.functions.setdefault(function, text) != text:
            raise UnconvertedTool(f"two steps have different tools with the name {name!r}")
        return function


class _HttpConverter:
    """The function of one HTTP tool."""

    def __init__(self, jq: JqTranslator, definition: Definition) -> None:
        self._jq, self._definition = jq, definition
        self._method = definition.get("method") or "GET"
        self._has_body_program = bool(definition.get("req_body_jq"))
        self._used: set[str] = set()

    def body(self) -> str:
        """Return the lines of the function."""
        address, _, query = self._definition["endpoint"].partition("#")[0].partition("?")
        url = self._interpolate(address, self._segment)
        options = {"query": self._query(query), "headers": self._headers(), **self._body(), **self._limits()}
        entries = [f"{key} = {value}" for key, value in options.items() if value]
        sent = f'{self._jq.use("send")}("{self._method}", {url}, {luau_table(entries)})'
        program = self._definition.get("resp_body_jq", "")
        if not program:
            return f"return {sent}"
        return f"local body = {sent}\nreturn {_translate(self._jq, program, 'body', 'resp_body_jq')}"

    def _segment(self, name: str) -> str:
        self._used.add(name)
        return f'{self._jq.use("segment")}("{name}", {_member("args", name)})'

    def _interpolate(self, template: str, argument: Callable[[str], str] | None = None) -> str:
        """Return a template as a Luau expression: a string, or a string with values in braces."""
        pieces: list[str] = []
        text, at = "", 0
        for found in (_VARIABLE if argument is None else _TEMPLATE).finditer(template):
            text, at = text + template[at : found.start()], found.end()
            if found[0] == "$$":
                text += "$"
                continue
            name = found[1] or found[2]
            value = f'{self._jq.use("env")}("{name}")' if name or argument is None else argument(found[3])
            pieces.append(f"{_escape_braces(text)}{{{value}}}")
            text = ""
        text += template[at:]
        return f"`{''.join(pieces)}{_escape_braces(text)}`" if pieces else luau_string(text)

    def _query(self, query: str) -> str:
        entries: dict[str, list[str]] = {}
        for pair in filter(None, query.split("&")):
            name, _, template = pair.partition("=")
            if _TEMPLATE.search(name.replace("$$", "")):
                raise UnconvertedTool(f"the query parameter {name!r} has a name that is not constant")
            entries.setdefault(unquote_plus(name.replace("$$", "$")), []).append(
                self._parameter(unquote_plus(template))
            )
        for name, template in self._definition.get("query", {}).items():
            single = _TEMPLATE.fullmatch(template)
            value = _member("args", single[3]) if single and single[3] else self._parameter(template)
            self._used |= {single[3]} if single and single[3] else set()
            entries.setdefault(name, []).append(value)
        values = {name: found[0] if len(found) == 1 else luau_table(found) for name, found in entries.items()}
        table = luau_table([f"{luau_key(name)} = {value}" for name, value in values.items()])
        if self._method in ("GET", "DELETE") and not self._has_body_program:
            return self._with_other_arguments(table, entries)
        return table if entries else ""

    def _with_other_arguments(self, table: str, entries: dict[str, list[str]]) -> str:
        """Return query parameters together with the arguments that the endpoint does not name."""
        params: dict[str, Any] = self._definition.get("params") or {}
        is_schema = params.get("type") == "object" or "$ref" in params or "anyOf" in params
        known = params.get("properties", {}) if is_schema else params
        is_closed = params.get("additionalProperties") is False if is_schema else bool(params)
        if is_closed and self._used.issuperset(known):
            return table if entries else ""
        used = luau_table([f"{luau_key(name)} = true" for name in sorted(self._used)])
        return f"{self._jq.use('query_of')}(args, {used}, {table})"

    def _parameter(self, template: str) -> str:
        """Return the value of a query parameter, nil if an argument is missing."""
        names = [found[3] for found in _TEMPLATE.finditer(template) if found[3]]
        self._used |= set(names)
        if not names:
            return self._interpolate(template)
        values = [_member("args", name) for name in names]
        if template == f"{{{names[0]}}}":
            return f"{self._jq.use('parameter')}({values[0]})"
        text = self._interpolate(template, lambda name: f"{self._jq.use('text_of')}({_member('args', name)})")
        return f"if {' and '.join(f'{value} ~= nil' for value in values)} then {text} else nil"

    def _headers(self) -> str:
        headers = {name: self._interpolate(value) for name, value in self._definition.get("headers", {}).items()}
        auth: Mapping[str, str] = self._definition.get("auth") or {}
        if auth.get("type") == "bearer":
            headers["Authorization"] = self._interpolate(f"Bearer {auth['token']}")
        elif auth.get("type") == "basic":
            pair = auth.get("token") or f"{auth.get('username', '')}:{auth.get('password', '')}"
            headers["Authorization"] = f'"Basic " .. {self._jq.use("base64")}({self._interpolate(pair)})'
        if self._has_body_program and "content-type" not in {name.lower() for name in headers}:
            headers["Content-Type"] = '"application/json"'
        return luau_table([f"{luau_key(name)} = {value}" for name, value in headers.items()]) if headers else ""

    def _body(self) -> dict[str, str]:
        program = self._definition.get("req_body_jq", "")
        if program:
            return {"body": _translate(self._jq, program, "args", "req_body_jq")}
        return {} if self._method in ("GET", "DELETE") else {"json": "args"}

    def _limits(self) -> dict[str, str]:
        timeout = self._definition.get("timeout") or 30
        if timeout > MAX_TIMEOUT:
            raise UnconvertedTool(f"the timeout of {timeout:g} s is longer than the {MAX_TIMEOUT:g} s of a script")
        limits = {"timeout": f"{timeout:g}"}
        limits["max_bytes"] = str(int((self._definition.get("max_response_size_mb") or 1) * _MIB))
        if any(_TEMPLATE.search(value) for value in self._definition.get("headers", {}).values()):
            limits["redirects"] = "0"  # another host must not get the variables in the headers
        return limits


def _translate(jq: JqTranslator, program: str, root: str, where: str, members: Mapping[str, str] | None = None) -> str:
    try:
        return jq.translate(program, root, members)
    except UntranslatableJq as error:
        raise UnconvertedTool(f'{where} "{program}": {error}') from error


def _text_parameter(tool: Definition) -> str:
    """Return the only parameter of a tool if it is a text, else ``""``."""
    if tool["type"] == "composite":
        return _text_parameter(tool["steps"][0]["tool"])
    params: dict[str, Any] = tool.get("params") or {}
    properties = params.get("properties", {}) if params.get("type") == "object" else params
    if len(properties) == 1:
        name, schema = next(iter(properties.items()))
        return name if schema.get("type") == "string" else ""
    return TEXT_PARAMETERS.get(tool["type"], "")


def _escape_braces(text: str) -> str:
    """Return a text as it is written in an interpolated string."""
    return re.sub(r"([\\`{])", r"\\\1", text).replace("\n", "\\n")


def _member(table: str, name: str) -> str:
    key = luau_key(name)
    return f"{table}{key}" if key.startswith("[") else f"{table}.{key}"
