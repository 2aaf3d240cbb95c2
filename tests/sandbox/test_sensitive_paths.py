"""A command changes nothing that decides what runs later and reads no credentials, also in a home folder."""

import os
import re
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from vaka.core.ports.sandbox import Sandbox
from vaka.matching.sensitive_paths import HOME_PATHS, SECRETS_IN_HOMES, protected_part_of
from vaka.sandbox.linux import Bubblewrap, Landlock
from vaka.sandbox.sensitive import PROTECTED_NAMES, find_nested_paths, protected_paths, secret_paths
from vaka.testing.sandboxes import run_to_end, shell_command

SANDBOXES: list[Callable[..., Sandbox]] = [Bubblewrap, Landlock]

REWRITTEN = (
    ".bashrc",
    ".profile",
    ".zshrc",
    ".gitconfig",
    ".config/autostart/x.desktop",
    ".config/systemd/user/x.service",
    ".local/bin/x",
    ".ssh/authorized_keys",
    ".config/fish/config.fish",
    ".bash_aliases",
    ".npmrc",
    ".vimrc",
    ".config/git/config",
    ".claude/settings.json",
    ".config/environment.d/x.conf",
    "bin/x",
)

CREDENTIALS = (
    ".ssh/id_ed25519",
    ".aws/credentials",
    ".azure/msal_token_cache.json",
    ".config/gcloud/credentials.db",
    ".kube/config",
    ".docker/config.json",
    ".config/containers/auth.json",
    ".npmrc",
    ".pypirc",
    ".netrc",
    ".pgpass",
    ".config/gh/hosts.yml",
    ".config/hub",
    ".config/glab-cli/config.yml",
    ".git-credentials",
    ".env",
    ".cache/huggingface/token",
    ".huggingface/token",
    ".kaggle/kaggle.json",
    ".cargo/credentials.toml",
    ".gem/credentials",
    ".m2/settings.xml",
    ".gradle/gradle.properties",
    ".composer/auth.json",
    ".config/composer/auth.json",
    ".nuget/NuGet/NuGet.Config",
    ".config/pypoetry/auth.toml",
    ".config/pip/pip.conf",
    ".yarnrc.yml",
    ".bundle/config",
    ".s3cfg",
    ".boto",
    ".config/rclone/rclone.conf",
    ".config/doctl/config.yaml",
    ".config/hcloud/cli.toml",
    ".fly/config.yml",
    ".config/netlify/config.json",
    ".local/share/com.vercel.cli/auth.json",
    ".aliyun/config.json",
    ".oci/config",
    ".terraformrc",
    ".terraform.d/credentials.tfrc.json",
    ".pulumi/credentials.json",
    ".vault-token",
    ".config/op/config",
    ".databrickscfg",
    ".snowsql/config",
    ".my.cnf",
    ".mylogin.cnf",
    ".config/github-copilot/hosts.json",
    ".codex/auth.json",
    ".claude/.credentials.json",
    ".sentryclirc",
    ".config/stripe/config.toml",
    ".config/ngrok/ngrok.yml",
    ".bash_history",
    ".local/share/keyrings/login.keyring",
)


def plant(home: Path, names: tuple[str, ...], text: str = "kept\n") -> None:
    for name in names:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)


async def run(sandbox: Sandbox, script: str, folder: Path, protected: tuple[str, ...]) -> str:
    return (await run_to_end(await sandbox.start(shell_command(script, folder, protected=protected)))).stdout


def attack(name: str) -> str:
    folder = name.rpartition("/")[0]
    return f"mkdir -p './{folder}'; echo evil > './{name}'; rm -rf './{name}'; mv './{folder}' was"


@pytest.mark.parametrize("kind", SANDBOXES)
@pytest.mark.parametrize("exists", [True, False])
async def test_a_command_in_a_home_folder_changes_nothing_that_its_owner_runs(
    kind: Callable[..., Sandbox], tmp_path: Path, exists: bool
) -> None:
    if exists:
        plant(tmp_path, REWRITTEN)
    held = protected_paths(str(tmp_path), homes=[tmp_path])
    await run(kind(secrets=()), f"exec 2>/dev/null; {'; '.join(map(attack, REWRITTEN))}; echo x > free", tmp_path, held)
    found = {name: (tmp_path / name).read_text() for name in REWRITTEN if (tmp_path / name).exists()}
    assert found == (dict.fromkeys(REWRITTEN, "kept\n") if exists else {})
    assert (tmp_path / "free").read_text() == "x\n"


NESTED = (
    "sub/.git/hooks/pre-commit",
    "sub/.git/config",
    "sub/.vscode/tasks.json",
    "sub/vaka.toml",
    "sub/.claude/settings.json",
    "a/b/c/.git/config",
    "a/.github/workflows/ci.yml",
    "a/.npmrc",
    "a/b/.envrc",
    "a/.husky/pre-commit",
    ".npmrc",
)


@pytest.mark.parametrize("kind", SANDBOXES)
async def test_protected_paths_in_folders_below_cannot_be_changed(kind: Callable[..., Sandbox], tmp_path: Path) -> None:
    plant(tmp_path, NESTED)
    held = protected_paths(str(tmp_path))
    script = f"exec 2>/dev/null; {'; '.join(map(attack, NESTED))}; echo x > sub/free; echo x > a/b/free; mv sub was"
    await run(kind(), script, tmp_path, held)
    assert {name: (tmp_path / name).read_text() for name in NESTED} == dict.fromkeys(NESTED, "kept\n")
    assert (tmp_path / "sub/free").exists()
    assert (tmp_path / "a/b/free").exists()


