"""When a file is not there: which one may have been meant."""

import difflib

from vaka.core.ports.files import Files
from vaka.core.types.content import clean
from vaka.core.types.errors import FileError


async def near_files(files: Files, path: str) -> str:
    """Return `` did you mean …?`` with a file of the same folder whose name is close, else nothing."""
    folder, _, name = path.rstrip("/").rpartition("/")
    try:
        entries = await files.entries(folder or ("/" if path.startswith("/") else ""))
    except FileError:
        return ""
    names = {entry.path.rpartition("/")[2]: entry.path for entry in entries if entry.kind == "file"}
    alike = {known.casefold(): known for known in names}
    found = [alike[name.casefold()]] if name.casefold() in alike else difflib.get_close_matches(name, names, 1, 0.7)
    return clean(f"; did you mean {names[found[0]]!r}?") if found else ""
