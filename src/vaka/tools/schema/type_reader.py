"""Read Python annotations and classes (dataclass, TypedDict, NamedTuple, attrs, msgspec, pydantic) as JSON types.

Descriptions come from docstrings in Google, NumPy or Sphinx style.
"""

import collections.abc
import dataclasses
import inspect
import re
import sys
import types
import typing
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, Required, TypeAlias, TypeVar

import msgspec

from vaka.core.ports.tool import ToolContext
from vaka.tools.schema import json_types
from vaka.tools.schema.json_types import MISSING, JsonType, TypeMember, UnsupportedType, unwrap_type

_SECTION = re.compile(r"(?:Args|Arguments|Parameters|Params|Attributes|Keyword Arg(?:ument)?s|Other Parameters):\s*$")
_UNDERLINED = re.compile(r"(?:Parameters|Other Parameters|Attributes)\s*$")
_RULE = re.compile(r"-{3,}\s*$")
_GOOGLE_ENTRY = re.compile(r"\*{0,2}(?P<names>\w+)\s*(?:\([^)]*\))?\s*:\s?(?P<text>.*)$")
_NUMPY_ENTRY = re.compile(r"(?P<names>\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?$")
_FIELD = re.compile(
    r":(?:param|parameter|arg|argument|key|keyword|ivar|cvar|var|attribute)\s+(?P<sign>[^:]+):\s?(?P<text>.*)$"
)
_TYPE_FIELD = re.compile(r":(?:type|vartype)\s+[^:]+:")


class ParsedDocstring(NamedTuple):
    """The text of a docstring without its parameters, and the text about each parameter."""

    text: str
    parameters: dict[str, str]


def parse_docstring(docstring: str | None) -> ParsedDocstring:
    """Split a docstring into the text about each parameter and the rest."""
    lines = inspect.cleandoc(docstring or "").splitlines()
    rest: list[str] = []
    parameters: dict[str, str] = {}
    at = 0
    while at < len(lines):
        at = _read_section(lines, at, rest, parameters)
    return ParsedDocstring(re.sub(r"\n{3,}", "\n\n", "\n".join(rest)).strip(), parameters)


def _read_section(lines: list[str], start: int, text_lines: list[str], parameters: dict[str, str]) -> int:
    """Read the section or line at ``start`` and return the index of the next one."""
    line = lines[start]
    if _SECTION.match(line):
        block = _indented_block(lines, start + 1)
        if block and block[0].strip():
            parameters.update(_section_entries(_unindent(block), _GOOGLE_ENTRY))
            return start + 1 + len(block)
    if _UNDERLINED.match(line) and start + 1 < len(lines) and _RULE.match(lines[start + 1]):
        block = _numpy_block(lines, start + 2)
        parameters.update(_section_entries(block, _NUMPY_ENTRY))
        return start + 2 + len(block)
    if (field := _FIELD.match(line)) or _TYPE_FIELD.match(line):
        block = _indented_block(lines, start + 1)
        if field:
            parameters[field["sign"].split()[-1].lstrip("*")] = _join_lines([field["text"], *block])
        return start + 1 + len(block)
    text_lines.append(line)
    return start + 1


def _indented_block(lines: list[str], start: int) -> list[str]:
    """Return the indented lines from ``start`` on, with the blank lines between them."""
    end = start
    for number in range(start, len(lines)):
        if lines[number][:1].isspace():
            end = number + 1
        elif lines[number]:
            break
    return lines[start:end]


def _numpy_block(lines: list[str], start: int) -> list[str]:
    """Return the lines up to the next underlined heading."""
    headings = (number for number in range(start, len(lines) - 1) if lines[number] and _RULE.match(lines[number + 1]))
    return lines[start : next(headings, len(lines))]


def _unindent(block: list[str]) -> list[str]:
    depth = len(block[0]) - len(block[0].lstrip())
    return [line[depth:] if not line[:depth].strip() else line.lstrip() for line in block]


def _section_entries(block: list[str], pattern: re.Pattern[str]) -> Iterator[tuple[str, str]]:
    """Yield each parameter of a section with its text."""
    names: list[str] = []
    words: list[str] = []
    for line in [*block, None]:
        if line is not None and (not line or line[0].isspace()):
            words.append(line)
            continue
        text = _join_lines(words)
        yield from ((name, text) for name in names)
        entry = pattern.match(line) if line is not None else None
        names = [name.strip().lstrip("*") for name in entry["names"].split(",")] if entry else []
        words = [entry.groupdict().get("text") or ""] if entry else []


