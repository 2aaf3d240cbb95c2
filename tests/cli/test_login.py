"""``vaka login``: where keys are stored, what is refused, and that every lookup of a model finds them."""

import os
import stat
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.cli.chat.chat_terminal import CTRL_D, ENTER, ChatTerminal
from tests.cli.shell import Shell
from vaka.cli.kit.bootstrap import collect_secrets
from vaka.cli.main import cli
from vaka.core.session.redaction import Secrets
from vaka.core.types.errors import AuthenticationFailed, ConfigError
from vaka.runtime import providers
from vaka.runtime.model_registry import ModelConfig, ModelRegistry
from vaka.runtime.stored_keys import key_environment, stored_keys_of

KEY = "sk-proj-" + "4f7Zq0" * 5

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "chat.md"
FIRST_SCREEN = (
    GUIDE.read_text("utf-8").partition("## The first start\n")[2].partition("```text\n")[2].partition("```")[0]
)

SECRET_TOOL = """#!/bin/sh
# A keyring in a folder: each key is a file named after its variable.
echo "$@" >> "$KEYRING/calls"
for last; do :; done
test -e "$KEYRING/locked" && { echo "the keyring is locked" >&2; exit 1; }
case "$1" in
  store) cat > "$KEYRING/$last" ;;
  lookup) cat "$KEYRING/$last" 2> /dev/null ;;
  clear) rm "$KEYRING/$last" ;;
esac
"""

KEYRING_PACKAGE = """
from types import SimpleNamespace

class KeyringError(Exception): ...

errors = SimpleNamespace(KeyringError=KeyringError)
priority, keys = 5, {}

def get_keyring(): return SimpleNamespace(priority=priority)
def get_password(service, name): return keys.get((service, name))
def set_password(service, name, key): keys[service, name] = key
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the configuration folder of a user without keys and without a keyring."""
    for name in (*os.environ,):
        if name.endswith(("_API_KEY", "_TOKEN", "_BASE_URL")) or name.startswith("VAKA_"):
            monkeypatch.delenv(name)
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "conf"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("LANG", "C.UTF-8")
    return tmp_path / "conf" / "vaka"


