"""Apply what ``.claude`` files set to vaka's own settings."""

from collections.abc import Sequence
from typing import cast

from vaka.config.setting_keys import SETTING_KEYS
from vaka.config.settings import MANAGED, SettingLayer, Settings, SettingsFile, SettingValue
from vaka.project.claude_settings import (
    ALLOWED_HOSTS,
    MODEL_TIERS,
    allowed_hosts_of,
    ignored_variables,
    settings_auto_compact,
    settings_model,
    settings_sandbox,
)


def apply_claude_settings(settings: Settings, files: Sequence[SettingsFile]) -> None:
    """Apply the model, the sandbox, compaction and hosts of commands, unless vaka's own settings set them."""
    model, origin, layer = settings_model(files)
    if model not in MODEL_TIERS.values() or model in settings["tiers"]:
        _apply_claude_value(settings, "model", model, origin, layer)
    _apply_claude_value(settings, "sandbox", *settings_sandbox(files))
    enabled, origin, layer = settings_auto_compact(files)
    if enabled is not None and ("enabled" not in settings["compaction"] or layer == MANAGED):
        value = SettingValue({"enabled": enabled}, origin, cast("SettingLayer", layer))
        settings.add(SETTING_KEYS["compaction"], value)
    for file in files:
        hosts = allowed_hosts_of(file)
        if hosts:
            origin = file.locate(ALLOWED_HOSTS)
            settings.add(SETTING_KEYS["command_host"], SettingValue(hosts, origin, cast("SettingLayer", file.layer)))
    settings.notes.extend(ignored_variables(files))


def _apply_claude_value(settings: Settings, name: str, value: str, origin: str, layer: str) -> None:
    own = settings.values[name]
    if not value or (own.layer != "default" and layer != MANAGED):
        return
    if own.layer != "default" and own.value != value:
        settings.notes.append(f"{own.origin}: {name} does not count: managed settings set it ({origin})")
    settings.values[name] = SettingValue(value, origin, cast("SettingLayer", layer))
