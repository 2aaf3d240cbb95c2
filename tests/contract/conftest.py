"""The plain run samples the matrix of attacks × sandboxes; ``-m ""`` runs all of it."""

import pytest

SAMPLED = (
    "TestBubblewrapAtHome",
    "TestBubblewrapWhereTheKernelIsOld",
    "TestLandlockWithNamespaces",
    "TestLandlockAlone",
    "TestLandlockWithNamespacesAtHome",
    "TestLandlockAloneAtHome",
)
"""Each case runs in one of these classes; ``TestBubblewrap``, the default sandbox, runs them all."""


@pytest.hookimpl(tryfirst=True)  # before pytest deselects by mark
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    seen: dict[str, int] = {}
    for item in items:
        parent = item.parent.name if item.parent is not None else ""
        if parent not in SAMPLED or not isinstance(item, pytest.Function) or not hasattr(item, "callspec"):
            continue
        test = f"{parent}.{item.originalname}"
        seen[test] = seen.get(test, -1) + 1
        if seen[test] % len(SAMPLED) != SAMPLED.index(parent):
            item.add_marker(pytest.mark.exhaustive)
