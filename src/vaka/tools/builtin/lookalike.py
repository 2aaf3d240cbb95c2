"""When a file is not there: which one may have been meant."""

import difflib

from vaka.core.ports.tool import ToolContext
from vaka.core.types.content import clean
from vaka.core.types.errors import FileError
from vaka.tools.builtin.trees import shows


async def near_files(context: ToolContext, path: str) -> str:
    """Return `` did you mean …?`` with a file of the same folder whose name is close, else nothing."""
    files = context.files
    shown = shows(files, context.world.may_read)
    folder, _, name = path.rstrip("/").rpartition("/")
    try:
        entries = await files.entries(folder or ("/" if path.startswith("/") else ""))
    except FileError:
        return ""
    names = {
        entry.path.rpartition("/")[2]: entry.path for entry in entries if entry.kind == "file" and shown(entry.path)
    }
    alike = {known.casefold(): known for known in names}
    found = [alike[name.casefold()]] if name.casefold() in alike else difflib.get_close_matches(name, names, 1, 0.7)
    return clean(f"; did you mean {names[found[0]]!r}?") if found else ""
