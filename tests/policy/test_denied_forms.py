"""A command that reads or changes a denied file is never allowed, in any spelling; others are not asked about.

bash runs each form in a copy of the project, which shows that the table is true: the form does touch a denied file.
"""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.policy.forms_in_folders import CHANGING_IN_FOLDERS
from tests.policy.forms_that_change import CHANGING_FILES
from tests.policy.forms_that_read import READING
from tests.policy.forms_without_harm import HARMLESS
from vaka.policy.decision import MODES
from vaka.policy.policy import LayeredPolicy
from vaka.policy.rules import Layer
from vaka.policy.tool_targets import spec_of

CHANGING = (*CHANGING_FILES, *CHANGING_IN_FOLDERS)

EDITS, READS = ("Edit(conf/**)", "Edit(**/a.yml)"), ("Read(**/.env)", "Read(secrets/**)")

_OTHER_FILES = {".env", "HEAD~2", "-fdxq", "-fdX"}
"""Words of forms that change files which only the rules about reading deny."""

FILES = {
    "conf/a.yml": "old a\n",
    "conf/c.yml": "old c\n",
    "conf/sub/d.yml": "old d\n",
    "deep/er/a.yml": "old deep\n",
    ".env": "KEY=TOKEN-env\n",
    "app/.env": "KEY=TOKEN-app\n",
    "secrets/key.txt": "TOKEN-key\n",
    "src/main.py": "print(1)\nKEY\n",
    "src/util.py": "x = 1\n",
    "src/data.json": "{}\n",
    "README.md": "# readme KEY\n",
    "x": "new\n",
    "list.txt": "conf/a.yml\n",
    "rlist.txt": ".env\n",
    "Makefile": "all:\n\techo hi\n",
}

GIT = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "LANG": "C.UTF-8",
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@b",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@b",
}

SETUP = r"""
git init -qb main && git add -f . && git commit -qm one && git rm -q --cached .env app/.env
echo .env > .gitignore && git add .gitignore && git commit -qm two
tar cf x.tar -C "$SRC" conf; cd "$SRC"
python3 -c 'from zipfile import *; ZipFile("x.zip", "w").write("conf/a.yml")'
cd "$OLDPWD"; mv "$SRC/x.zip" . && sed 's/old/new/' conf/a.yml > "$SRC/new"
diff -u conf/a.yml "$SRC/new" | sed "s#$SRC/new#b/conf/a.yml#; s#^--- conf#--- a/conf#" > p.diff; rm "$SRC/new"
git add -A && git commit -qm three && echo changed >> src/util.py && echo y > untracked.txt
echo more >> deep/er/a.yml && echo MORE=TOKEN-new >> .env
"""