@pytest.fixture
def keyring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install a program ``secret-tool`` and return the folder in which it keeps keys."""
    folder = tmp_path / "keyring"
    folder.mkdir()
    program = tmp_path / "bin" / "secret-tool"
    program.write_text(SECRET_TOOL)
    program.chmod(0o755)
    monkeypatch.setenv("KEYRING", str(folder))
    return folder


def vaka(*words: str, input: str = "") -> Result:
    return CliRunner().invoke(cli, [*words], input=input)


def key_of(name: str) -> str:
    provider = providers.find(name)
    assert provider is not None
    return providers.resolve_account(provider, key_environment()).key


def test_a_key_is_stored_in_the_keyring_used_by_models_listed_without_its_value_and_removed(
    home: Path, keyring: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = vaka("login", "openai", "--stdin", input=f"{KEY}\n")
    assert (done.exit_code, done.stderr) == (0, "The key of openai is stored in the system keyring.\n")
    assert (keyring / "OPENAI_API_KEY").read_text() == KEY
    assert KEY not in (keyring / "calls").read_text()
    assert [KEY in file.read_text() for file in home.rglob("*.json")] == [False]
    assert (key_of("openai"), key_of("openai-chat")) == (KEY, KEY)
    secrets = Secrets()
    ModelRegistry(ModelConfig(), secrets).find("openai/gpt-x")
    assert secrets.redact_data(f"the key {KEY}") == "the key [redacted]"
    lists = [vaka(*words).output for words in (("login", "--list"), ("models", "list"), ("doctor",))]
    assert ["keyring" in text for text in lists] == [True, True, True]
    assert KEY not in "".join(lists)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-environment")
    assert key_of("openai") == "sk-of-the-environment"
    monkeypatch.delenv("OPENAI_API_KEY")
    (keyring / "locked").touch()
    with pytest.raises(AuthenticationFailed, match=r"OPENAI_API_KEY was stored in the system keyring.*is locked"):
        key_of("openai")
    assert "cannot be removed from the system keyring: secret-tool lookup" in str(vaka("logout", "openai").exception)
    (keyring / "locked").unlink()
    assert "The key of openai is removed." in vaka("logout", "openai").stderr
    assert sorted(file.name for file in keyring.iterdir()) == ["calls"]
    with pytest.raises(AuthenticationFailed, match="set OPENAI_API_KEY, or store it with `vaka login openai`"):
        key_of("openai")
    assert "there is no stored key for openai" in str(vaka("logout", "openai").exception)


def test_without_a_keyring_a_key_is_stored_in_a_file_of_its_owner_and_redacted(home: Path, keyring: Path) -> None:
    (keyring / "locked").touch()
    done = vaka("login", "gemini", "--stdin", "--force", input=f" {KEY}\n")
    file = home / "stored_keys" / "GEMINI_API_KEY.json"
    assert f"is stored in {file}" in done.stderr
    assert "The system keyring was not used: secret-tool store: the keyring is locked." in done.stderr
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert key_of("gemini") == KEY
    assert KEY in collect_secrets(os.environ, "memory:")
    file.chmod(0o644)
    with pytest.raises(ConfigError, match="other users can read it; run chmod 600"):
        key_of("gemini")
    vaka("login", "gemini", "--stdin", "--force", input=KEY)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_keyring_of_the_package_keyring_is_used_unless_it_does_not_encrypt(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "keyring.py").write_text(KEYRING_PACKAGE)
    monkeypatch.syspath_prepend(tmp_path / "modules")
    try:
        assert "in the system keyring" in vaka("login", "openai", "--stdin", input=KEY).stderr
        assert (key_of("openai"), KEY in (home / "stored_keys" / "OPENAI_API_KEY.json").read_text()) == (KEY, False)
        sys.modules["keyring"].priority = 0.5  # type: ignore[attr-defined]  # of the module above
        assert "there is no system keyring" in vaka("login", "openai", "--stdin", input=KEY).stderr
        sys.modules["keyring"].priority = 5  # type: ignore[attr-defined]  # as above
        vaka("login", "openai", "--stdin", input=KEY)
        sys.modules["keyring"].keys.clear()
        assert "is removed" in vaka("logout", "openai").stderr
    finally:
        del sys.modules["keyring"]


def test_a_variable_of_the_process_wins_over_a_stored_key_of_another_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    stored_keys_of(os.environ).add("GEMINI_API_KEY", "stored-key-0123")
    monkeypatch.setenv("GOOGLE_API_KEY", "key-of-the-process")
    assert key_of("gemini") == "key-of-the-process"


@pytest.mark.parametrize(
    ("words", "key", "message"),
    [
        (("anthropic",), "", "the key is empty"),
        (("anthropic",), "'sk-ant-0123456789'", "the key is in quotes"),
        (("anthropic",), "sk-ant-0123 456789", "the key holds whitespace"),
        (("anthropic",), "sk-ant-01234\nsk-ant-56789", "the key holds whitespace, or there are several lines"),
        (("anthropic",), "export ANTHROPIC_API_KEY=sk-ant-0123456789", "this is an assignment of a variable"),
        (("anthropic",), "Bearer sk-ant-0123456789", "leave out the word Bearer"),
        (("anthropic",), "sk-ant-0123456789…", "a character that no key has"),
        (("anthropic",), "sk-ant", "the key has 6 characters"),
        (("gemini",), "sk-ant-0123456789", "this looks like a key of anthropic; run `vaka login anthropic`"),
        (("openai",), "sk-ant-0123456789", "this looks like a key of anthropic"),
        (("anthropic", "sk-ant-0123456789"), "", "a key must not be an argument"),
        (("sk-ant-0123456789",), "", "this is not a provider; expected one of openai, anthropic"),
        (("anthropi",), "", "'anthropi' is not a provider"),
    ],
)
def test_what_cannot_be_a_key_is_refused_and_not_repeated(words: tuple[str, ...], key: str, message: str) -> None:
    done = vaka("login", *words, "--stdin", input=key)
    assert (done.exit_code, message in done.output, "0123" in done.output) == (2, True, False)
    assert vaka("login", "--list", "--json").output == '{"keys":[]}\n'


def test_a_new_user_chooses_a_model_and_enters_a_key_that_is_not_shown_before_the_chat_begins(shell: Shell) -> None:
    key = "sk-ant-0123456789"
    with ChatTerminal(shell) as chat:
        chat.expect("number (Enter leaves):")
        assert FIRST_SCREEN.strip() in chat.text
        chat.send(f"2{ENTER}")
        chat.expect("key of anthropic (it is not shown):")
        chat.send(f"'{key}'{ENTER}")
        chat.expect("error: the key is in quotes; leave them out")
        chat.expect("key of anthropic (it is not shown):", times=2)
        chat.send(f"{key}{ENTER}")
        chat.expect("anthropic/claude-sonnet-5-5 is your model now")
        chat.expect("❯")
        assert key not in chat.text
        chat.send(CTRL_D)
        chat.wait_exit()
    assert shell.vaka("config", "get", "model").out == "anthropic/claude-sonnet-5-5\n"
    refused = shell.vaka("run", "Hello.", "--model", "openai/x")
    assert (refused.code, "store it with `vaka login openai`" in refused.err) == (4, True)
