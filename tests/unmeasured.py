"""The environment of processes that are not measured for coverage: measuring one takes longer than running it."""

import os
from collections.abc import Mapping


def without_coverage(env: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return an environment in which a new process is not measured."""
    return {name: value for name, value in env.items() if not name.startswith("COVERAGE_PROCESS_")}
