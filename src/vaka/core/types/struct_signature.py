"""Signatures of structs with annotations that only type checkers can evaluate."""

import inspect

import msgspec


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
