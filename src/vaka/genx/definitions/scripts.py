"""The scripts of definitions: inline, or in a file inside of the project."""

from pathlib import Path

from vaka.config.documents import read_errors
from vaka.core.types.errors import ConfigError
from vaka.genx.definitions.fields import DefinitionFields, join_words
from vaka.genx.definitions.tools import ScriptDefinition

FILE_KEYS = ("lua_file", "script_file")
SCRIPT_KEYS = ("lua", "lua_file", "script", "script_file")
MAX_SCRIPT_BYTES = 1024 * 1024


def parse_script(fields: DefinitionFields) -> ScriptDefinition:
    """Return the script that exactly one of the four keys gives."""
    given = [key for key in SCRIPT_KEYS if fields.get(key) is not None]
    if len(given) != 1:
        names = join_words(SCRIPT_KEYS)
        fields.fail(f"only one of {names} may be set, got {' and '.join(given)}" if given else f"{names} is required")
        return ScriptDefinition()
    key = given[0]
    text = fields.required_text(key, f"{key} is empty")
    if key in FILE_KEYS:
        return _find_script(fields, key, text) if text.strip() else ScriptDefinition()
    _check_source(fields, key, text, str(fields.values.get("name", "")))
    return ScriptDefinition(text=text)


def read_script(script: ScriptDefinition) -> str:
    """Return the text of a script. Raises ``ConfigError`` for a file that cannot be read."""
    if script.path is None:
        return script.text
    with read_errors(script.path):
        with script.path.open("rb") as file:
            data = file.read(MAX_SCRIPT_BYTES + 1)
        if len(data) > MAX_SCRIPT_BYTES:
            raise ConfigError(f"{script.path}: larger than the {MAX_SCRIPT_BYTES} bytes a script may have")
        return data.decode("utf-8-sig")


def _find_script(fields: DefinitionFields, key: str, name: str) -> ScriptDefinition:
    """Return the script in the first folder that has the file."""
    folders = fields.settings.script_folders
    if not folders:
        return ScriptDefinition(file=name)
    root = folders[-1].resolve()
    try:
        path = next((file.resolve() for folder in folders if (file := folder / name).is_file()), None)
    except (OSError, ValueError):  # a name that has a NUL character or is too long
        path = None
    if Path(name).is_absolute() or (path is not None and not path.is_relative_to(root)):
        fields.fail(f"{key}: {name!r} is not inside of {root}", key)
    elif path is None:
        fields.fail(f"{key}: {name!r} not found in {join_words([str(folder) for folder in folders])}", key)
    else:
        libs = (path.parent.parent / "libs").resolve()
        has_libs = libs.is_dir() and libs.is_relative_to(root)
        script = ScriptDefinition(file=name, path=path, libs=libs if has_libs else None)
        try:
            _check_source(fields, key, read_script(script), name)
        except ConfigError as error:
            fields.fail(f"{key}: {error}", key)
        return script
    return ScriptDefinition(file=name)


def _check_source(fields: DefinitionFields, key: str, source: str, name: str) -> None:
    check = fields.settings.checks.luau
    problem = check(source, name) if check is not None and source.strip() else ""
    if problem:
        fields.fail(f"{key}: {' '.join(problem.split())}", key)