@pytest.mark.parametrize("kind", SANDBOXES)
async def test_links_and_read_only_repositories_below_do_not_keep_commands_from_running(
    kind: Callable[..., Sandbox], tmp_path: Path
) -> None:
    plant(tmp_path, ("sub/.git/config", "a/file"))
    (tmp_path / "sub/.git").chmod(0o555)
    (tmp_path / "a/.claude").symlink_to("../..")
    (tmp_path / "a/.vscode").symlink_to("missing")
    assert await run(kind(), "echo x > a/free && cat a/free", tmp_path, protected_paths(str(tmp_path))) == "x\n"


def test_folders_of_dependencies_are_not_searched(tmp_path: Path) -> None:
    plant(tmp_path, ("node_modules/x/.npmrc", "src/a.py", "src/.vscode/x"))
    assert list(find_nested_paths(str(tmp_path))) == [f"{tmp_path}/src/.vscode"]


@pytest.mark.parametrize("kind", SANDBOXES)
@pytest.mark.parametrize("workspace", ["", "project"])
async def test_no_credential_file_of_a_home_folder_can_be_read(
    kind: Callable[..., Sandbox], tmp_path: Path, workspace: str
) -> None:
    plant(tmp_path, CREDENTIALS, "secret\n")
    folder = tmp_path / workspace
    folder.mkdir(exist_ok=True)
    sandbox = kind(secrets=secret_paths([tmp_path]))
    # /tmp is empty in the sandbox, so that only the workspace shows what is below it
    listed = await run(sandbox, f"grep -rl secret {tmp_path} 2>/dev/null", folder, ())
    assert listed == ""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
async def test_secrets_in_the_closed_home_of_another_user_keep_no_command_from_running(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="vaka-test-", dir="/home") as folder:  # the sandbox has a /tmp of its own
        home = Path(folder)
        plant(home, (".netrc",))
        os.chown(home, 65534, 65534)
        sandbox = Bubblewrap(secrets=secret_paths([home]))
        assert await run(sandbox, f"echo ran; cat {home}/.netrc 2>/dev/null", tmp_path, ()) == "ran\n"


def test_rules_protect_what_the_sandbox_protects() -> None:
    names = (*PROTECTED_NAMES, *(name for name in HOME_PATHS if name != "bin"))
    assert [name for name in names if not protected_part_of(("home", "kim", *name.split("/")))] == []


def _rows_of_the_guide() -> list[tuple[list[str], bool]]:
    text = (Path(__file__).parents[2] / "docs/guides/safety.md").read_text("utf-8")
    rows = [line.split(" | ") for line in text.partition("### Files that run later")[2].splitlines() if "`" in line]
    return [(re.findall(r"`([^`]+)`", cells[0]), cells[1] == "yes") for cells in rows if len(cells) == 3]


def test_the_guide_lists_what_is_protected() -> None:
    rows = _rows_of_the_guide()
    assert [name for names, _ in rows for name in names if not protected_part_of(("w", *name.split("/")))] == []
    also_missing = {name for names, missing in rows if missing for name in names}
    assert {name for name in PROTECTED_NAMES if not name.startswith(".git/")} == also_missing - {".git"}
    text = (Path(__file__).parents[2] / "docs/guides/safety.md").read_text("utf-8")
    free = re.findall(r"`([^`*]+)`", text.partition("These are not protected")[2].partition(" A command that you")[0])
    assert [name for name in free if protected_part_of(("w", name))] == []


@pytest.mark.parametrize("kind", SANDBOXES)
async def test_a_command_leaves_nothing_that_runs_later(kind: Callable[..., Sandbox], tmp_path: Path) -> None:
    names = ("sitecustomize.py", "usercustomize.py", ".exrc", ".nvim.lua", ".pdbrc", ".gdbinit", ".vim/plugin/x.vim")
    await run(kind(), "; ".join(map(attack_without_removal, names)), tmp_path, protected_paths(str(tmp_path)))
    assert [name for name in names if (tmp_path / name).exists()] == []


@pytest.mark.parametrize("kind", SANDBOXES)
async def test_a_branch_with_settings_of_tools_can_be_checked_out(kind: Callable[..., Sandbox], tmp_path: Path) -> None:
    names = (".npmrc", ".yarnrc.yml", ".pre-commit-config.yaml", ".cargo/config.toml", ".githooks/pre-commit")
    git = "git -c user.name=a -c user.email=a@example.org"
    make = f"git init -q . && {git} commit -q --allow-empty -m x && git checkout -q -b with"
    subprocess.run(["bash", "-c", make], cwd=tmp_path, check=True)
    plant(tmp_path, names)
    finish = f"git add -A && {git} commit -qm y && git checkout -q -"
    subprocess.run(["bash", "-c", finish], cwd=tmp_path, check=True)
    script = "git checkout -q with && git status --porcelain && cat .npmrc .cargo/config.toml"
    assert await run(kind(), script, tmp_path, protected_paths(str(tmp_path))) == "kept\nkept\n"


def attack_without_removal(name: str) -> str:
    return f"mkdir -p './{name.rpartition('/')[0]}'; echo evil > './{name}'"


def test_each_secret_path_is_relative_and_listed_once() -> None:
    for paths in (HOME_PATHS, SECRETS_IN_HOMES):
        assert len(set(paths)) == len(paths)
        assert not any(path.startswith(("/", "~")) for path in paths)
