"""The members of classes: dataclasses, TypedDicts, NamedTuples, attrs classes and msgspec Structs."""

import dataclasses
import inspect
import typing
from collections.abc import Callable, Iterator
from typing import Any, NotRequired, Required, TypeAlias

import msgspec

from vaka.core.ports.tool import ToolContext
from vaka.tools import docstring
from vaka.tools.shape import MISSING, Fixed, Member, Record, Shape, Unsupported, is_optional

Read: TypeAlias = Callable[[Any], Shape]
_FACTORIES: tuple[Any, ...] = (list, dict, set, frozenset, tuple)


def kind_of(kind: Any) -> str | None:
    """Return which sort of record a class is, or None."""
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


def fill(record: Record, kind: Any, way: str, read: Read) -> None:
    """Give a record its members."""
    hints = resolve(kind)
    docs = docstring.parse(_doc(kind))
    record.description = docs.text
    record.tag = _tag(kind) if way == "struct" else None
    record.sparse = way == "typeddict" or (way == "struct" and kind.__struct_config__.omit_defaults)
    members = tuple(_MEMBERS[way](kind, hints, read))
    record.members = tuple(
        dataclasses.replace(member, description=docs.parameters.get(member.attribute, "")) for member in members
    )


def named_tuple(kind: Any, read: Read) -> Fixed:
    """Return the shape of a NamedTuple: an array, as in every other library."""
    hints = resolve(kind)
    shapes = tuple(read(hints.get(name, Any)) for name in kind._fields)
    least = len(shapes) - len(kind._field_defaults)
    return Fixed(shapes, least, lambda values: kind(*values), kind._fields)


def resolve(thing: Any, names: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the annotations of a class or function with names looked up; say which name is unknown."""
    try:
        return typing.get_type_hints(thing, localns=names, include_extras=True)
    except NameError as error:
        if error.name == ToolContext.__name__ and names is None:  # often imported for type checkers only
            return resolve(thing, {ToolContext.__name__: ToolContext})
        raise Unsupported(
            f"the name {error.name!r} in an annotation of {thing.__qualname__} is unknown at run time; "
            "define or import it at the top of the module, outside `if TYPE_CHECKING`"
        ) from error
    except (AttributeError, SyntaxError, TypeError) as error:
        raise Unsupported(f"an annotation of {thing.__qualname__} cannot be read: {error}") from error


def member(name: str, shape: Shape, *, attribute: str, default: Any = MISSING, required: bool = True) -> Member:
    """Return a member; one that may be null and has no default may be left out and is then None."""
    if required and is_optional(shape):
        return Member(name, shape, attribute, required=False, absent=None)
    return Member(name, shape, attribute, required=required, default=default)


def _doc(kind: type) -> str:
    """The docstring somebody wrote, not one that was inherited or made."""
    text = kind.__dict__.get("__doc__") or ""
    return "" if text.startswith(f"{kind.__name__}(") else text


def _factory_default(factory: Any) -> Any:
    return factory() if factory in _FACTORIES else MISSING


def _dataclass(kind: Any, hints: dict[str, Any], read: Read) -> Iterator[Member]:
    fields = {field.name: field for field in dataclasses.fields(kind)}
    for name, parameter in inspect.signature(kind).parameters.items():
        hint: Any = hints.get(name, Any)
        hint = getattr(hint, "type", hint) if type(hint).__name__ == "InitVar" else hint
        default = parameter.default
        if name in fields and fields[name].default_factory is not dataclasses.MISSING:
            default = _factory_default(fields[name].default_factory)
        required = parameter.default is inspect.Parameter.empty
        yield member(name, read(hint), attribute=name, default=MISSING if required else default, required=required)


def _attrs(kind: Any, hints: dict[str, Any], read: Read) -> Iterator[Member]:
    parameters = inspect.signature(kind).parameters
    for field in kind.__attrs_attrs__:
        if not field.init:
            continue
        required = parameters[field.alias].default is inspect.Parameter.empty
        factory = getattr(field.default, "factory", None)
        default = field.default if factory is None else _factory_default(factory)
        yield member(
            field.alias,
            read(hints.get(field.name, Any)),
            attribute=field.alias,
            default=MISSING if required else default,
            required=required,
        )


def _struct(kind: type[msgspec.Struct], hints: dict[str, Any], read: Read) -> Iterator[Member]:
    if kind.__struct_config__.array_like:
        raise Unsupported(f"{kind.__name__} is array_like; use a Struct with named fields")
    for field in msgspec.structs.fields(kind):
        default = field.default if field.default is not msgspec.NODEFAULT else _factory_default(field.default_factory)
        yield member(
            field.encode_name,
            read(hints[field.name]),
            attribute=field.name,
            default=MISSING if field.required else default,
            required=field.required,
        )


def _tag(kind: type[msgspec.Struct]) -> tuple[str, str | int] | None:
    config = kind.__struct_config__
    return (config.tag_field, config.tag) if config.tag_field is not None and config.tag is not None else None


def _typed_dict(kind: Any, hints: dict[str, Any], read: Read) -> Iterator[Member]:
    for name, hint in hints.items():
        required = name in kind.__required_keys__
        while getattr(typing.get_origin(hint), "_name", None) in {"Required", "NotRequired", "ReadOnly"}:
            wrapper = typing.get_origin(hint)
            required = wrapper is Required or (wrapper is not NotRequired and required)
            hint = typing.get_args(hint)[0]
        yield member(name, read(hint), attribute=name, required=required)


_MEMBERS: dict[str, Callable[[Any, dict[str, Any], Read], Iterator[Member]]] = {
    "dataclass": _dataclass,
    "attrs": _attrs,
    "struct": _struct,
    "typeddict": _typed_dict,
}
