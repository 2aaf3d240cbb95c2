"""The feature ``threads``: sessions as threads of messages, with owner, state and limits."""

from vaka.feature import Feature

FEATURE = Feature(name="threads")
