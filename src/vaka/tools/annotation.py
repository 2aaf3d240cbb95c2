"""From an annotation to its shape."""

import collections
import collections.abc
import inspect
import sys
import types
import typing
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import msgspec

from vaka.tools import notes
from vaka.tools.record import fill, kind_of, named_tuple, resolve
from vaka.tools.shape import (
    SCALARS,
    Alias,
    Anything,
    Choice,
    Either,
    Fixed,
    Foreign,
    Items,
    Record,
    Scalar,
    Shape,
    Table,
    Unsupported,
    bare,
    first_line,
    flat,
)

Names: TypeAlias = dict[Any, Any]
"""What type variables stand for."""

_SEQUENCES: dict[Any, Callable[[list[Any]], Any]] = {
    list: list,
    collections.deque: collections.deque,
    collections.abc.Sequence: list,
    collections.abc.MutableSequence: list,
    collections.abc.Collection: list,
    collections.abc.Iterable: list,
    set: set,
    frozenset: frozenset,
    collections.abc.Set: frozenset,
    collections.abc.MutableSet: set,
}
_UNIQUE = (set, frozenset, collections.abc.Set, collections.abc.MutableSet)
_MAPPINGS: dict[Any, Callable[[dict[Any, Any]], Any]] = {
    dict: dict,
    collections.OrderedDict: collections.OrderedDict,
    collections.abc.Mapping: dict,
    collections.abc.MutableMapping: dict,
}
_PLAIN = (str, int, float, bool, types.NoneType)
ADVICE = (
    "use str, int, float, bool, None, Literal, Enum, list, set, tuple, dict, datetime, UUID, Path, Decimal, bytes, "
    "a dataclass, TypedDict, NamedTuple, attrs class, msgspec Struct or pydantic model, or a union of these"
)


class TypeReader:
    """Reads annotations; a class that is met twice has one shape."""

    def __init__(self) -> None:
        self._records: dict[Any, Record] = {}
        self._aliases: dict[Any, Alias] = {}
        self._open: list[Alias] = []
        self._adapted: dict[Any, Foreign] = {}

    def read(self, hint: Any, names: Names | None = None) -> Shape:
        """Return the shape of an annotation; raise ``Unsupported`` when JSON cannot express it."""
        names = names or {}
        origin = typing.get_origin(hint)
        if hint is None or hint is types.NoneType:
            return Scalar(types.NoneType)
        if hint in (Any, object, inspect.Parameter.empty):
            return Anything()
        if origin is None:
            return self._name(hint, names)
        if origin is Annotated:
            return self._annotated(hint, names)
        if origin is Literal:
            return choice((_json_of(value), value) for value in typing.get_args(hint))
        if origin in (typing.Union, types.UnionType):
            return self._union(hint, names)
        return self._generic(hint, origin, names)

    def _name(self, hint: Any, names: Names) -> Shape:
        if isinstance(hint, TypeVar):
            if hint in names:
                return self.read(names[hint])
            return self.read(hint.__bound__, names) if hint.__bound__ is not None else Anything()
        if hasattr(hint, "__supertype__"):
            return self.read(hint.__supertype__, names)
        if type(hint).__name__ == "TypeAliasType":
            return self._alias(hint, hint.__name__, lambda: self.read(_value(hint), names))
        if isinstance(hint, type):
            return self._class(hint, names)
        raise Unsupported(f"{describe(hint)} cannot be read from JSON; {ADVICE}")

    def _alias(self, key: Any, name: str, make: Callable[[], Shape]) -> Shape:
        if (found := self._aliases.get(key)) is not None:
            found.recursive = found.recursive or found in self._open
            return found
        alias = self._aliases[key] = Alias(name)
        self._open.append(alias)
        alias.target = make()
        self._open.pop()
        return alias

    def _annotated(self, hint: Any, names: Names) -> Shape:
        base, *metadata = typing.get_args(hint)
        found = notes.read(metadata)
        if any(_needs_pydantic(item) for item in metadata) or isinstance(bare(self.read(base, names)), Foreign):
            shape: Shape = self._foreign(hint, describe(base))
            found.bounds, found.extra = {}, {}
        else:
            shape = self.read(base, names)
        return notes.annotate(shape, found)

    def _union(self, hint: Any, names: Names) -> Shape:
        arguments = tuple(argument for argument in typing.get_args(hint) if argument is not msgspec.UnsetType)
        some = [argument for argument in arguments if argument is not types.NoneType]
        if len(some) > 1 and all(is_foreign(argument) for argument in some):
            inner: Shape = self._foreign(typing.Union[tuple(some)], "_".join(describe(argument) for argument in some))  # noqa: UP007 - made at run time
            return Either((inner, Scalar(types.NoneType))) if len(some) < len(arguments) else inner
        return Either(tuple(flat(self.read(argument, names) for argument in arguments)))

    def _generic(self, hint: Any, origin: Any, names: Names) -> Shape:
        arguments = typing.get_args(hint)
        if origin is tuple:
            return self._tuple(arguments, names)
        if origin in _SEQUENCES:
            return Items(self.read(arguments[0], names), _SEQUENCES[origin], origin in _UNIQUE)
        if origin in _MAPPINGS:
            return self._table(origin, arguments, names)
        if type(origin).__name__ == "TypeAliasType":
            inner = {**names, **dict(zip(origin.__type_params__, arguments, strict=False))}
            name = _called(origin.__name__, arguments)
            return self._alias(hint, name, lambda: self.read(_value(origin), inner))
        if isinstance(origin, type):
            given = tuple(names.get(part, part) if isinstance(part, TypeVar) else part for part in arguments)
            return self._class(origin, dict(zip(_parameters(origin), given, strict=False)), given)
        raise Unsupported(f"{describe(hint)} cannot be read from JSON; {ADVICE}")

    def _tuple(self, arguments: tuple[Any, ...], names: Names) -> Shape:
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return Items(self.read(arguments[0], names), tuple)
        return Fixed(tuple(self.read(argument, names) for argument in arguments), len(arguments))

    def _table(self, origin: Any, arguments: tuple[Any, ...], names: Names) -> Shape:
        key = self.read(arguments[0], names)
        inner = bare(key)
        if not isinstance(inner, Anything | Choice) and not (isinstance(inner, Scalar) and inner.kind in {str, int}):
            raise Unsupported("the keys of a JSON object are text; use str, int, Literal or Enum as the key of a dict")
        return Table(key, self.read(arguments[1], names), _MAPPINGS[origin])

    def _class(self, kind: Any, names: Names, arguments: tuple[Any, ...] = ()) -> Shape:
        if kind in SCALARS:
            return Scalar(kind)
        if is_foreign(kind):
            return self._foreign(kind[arguments] if arguments else kind, _called(kind.__name__, arguments))
        if issubclass(kind, Enum):
            return _enum(kind)
        if kind is tuple:
            return Items(Anything(), tuple)
        if kind in _SEQUENCES:
            return Items(Anything(), _SEQUENCES[kind], kind in _UNIQUE)
        if kind in _MAPPINGS:
            return Table(Scalar(str), Anything(), _MAPPINGS[kind])
        if (found := kind_of(kind)) is not None:
            return self._record(kind, found, names, arguments)
        for base in (str, int, float):
            if issubclass(kind, base):
                return Scalar(base, kind)
        raise Unsupported(f"{describe(kind)} cannot be read from JSON; {ADVICE}")

    def _record(self, kind: type, way: str, names: Names, arguments: tuple[Any, ...]) -> Shape:
        key = (kind, arguments)
        name = _called(kind.__name__, arguments)

        def read(hint: Any) -> Shape:
            return self.read(hint, names)

        if way == "namedtuple":
            return self._alias(key, name, lambda: named_tuple(kind, read))
        if (found := self._records.get(key)) is not None:
            return found
        record = self._records[key] = Record(name, kind)
        fill(record, kind, way, read)
        return record

    def _foreign(self, hint: Any, name: str) -> Foreign:
        if hint not in self._adapted:
            self._adapted[hint] = foreign(hint, name)
        return self._adapted[hint]