def _join_lines(lines: list[str]) -> str:
    return " ".join(line.strip() for line in lines if line.strip())


ReadType: TypeAlias = Callable[[Any], JsonType]

_PURE_FACTORIES: tuple[Any, ...] = (list, dict, set, frozenset, tuple)


def record_kind_of(kind: Any) -> str | None:
    """Return the kind of record that a class is, or None."""
    if issubclass(kind, msgspec.Struct):
        return "struct"
    if dataclasses.is_dataclass(kind):
        return "dataclass"
    if hasattr(kind, "__attrs_attrs__"):
        return "attrs"
    names = dir(kind)
    if dict in kind.__mro__ and "__required_keys__" in names:
        return "typeddict"
    return "namedtuple" if tuple in kind.__mro__ and "_fields" in names else None


def fill_record(record: json_types.RecordType, kind: Any, record_kind: str, read: ReadType) -> None:
    hints = resolve_hints(kind)
    docs = parse_docstring(_own_docstring(kind))
    record.description = docs.text
    record.sparse = record_kind == "typeddict"
    if record_kind == "struct":
        config = kind.__struct_config__
        record.tag = None if config.tag_field is None or config.tag is None else (config.tag_field, config.tag)
        record.sparse = config.omit_defaults
    record.members = tuple(
        msgspec.structs.replace(member, description=docs.parameters.get(member.attribute, ""))
        for member in _MEMBER_READERS[record_kind](kind, hints, read)
    )


def read_named_tuple(kind: Any, read: ReadType) -> json_types.TupleType:
    """Return a NamedTuple as an array type, as msgspec and pydantic do."""
    hints = resolve_hints(kind)
    items = tuple(read(hints.get(name, Any)) for name in kind._fields)
    min_length = len(items) - len(kind._field_defaults)
    return json_types.TupleType(items, min_length, lambda values: kind(*values), kind._fields)


