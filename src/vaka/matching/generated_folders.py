"""Folders that programs fill with many files, which searches before each command leave out or look at last."""

GENERATED_FOLDERS = frozenset(
    {
        "node_modules",
        ".venv",
        "venv",
        "__pycache__",
        "target",
        ".tox",
        ".mypy_cache",
        ".cache",
    }
)
