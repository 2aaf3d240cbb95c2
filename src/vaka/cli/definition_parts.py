"""What the checks of definitions get from other folders. Imported on first use."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vaka.config.model_files import read_model_file
from vaka.config.setting_keys import read_settings_file
from vaka.luau.program import BytecodeCache
from vaka.tools.builtin import TOOLS


class CommandParts:
    """Implements ``CheckParts``."""

    def __init__(self) -> None:
        self._bytecode = BytecodeCache()

    def is_builtin_tool(self, name: str) -> bool:
        return name in TOOLS

    def compile_script(self, source: str, name: str) -> object:
        return self._bytecode.compile(source, name)

    def read_setting(self, file: Path, name: str) -> Any:
        setting = read_settings_file(file).get(name)
        return None if setting is None else setting.value

    def read_model_file(self, file: Path) -> tuple[Sequence[str], Sequence[str]]:
        found = read_model_file(file, os.environ)
        return [model.name for model in found.models], found.notes
