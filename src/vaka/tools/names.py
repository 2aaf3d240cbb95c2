"""Names that every model provider takes."""

import hashlib
import re

_GOOD = re.compile(r"[A-Za-z0-9_-]{1,64}").fullmatch
_BAD = re.compile(r"[^A-Za-z0-9_-]")


def sanitised(name: str) -> str:
    """Return the name, or for one that providers refuse always the same name that they take."""
    if _GOOD(name):
        return name
    plain = _BAD.sub("_", name)
    if len(plain) <= 64 and plain.strip("_-"):
        return plain
    mark = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{plain[:55].strip('_') or 'tool'}_{mark}"
