"""Keyword arguments: their signatures, and errors for unknown ones with the name that was probably meant."""

import functools
import inspect
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import Any, ParamSpec, TypeVar

import msgspec

P = ParamSpec("P")
R = TypeVar("R")


class Unset:
    """The default of an argument that is documented elsewhere; signatures show it as ``...``."""

    def __repr__(self) -> str:
        return "..."


class UnevaluatedSignature(msgspec.StructMeta):
    """The metaclass of structs of keyword arguments whose fields have types that are not imported at run time.

    msgspec evaluates all annotations for a signature, so ``help`` and ``inspect.signature`` would raise ``NameError``.
    """

    @property
    def __signature__(self) -> inspect.Signature:
        kinds = {
            name: kind
            for base in reversed(self.__mro__)
            for name, kind in vars(base).get("__annotations__", {}).items()
        }
        required = len(self.__struct_fields__) - len(self.__struct_defaults__)
        defaults = (*[msgspec.NODEFAULT] * required, *self.__struct_defaults__)
        return inspect.Signature(
            [
                inspect.Parameter(
                    name,
                    inspect.Parameter.KEYWORD_ONLY,
                    default=inspect.Parameter.empty if default is msgspec.NODEFAULT else default,
                    annotation=kinds[name],
                )
                for name, default in zip(self.__struct_fields__, defaults, strict=True)
            ]
        )


def unknown_keyword_error(function: str, name: str, known: Iterable[str]) -> TypeError:
    """Return the error for a keyword argument that a function does not take."""
    near = get_close_matches(name, list(known), n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return TypeError(f"{function}() got an unexpected keyword argument {name!r}{hint}")


def suggest_keywords(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function whose unknown keyword arguments are reported with a suggestion."""
    code: Any = getattr(function, "__code__")  # noqa: B009  # a Python function has one, a Callable need not
    known = frozenset(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])

    @functools.wraps(function)
    def call_checked(*args: P.args, **kwargs: P.kwargs) -> R:
        if kwargs and not known.issuperset(kwargs):
            unknown = next(name for name in kwargs if name not in known)
            raise unknown_keyword_error(function.__qualname__.removesuffix(".__init__"), unknown, known)
        return function(*args, **kwargs)

    return call_checked
