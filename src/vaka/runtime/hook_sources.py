"""The hooks that settings files define, after the switches that turn hooks off."""

from collections.abc import Sequence

from vaka.config.claude_settings import MANAGED, SettingsFile
from vaka.hooks.definition import Hook, ParsedHooks, parse_hooks


def hooks_of_files(files: Sequence[SettingsFile]) -> ParsedHooks:
    """Return the hooks of all settings files, the weakest first, and what is wrong or was ignored.

    A project that is not trusted runs no hooks. ``disableAllHooks`` switches off all but the administrator's, whose
    ``allowManagedHooksOnly`` does the same.
    """
    managed_only = any(_is_switched_off(file) for file in files)
    hooks: list[Hook] = []
    notes: list[str] = []
    for file in files:
        if "hooks" not in file.document:
            continue
        managed = file.layer == MANAGED
        if managed_only and not managed:
            notes.append(f"{file.path}: its hooks are switched off by settings")
        elif not file.trusted:
            notes.append(f"{file.path}: its hooks do not run, since the folder is not trusted (`vaka trust`)")
        else:
            parsed = parse_hooks({"hooks": file.document["hooks"]}, origin=str(file.path), managed=managed)
            hooks += parsed.hooks
            notes += parsed.problems
    return ParsedHooks(tuple(hooks), tuple(notes))


def _is_switched_off(file: SettingsFile) -> bool:
    only_managed = file.layer == MANAGED and file.document.get("allowManagedHooksOnly") is True
    return file.document.get("disableAllHooks") is True or only_managed