def resolve_hints(target: Any, names: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the resolved annotations of a class or function; raise ``UnsupportedType`` for an unknown name."""
    try:
        return typing.get_type_hints(target, localns=names, include_extras=True)
    except NameError as error:
        if error.name == ToolContext.__name__ and names is None:  # often imported for type checkers only
            return resolve_hints(target, {ToolContext.__name__: ToolContext})
        raise UnsupportedType(
            f"the name {error.name!r} in an annotation of {target.__qualname__} is unknown at run time; "
            "define or import it at the top of the module, outside `if TYPE_CHECKING`"
        ) from error
    except (AttributeError, SyntaxError, TypeError) as error:
        raise UnsupportedType(f"an annotation of {target.__qualname__} cannot be read: {error}") from error


def make_member(
    name: str, json_type: JsonType, *, attribute: str, default: Any = MISSING, required: bool = True
) -> TypeMember:
    """Return a member, ``default`` counting only if not ``required``; a required nullable one is None when absent."""
    if required and json_types.is_optional(json_type):
        return TypeMember(name, json_type, attribute, required=False, absent=None)
    return TypeMember(name, json_type, attribute, required=required, default=MISSING if required else default)


def _own_docstring(kind: type) -> str:
    """Return the docstring written in the class, not an inherited or generated one."""
    text = kind.__dict__.get("__doc__") or ""
    return "" if text.startswith(f"{kind.__name__}(") else text


def _default_of_factory(factory: Any) -> Any:
    return factory() if factory in _PURE_FACTORIES else MISSING


def _dataclass_members(kind: Any, hints: dict[str, Any], read: ReadType) -> Iterator[TypeMember]:
    fields = {field.name: field for field in dataclasses.fields(kind)}
    for name, parameter in inspect.signature(kind).parameters.items():
        hint: Any = hints.get(name, Any)
        hint = getattr(hint, "type", hint) if type(hint).__name__ == "InitVar" else hint
        default = parameter.default
        if name in fields and fields[name].default_factory is not dataclasses.MISSING:
            default = _default_of_factory(fields[name].default_factory)
        required = parameter.default is inspect.Parameter.empty
        yield make_member(name, read(hint), attribute=name, default=default, required=required)


def _attrs_members(kind: Any, hints: dict[str, Any], read: ReadType) -> Iterator[TypeMember]:
    parameters = inspect.signature(kind).parameters
    for field in kind.__attrs_attrs__:
        if not field.init:
            continue
        required = parameters[field.alias].default is inspect.Parameter.empty
        factory = getattr(field.default, "factory", None)
        default = field.default if factory is None else _default_of_factory(factory)
        json_type = read(hints.get(field.name, Any))
        yield make_member(field.alias, json_type, attribute=field.alias, default=default, required=required)


def _struct_members(kind: type[msgspec.Struct], hints: dict[str, Any], read: ReadType) -> Iterator[TypeMember]:
    if kind.__struct_config__.array_like:
        raise UnsupportedType(f"{kind.__name__} is array_like; use a Struct with named fields")
    for field in msgspec.structs.fields(kind):
        default = _default_of_factory(field.default_factory) if field.default is msgspec.NODEFAULT else field.default
        name, json_type = field.encode_name, read(hints[field.name])
        yield make_member(name, json_type, attribute=field.name, default=default, required=field.required)


def _typed_dict_members(kind: Any, hints: dict[str, Any], read: ReadType) -> Iterator[TypeMember]:
    for name, hint in hints.items():
        required = name in kind.__required_keys__
        while getattr(typing.get_origin(hint), "_name", None) in {"Required", "NotRequired", "ReadOnly"}:
            wrapper = typing.get_origin(hint)
            required = wrapper is Required or (wrapper is not NotRequired and required)
            hint = typing.get_args(hint)[0]
        yield make_member(name, read(hint), attribute=name, required=required)


_MEMBER_READERS: dict[str, Callable[[Any, dict[str, Any], ReadType], Iterator[TypeMember]]] = {
    "dataclass": _dataclass_members,
    "attrs": _attrs_members,
    "struct": _struct_members,
    "typeddict": _typed_dict_members,
}

TypeVarMap: TypeAlias = dict[Any, Any]
"""The types that type variables are bound to."""

_SET_TYPES: dict[Any, Callable[[list[Any]], Any]] = {
    set: set,
    frozenset: frozenset,
    collections.abc.Set: frozenset,
    collections.abc.MutableSet: set,
}
_SEQUENCES: dict[Any, Callable[[list[Any]], Any]] = _SET_TYPES | {
    list: list,
    tuple: tuple,
    collections.deque: collections.deque,
    collections.abc.Sequence: list,
    collections.abc.MutableSequence: list,
    collections.abc.Collection: list,
    collections.abc.Iterable: list,
}
_MAPPINGS: dict[Any, Callable[[dict[Any, Any]], Any]] = {
    dict: dict,
    collections.OrderedDict: collections.OrderedDict,
    collections.abc.Mapping: dict,
    collections.abc.MutableMapping: dict,
}

_CONTAINERS: dict[Any, tuple[Any, ...]] = {
    **dict.fromkeys(_SEQUENCES, (Any,)),
    **dict.fromkeys(_MAPPINGS, (str, Any)),
    tuple: (Any, ...),
}
"""The arguments that each container has when it is written without any."""

_JSON_SCALARS = (str, int, float, bool, types.NoneType)

SUPPORTED_TYPES_HINT = (
    "use str, int, float, bool, None, Literal, Enum, list, set, tuple, dict, datetime, UUID, Path, Decimal, bytes, "
    "a dataclass, TypedDict, NamedTuple, attrs class, msgspec Struct or pydantic model, or a union of these"
)


class TypeReader:
    """Reads annotations; a class that occurs twice has one type."""

    def __init__(self) -> None:
        self._records: dict[Any, json_types.RecordType] = {}
        self._aliases: dict[Any, json_types.AliasType] = {}
        self._open_aliases: list[json_types.AliasType] = []
        self._pydantic_types: dict[Any, json_types.PydanticType] = {}

    def read(self, hint: Any, names: TypeVarMap | None = None) -> JsonType:
        """Return the type of an annotation; raise ``UnsupportedType`` when JSON cannot express it."""
        names = names or {}
        origin = typing.get_origin(hint)
        if hint is None or hint is types.NoneType:
            return json_types.ScalarType(types.NoneType)
        if hint in (Any, object, inspect.Parameter.empty):
            return json_types.AnyType()
        if origin is None:
            return self._read_name(hint, names)
        if origin is Annotated:
            return self._read_annotated(hint, names)
        if origin is Literal:
            return make_enum_type((getattr(value, "value", value), value) for value in typing.get_args(hint))
        if origin in (typing.Union, types.UnionType):
            return self._read_union(hint, names)
        return self._read_generic(hint, origin, names)

    def _read_name(self, hint: Any, names: TypeVarMap) -> JsonType:
        if isinstance(hint, TypeVar):
            if hint in names:
                return self.read(names[hint])
            return self.read(hint.__bound__, names) if hint.__bound__ is not None else json_types.AnyType()
        if hasattr(hint, "__supertype__"):
            return self.read(hint.__supertype__, names)
        if type(hint).__name__ == "TypeAliasType":
            return self._read_alias(hint, hint.__name__, lambda: self.read(_resolve_alias(hint), names))
        if isinstance(hint, type):
            return self._read_class(hint, names)
        raise UnsupportedType(f"{describe_type(hint)} cannot be read from JSON; {SUPPORTED_TYPES_HINT}")

    def _read_alias(self, key: Any, name: str, make: Callable[[], JsonType]) -> JsonType:
        if (found := self._aliases.get(key)) is not None:
            found.recursive = found.recursive or found in self._open_aliases
            return found
        alias = self._aliases[key] = json_types.AliasType(name)
        self._open_aliases.append(alias)
        alias.target = make()
        self._open_aliases.pop()
        return alias

    def _read_annotated(self, hint: Any, names: TypeVarMap) -> JsonType:
        base, *metadata = typing.get_args(hint)
        notes = json_types.read_metadata(metadata)
        if any(map(_needs_pydantic, metadata)) or isinstance(
            unwrap_type(self.read(base, names)), json_types.PydanticType
        ):
            json_type: JsonType = self._read_pydantic(hint, describe_type(base))
            notes.bounds, notes.extra = {}, {}
        else:
            json_type = self.read(base, names)
        return json_types.apply_metadata(json_type, notes)

    def _read_union(self, hint: Any, names: TypeVarMap) -> JsonType:
        arguments = tuple(argument for argument in typing.get_args(hint) if argument is not msgspec.UnsetType)
        some = [argument for argument in arguments if argument is not types.NoneType]
        if len(some) > 1 and all(is_pydantic_type(argument) for argument in some):
            inner: JsonType = self._read_pydantic(typing.Union[tuple(some)], "_".join(map(describe_type, some)))  # noqa: UP007
            null = json_types.ScalarType(types.NoneType)
            return inner if len(some) == len(arguments) else json_types.UnionType((inner, null))
        options = [self.read(argument, names) for argument in arguments]
        nested = [one.options if isinstance(one, json_types.UnionType) else (one,) for one in options]
        return json_types.UnionType(tuple(option for inner in nested for option in inner))

    def _read_generic(self, hint: Any, origin: Any, names: TypeVarMap) -> JsonType:
        arguments = typing.get_args(hint)
        if origin in _CONTAINERS:
            return self._read_container(origin, arguments, names)
        if type(origin).__name__ == "TypeAliasType":
            inner = {**names, **dict(zip(origin.__type_params__, arguments, strict=False))}
            name = _generic_name(origin.__name__, arguments)
            return self._read_alias(hint, name, lambda: self.read(_resolve_alias(origin), inner))
        if isinstance(origin, type):
            bound = tuple(names.get(part, part) if isinstance(part, TypeVar) else part for part in arguments)
            inner = dict(zip(getattr(origin, "__parameters__", ()), bound, strict=False))
            return self._read_class(origin, inner, bound)
        raise UnsupportedType(f"{describe_type(hint)} cannot be read from JSON; {SUPPORTED_TYPES_HINT}")

    def _read_container(self, kind: Any, arguments: tuple[Any, ...], names: TypeVarMap) -> JsonType:
        if kind is tuple and (len(arguments) != 2 or arguments[1] is not Ellipsis):
            return json_types.TupleType(tuple(self.read(argument, names) for argument in arguments), len(arguments))
        first = self.read(arguments[0], names)
        if kind not in _MAPPINGS:
            return json_types.ArrayType(first, _SEQUENCES[kind], kind in _SET_TYPES)
        key = unwrap_type(first)
        is_text = isinstance(key, json_types.ScalarType) and key.kind in {str, int}
        if not is_text and not isinstance(key, json_types.AnyType | json_types.EnumType):
            raise UnsupportedType(
                "the keys of a JSON object are text; use str, int, Literal or Enum as the key of a dict"
            )
        return json_types.MappingType(first, self.read(arguments[1], names), _MAPPINGS[kind])

    def _read_class(self, kind: Any, names: TypeVarMap, arguments: tuple[Any, ...] = ()) -> JsonType:
        if kind in json_types.SCALAR_TYPES:
            return json_types.ScalarType(kind)
        if is_pydantic_type(kind):
            return self._read_pydantic(kind[arguments] if arguments else kind, _generic_name(kind.__name__, arguments))
        if issubclass(kind, Enum):
            return _read_enum(kind)
        if kind in _CONTAINERS:
            return self._read_container(kind, _CONTAINERS[kind], names)
        if (found := record_kind_of(kind)) is not None:
            return self._read_record(kind, found, names, arguments)
        for base in (str, int, float):
            if issubclass(kind, base):
                return json_types.ScalarType(base, kind)
        raise UnsupportedType(f"{describe_type(kind)} cannot be read from JSON; {SUPPORTED_TYPES_HINT}")

    def _read_record(self, kind: type, record_kind: str, names: TypeVarMap, arguments: tuple[Any, ...]) -> JsonType:
        key = (kind, arguments)
        name = _generic_name(kind.__name__, arguments)

        def read(hint: Any) -> JsonType:
            return self.read(hint, names)

        if record_kind == "namedtuple":
            return self._read_alias(key, name, lambda: read_named_tuple(kind, read))
        if (found := self._records.get(key)) is not None:
            return found
        record = self._records[key] = json_types.RecordType(name, kind)
        fill_record(record, kind, record_kind, read)
        return record

    def _read_pydantic(self, hint: Any, name: str) -> json_types.PydanticType:
        if hint not in self._pydantic_types:
            self._pydantic_types[hint] = adapt_pydantic(hint, name)
        return self._pydantic_types[hint]


def make_enum_type(values: Iterable[tuple[Any, Any]]) -> json_types.EnumType:
    """Return an enumeration; raise ``UnsupportedType`` for values that JSON cannot express."""
    pairs = tuple(values)
    for plain, _ in pairs:
        if not isinstance(plain, _JSON_SCALARS):
            raise UnsupportedType(f"{plain!r} is not a JSON value; use text, numbers, booleans or None in a Literal")
    return json_types.EnumType(pairs)


def _read_enum(kind: type[Enum]) -> json_types.EnumType:
    """Read an enum by its values when all are JSON scalars, else by its names."""
    members = list(kind)
    if all(isinstance(member.value, _JSON_SCALARS) for member in members):
        return json_types.EnumType(tuple((member.value, member) for member in members))
    return json_types.EnumType(tuple((member.name, member) for member in members))


def is_pydantic_type(hint: Any) -> bool:
    """Return whether a type brings its own pydantic schema."""
    kind = typing.get_origin(hint) or hint
    return isinstance(kind, type) and hasattr(kind, "__get_pydantic_core_schema__") and "pydantic" in sys.modules


def _needs_pydantic(item: Any) -> bool:
    """Return whether metadata has an effect that only pydantic implements: a validator, a discriminator."""
    return hasattr(item, "__get_pydantic_core_schema__") or getattr(item, "discriminator", None) is not None


def adapt_pydantic(hint: Any, name: str) -> json_types.PydanticType:
    from pydantic import TypeAdapter  # noqa: PLC0415 - optional; already loaded where the type was defined

    try:
        return json_types.PydanticType(name, TypeAdapter(hint))
    except (RuntimeError, NameError, TypeError) as error:
        raise UnsupportedType(f"pydantic cannot describe {name}: {json_types.first_line_of(error)}") from error


def describe_type(hint: Any) -> str:
    """Return the name of a type for messages and ``$defs``."""
    return getattr(hint, "__name__", None) or str(hint).removeprefix("typing.")


def _generic_name(name: str, arguments: tuple[Any, ...]) -> str:
    return "_".join((name, *(describe_type(argument) for argument in arguments)))


def _resolve_alias(alias: Any) -> Any:
    """Return the target of a type alias with quoted names resolved."""
    holder = types.SimpleNamespace(__annotations__={"value": alias.__value__}, __qualname__=alias.__name__)
    return resolve_hints(holder, vars(sys.modules[alias.__module__]))["value"]
