"""The values of ``.claude`` settings in force, merged from all layers, each with its origin."""

from collections.abc import Iterable, Sequence
from typing import Any, cast

import msgspec

from vaka.config.documents import value_at
from vaka.config.settings import MANAGED, SettingsFile
from vaka.project.claude_keys import CLAUDE_KEYS, ClaudeKey, value_problem
from vaka.project.claude_settings import may_set_variable


class EffectiveValue(msgspec.Struct, frozen=True, kw_only=True):
    """The merged value of a key."""

    value: Any
    layer: str
    """The strongest layer that set it."""
    origin: str
    """``file:line``; for a list or an object, the origins of all parts, separated by commas."""
    parts: dict[str, str] = {}
    """Of an object: the origin of each of its names."""
    effect: str = ""
    """Its effect in vaka; ``""`` if it has none."""


def effective_settings(files: Sequence[SettingsFile]) -> dict[str, EffectiveValue]:
    """Return the value of each key that is set; ``files`` are all layers, the weakest first.

    Lists are joined without duplicates, objects are merged by name, and of other values the strongest wins. What a
    project may not set is left out.
    """
    exclusive = any(file.layer == MANAGED and file.document.get("allowManagedPermissionRulesOnly") for file in files)
    merged: dict[str, EffectiveValue] = {}
    for key in CLAUDE_KEYS.values():
        counted = [file for file in files if _counts(key, file)]
        if exclusive and key.name == "permissions.allow":
            counted = [file for file in counted if file.layer == MANAGED]
        value = _merge(key, counted)
        if value is not None:
            merged[key.name] = value
    return merged


def _counts(key: ClaudeKey, file: SettingsFile) -> bool:
    value = value_at(file.document, key.path)
    if value is None or value_problem(key, value):
        return False
    if key.name.startswith("allowManaged") and file.layer != MANAGED:
        return False
    return not file.project or key.project == "yes" or (key.project == "trusted" and file.trusted)


def _merge(key: ClaudeKey, files: Iterable[SettingsFile]) -> EffectiveValue | None:
    merged: Any = None
    layer = ""
    origins = list[str]()
    parts = dict[str, str]()
    for file in files:
        value, origin = value_at(file.document, key.path), file.locate(key.path)
        layer = file.layer
        if key.kind == "texts":
            merged = [*dict.fromkeys((*(merged or ()), *value))]
            origins.append(origin)
        elif key.kind in ("variables", "object"):
            known = cast("dict[str, Any]", merged or {})
            added = {
                name: item for name, item in cast("dict[str, Any]", value).items() if _counts_part(key, file, name)
            }
            merged = {**known, **{name: _join(key, known.get(name), item) for name, item in added.items()}}
            parts |= {name: file.locate((*key.path, name)) for name in added}
        else:
            merged, origins = value, [origin]
    if merged is None:
        return None
    origin = ", ".join(dict.fromkeys((*origins, *parts.values())))
    return EffectiveValue(value=merged, layer=layer, origin=origin, parts=parts, effect=key.effect)


def _counts_part(key: ClaudeKey, file: SettingsFile, name: str) -> bool:
    return key.name != "env" or may_set_variable(file, name)


def _join(key: ClaudeKey, known: Any, added: Any) -> Any:
    """Return the hooks of one event of two layers; another value is replaced."""
    if key.name == "hooks" and isinstance(known, list) and isinstance(added, list):
        return [*cast("list[object]", known), *cast("list[object]", added)]
    return added
