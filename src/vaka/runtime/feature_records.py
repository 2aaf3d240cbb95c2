"""What the installed features store of sessions and owners beside their logs."""

from collections.abc import Sequence

from vaka.core.ports.feature_records import FeatureRecords
from vaka.core.ports.store import SessionInfo, Store
from vaka.feature import find_features


def load_feature_records() -> list[FeatureRecords]:
    """Return the records of every feature that stores some."""
    loaders = [(feature, feature.load_records) for feature in find_features()]
    return [feature.load(loader) for feature, loader in loaders if loader is not None]


async def list_copies(store: Store, session: str) -> Sequence[SessionInfo]:
    """Return other sessions with copies of what was said in a session."""
    return [info for records in load_feature_records() for info in await records.list_copies(store, session)]
