"""The machine that the numbers were measured on."""

import os
import platform
import sqlite3
from importlib import metadata

LIBRARIES = ("vaka", "msgspec", "jsonschema-rs", "httpx2", "asyncpg")


def load_average() -> str:
    """Return the load of the last one, five and fifteen minutes."""
    return " ".join(f"{value:.2f}" for value in os.getloadavg())


def describe_machine() -> dict[str, str]:
    return {
        "cpus": str(os.cpu_count()),
        "processor": _processor(),
        "system": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}, asyncio's own loop",
        "libraries": ", ".join(f"{name} {_version(name)}" for name in LIBRARIES),
        "sqlite": f"{sqlite3.sqlite_version}; process: WAL, synchronous=normal; power: WAL, synchronous=full",
        "load before": load_average(),
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:  # noqa: PTH123  # a file of the kernel
            return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "–"
