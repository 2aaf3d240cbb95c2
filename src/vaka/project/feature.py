"""The feature ``project``: the content of ``.claude`` folders."""

from vaka.feature import Feature

FEATURE = Feature(name="project")
