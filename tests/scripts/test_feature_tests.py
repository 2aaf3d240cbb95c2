"""``make test FEATURE=…`` runs the tests of one feature."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.features.trees import list_feature_folders

ROOT = Path(__file__).parents[2]
ENVIRON = {name: value for name, value in os.environ.items() if not name.startswith("MAKE") and name != "MFLAGS"}


def print_commands(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Return what make would run."""
    command = ["make", "--dry-run", "test", *arguments]
    return subprocess.run(command, cwd=ROOT, env=ENVIRON, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("feature", list_feature_folders())
def test_the_tests_of_a_feature_are_its_folder_the_files_of_its_name_and_the_tree_without_it(feature: str) -> None:
    done = print_commands(f"FEATURE={feature}", "ARGS=-x")
    [command] = [line for line in done.stdout.splitlines() if " -m pytest -n " in line]
    words = command.partition("--cov-report=")[2].split()
    options, folder, *files, seam = words
    assert (options, folder, (ROOT / folder).is_dir()) == ("-x", f"tests/{feature}", True)
    elsewhere = {
        str(path.relative_to(ROOT))
        for path in [*ROOT.glob(f"tests/**/test_{feature}.py"), *ROOT.glob(f"tests/**/test_{feature}_*.py")]
        if path.relative_to(ROOT).parts[1] != feature
    }
    assert (set(files), len(files)) == (elsewhere, len(elsewhere))
    assert seam.strip('"').startswith("tests/features/test_seams.py::")
    assert f"[{feature}]" in seam


def test_an_unknown_feature_is_an_error_that_lists_the_known_ones() -> None:
    done = print_commands("FEATURE=memories")
    features = " ".join(list_feature_folders())
    assert (done.returncode, done.stdout) == (2, "")
    assert f"there is no feature 'memories'; the features are: {features}." in done.stderr