def choice(values: Iterable[tuple[Any, Any]]) -> Choice:
    """Return a choice of plain values; raise ``Unsupported`` for values JSON does not have."""
    found = tuple(values)
    for plain, _ in found:
        if not isinstance(plain, _PLAIN):
            raise Unsupported(f"{plain!r} is no JSON value; use text, numbers, booleans or None in a Literal")
    return Choice(found)


def _json_of(value: Any) -> Any:
    return value.value if isinstance(value, Enum) else value


def _enum(kind: type[Enum]) -> Choice:
    """By value when all values are plain, else by name."""
    members = list(kind)
    if all(isinstance(member.value, _PLAIN) for member in members):
        return Choice(tuple((member.value, member) for member in members))
    return Choice(tuple((member.name, member) for member in members))


def is_foreign(hint: Any) -> bool:
    """Tell whether pydantic describes this type itself."""
    kind = typing.get_origin(hint) or hint
    return isinstance(kind, type) and hasattr(kind, "__get_pydantic_core_schema__") and "pydantic" in sys.modules


def _needs_pydantic(item: Any) -> bool:
    """Tell whether metadata does more than we understand: a validator, a discriminator."""
    return hasattr(item, "__get_pydantic_core_schema__") or getattr(item, "discriminator", None) is not None


def foreign(hint: Any, name: str) -> Foreign:
    """Return the shape of a type that pydantic knows."""
    from pydantic import TypeAdapter  # noqa: PLC0415 - an optional library, loaded by whoever made the type

    try:
        return Foreign(name, TypeAdapter(hint))
    except (RuntimeError, NameError, TypeError) as error:
        raise Unsupported(f"pydantic cannot describe {name}: {first_line(error)}") from error


def describe(hint: Any) -> str:
    """Return how people write a type."""
    return getattr(hint, "__name__", None) or str(hint).removeprefix("typing.")


def _called(name: str, arguments: tuple[Any, ...]) -> str:
    return "_".join((name, *(describe(argument) for argument in arguments)))


def _value(alias: Any) -> Any:
    """Return what a type alias stands for, with the names in quotes looked up."""
    holder = types.SimpleNamespace(__annotations__={"value": alias.__value__}, __qualname__=alias.__name__)
    return resolve(holder, vars(sys.modules[alias.__module__]))["value"]


def _parameters(kind: type) -> tuple[Any, ...]:
    return getattr(kind, "__parameters__", ())
