"""The settings file that stores the rules of a scope."""

import os
from pathlib import Path

from vaka.config.settings import CLAUDE_FOLDER, LOCAL_SETTINGS, USER_SETTINGS, ConfigContext
from vaka.core.types.errors import InvalidInput


def settings_file_for_scope(scope: str, cwd: str, home: Path) -> tuple[Path, Path]:
    """Return the settings file that stores the rules of a scope, and the folder that ``/x`` is relative to in it.

    Raises ``InvalidInput`` where the scope has no file.
    """
    if scope == "user":
        return home / CLAUDE_FOLDER / USER_SETTINGS, home / CLAUDE_FOLDER
    if not cwd or not Path(cwd).is_dir():
        raise InvalidInput(f"the session's folder {cwd!r} does not exist, so no rule can be stored for its project")
    context = ConfigContext(cwd=Path(cwd), home=home, environ={})
    root = context.project_folder or context.repository
    if root == home:
        raise InvalidInput(f"{str(root)!r} is your home directory, not a project; use scope 'user'")
    file = root / CLAUDE_FOLDER / LOCAL_SETTINGS
    if not Path(os.path.realpath(file)).is_relative_to(os.path.realpath(root)):
        raise InvalidInput(f"{file} leads out of the project, so no rule is stored there")
    return file, root