class Project:
    """A project with denied files, and folders elsewhere."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.root = base / "w"
        self.source = base / "src"
        self.out = base / "out"
        for name, text in FILES.items():
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).write_text(text)
        (self.source / "conf").mkdir(parents=True)
        (self.source / "conf/a.yml").write_text("evil\n")
        self.out.mkdir()
        self.run(SETUP)

    def run(self, command: str, folder: Path | None = None) -> str:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=folder or self.root,
            env={**GIT, "SRC": str(self.source)},
            timeout=30,
            check=False,
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
        )
        return done.stdout + done.stderr

    def write(self, form: str) -> str:
        return form.replace("SRC", str(self.source)).replace("OUT", str(self.out))

    def decide(self, form: str, rules: Sequence[str], mode: str = "default") -> str:
        layer = Layer(name="user", allow=("Bash",), deny=tuple(rules), mode=mode)
        policy = LayeredPolicy([layer], cwd=str(self.root), home="/nonexistent")
        return policy.decide(spec_of("Bash"), {"command": self.write(form)}).decision

    def is_changed_by(self, form: str) -> bool:
        """Return whether bash changes a file that the rules deny to change; in a copy of the project."""
        copy = self.base / "copy"
        shutil.copytree(self.root, copy, symlinks=True)
        before = _state_of(copy)
        output = self.run(self.write(form), copy)
        changed = _state_of(copy) != before or "command not found" in output
        shutil.rmtree(copy)
        return changed


def _state_of(root: Path) -> dict[str, tuple[bytes, int, int]]:
    denied = (*root.glob("conf/**/*"), *root.rglob("a.yml"), *root.rglob(".env"), *root.glob("secrets/*"))
    return {
        str(path.relative_to(root)): (
            path.read_bytes() if path.is_file() else b"",
            path.lstat().st_mode,
            path.lstat().st_nlink,
        )
        for path in denied
        if os.path.lexists(path)
    }


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return Project(tmp_path_factory.mktemp("denied"))


@pytest.mark.parametrize("rules", [EDITS, (*EDITS, *READS)], ids=["edits", "edits-and-reads"])
def test_no_form_that_changes_a_denied_file_is_allowed(project: Project, rules: Sequence[str]) -> None:
    forms = [form for form in CHANGING if len(rules) > 2 or not _OTHER_FILES & {*form.split()}]
    assert [form for form in forms if project.decide(form, rules) == "allow"] == []


def test_no_form_that_reads_a_denied_file_is_allowed(project: Project) -> None:
    assert [form for form in READING if project.decide(form, READS) == "allow"] == []


def test_a_form_that_touches_no_denied_file_is_allowed(project: Project) -> None:
    assert [form for form in HARMLESS if project.decide(form, (*EDITS, *READS)) != "allow"] == []


@pytest.mark.parametrize("mode", MODES)
def test_no_mode_allows_a_form_that_touches_a_denied_file(project: Project, mode: str) -> None:
    forms = (*CHANGING[::6], *READING[::6])
    found = {form: project.decide(form, (*EDITS, *READS), mode) for form in forms}
    assert [form for form, one in found.items() if one == "allow" or (mode == "dontAsk" and one == "ask")] == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("mode", MODES)
def test_no_mode_allows_any_form_that_touches_a_denied_file(project: Project, mode: str) -> None:
    found = {form: project.decide(form, (*EDITS, *READS), mode) for form in (*CHANGING, *READING)}
    assert [form for form, one in found.items() if one == "allow" or (mode == "dontAsk" and one == "ask")] == []


def test_bash_changes_a_denied_file_by_some_of_these_forms(project: Project) -> None:
    assert [form for form in CHANGING[::12] if not project.is_changed_by(form)] == []


@pytest.mark.exhaustive
def test_bash_changes_a_denied_file_by_each_of_these_forms(project: Project) -> None:
    assert [form for form in CHANGING if not project.is_changed_by(form)] == []


def test_bash_changes_no_denied_file_by_harmless_forms(project: Project) -> None:
    assert [form for form in HARMLESS[::8] if "2>/dev/null" not in form and project.is_changed_by(form)] == []


def test_a_reason_names_the_rule_the_file_and_what_to_do(project: Project) -> None:
    layer = Layer(name="user", allow=("Bash",), deny=(*EDITS, *READS))
    policy = LayeredPolicy([layer], cwd=str(project.root), home="/nonexistent")
    other = "name other files, or leave this one out"
    reasons = {
        "sed -i s/a/b/ co*/c.yml": f"Edit(conf/**) matches conf/c.yml (from co*/c.yml); {other}",
        "find conf -name c.yml -delete": f"Edit(conf/**) matches conf/c.yml (from conf); {other}",
        "git show :0:secrets/key.txt": (
            "Read(secrets/**) matches secrets/key.txt (from :0:secrets/key.txt); use another file"
        ),
        "patch -p1 < p.diff": (
            "patch . may change files that Edit(conf/**) matches; name the files, or let it work in another folder"
        ),
        "git log -p": (
            "Read(secrets/**) matches secrets/key.txt (from git log); add the paths that you need, as in '-- src'"
        ),
    }
    found = {command: policy.decide(spec_of("Bash"), {"command": command}).reason for command in reasons}
    assert found == reasons


MEMBERS = ("", " c.yml")


@pytest.mark.parametrize(
    "form",
    [
        "tar xf x.tar -C {}",
        "tar -x -f x.tar --directory={}",
        "tar xf x.tar --directory {}",
        "unzip x.zip -d {}",
        "7z x y.7z -o{}",
        "unar x.zip -o {}",
    ],
)
def test_the_folder_that_an_archive_is_unpacked_in_decides(project: Project, form: str) -> None:
    """What an archive has is not known: only the names of its members tell that no denied file changes."""
    rules = ("Edit(conf/**)",)
    cases = [(folder, member) for folder in ("src", "conf") for member in MEMBERS]
    decisions = [project.decide(form.format(folder) + member, rules) for folder, member in cases]
    assert [decision == "allow" for decision in decisions] == [False, True, False, False]


@pytest.mark.parametrize(
    "form",
    [
        "cp up/*.yml to_conf/",
        "cp up/* to_conf",
        "mv up/* to_conf",
        "cp -r up/. to_conf",
        "rsync -a up/ to_conf/",
        "cp -t to_conf up/*",
    ],
)
def test_files_that_are_put_into_a_folder_behind_a_link_get_their_names_there(tmp_path: Path, form: str) -> None:
    project = Project(tmp_path)
    (project.root / "to_conf").symlink_to("conf")
    (project.root / "up").mkdir()
    (project.root / "up" / "c.yml").write_text("new\n")
    assert project.decide(form, ("Edit(conf/c.yml)",)) != "allow"
    assert project.decide(form, ("Edit(conf/other.yml)",)) == "allow"


@pytest.mark.parametrize(
    ("form", "is_asked"),
    [
        ("T=conf; cp up/*.yml $T", True),
        ("T=conf; cp -t $T up/*", True),
        ("T=conf; cp -t$T up/*.yml", True),
        ("T=conf; mv up/* $T/", True),
        ("T=conf; cp -r up/. $T", True),
        ("T=conf; rsync -a up/ $T/", True),
        ("for d in src conf; do cp up/* $d; done", True),
        ("cp up/* co*", True),
        ("cp up/* c?nf/", True),
        ('cp up/* "$PWD/conf"', True),
        ('cp -t"$PWD/conf" up/*', True),
        ("cp --target-directory=co* up/c.yml", True),
        ("cd src; cp ../up/* ../*", True),
        ("T=$(pwd); cp up/* $T/conf", True),
        ("cp -t$(echo conf) up/c.yml", True),
        ("T=src; cp up/* $T", False),
        ("cp up/* sr*", False),
        ("cp up/* $PWD/src", False),
        ("cp -ts* up/c.yml", False),
        ('cp -t"$PWD/src" up/*', False),
    ],
)
def test_the_folder_that_files_are_put_into_is_known_in_every_spelling(
    project: Project, form: str, is_asked: bool
) -> None:
    (project.root / "up").mkdir(exist_ok=True)
    (project.root / "up" / "c.yml").write_text("new\n")
    assert (project.decide(form, ("Edit(conf/c.yml)",)) != "allow") == is_asked


def test_a_pattern_that_names_many_folders_is_asked_about(tmp_path: Path) -> None:
    project = Project(tmp_path)
    for number in range(70):
        (project.root / f"d{number}").mkdir()
    assert project.decide("cp src/*.py d*", ("Edit(conf/c.yml)",)) == "ask"


@pytest.mark.parametrize(
    ("form", "decision"),
    [
        ("git grep KEY", "ask"),
        ("git grep KEY -- ':!conf'", "allow"),
        ("git grep KEY -- . ':(exclude)conf'", "allow"),
        ("git grep KEY -- ':^conf/sub'", "ask"),
        ("git diff HEAD~1 -- ':!conf'", "allow"),
    ],
)
def test_what_git_leaves_out_is_not_asked_about(project: Project, form: str, decision: str) -> None:
    assert project.decide(form, ("Read(conf/c.yml)",)) == decision


@pytest.mark.parametrize("form", ["git diff --output=conf/c.yml", "git log -p --output conf/c.yml"])
def test_a_file_that_git_writes_what_it_shows_to_is_denied(project: Project, form: str) -> None:
    assert project.decide(form, ("Edit(conf/c.yml)",)) == "deny"
