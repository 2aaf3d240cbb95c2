"""The feature ``memory``: what agents keep of owners and sessions, and find again."""

from typing import TYPE_CHECKING

from vaka.feature import Feature

if TYPE_CHECKING:
    from vaka.core.ports.feature_records import FeatureRecords


def load_records() -> "FeatureRecords":
    from vaka.memory.stored_records import MemoryRecords

    return MemoryRecords()


FEATURE = Feature(name="memory", load_records=load_records)
