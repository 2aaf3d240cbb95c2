"""What the shell gives that cannot be used is reported with what to do: stdin, the home directory, stores, keys."""

import json

import pytest

from tests.cli.shell import Shell
from vaka.cli.kit.errors import UsageError
from vaka.cli.turn.input import decode_stdin


def test_binary_stdin_is_refused() -> None:
    for data in (b"\x7fELF\0\1", b"text\0", b"\xff\xfe\0"):
        with pytest.raises(UsageError, match=r"stdin is binary data, not text; .* --attach"):
            decode_stdin(data)


def test_stdin_that_is_not_utf_8_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert decode_stdin(b"caf\xe9 na\xefve") == "caf\ufffd na\ufffdve"
    assert "note: stdin is not UTF-8: U+FFFD replaces 2 bytes of it, the first is 0xe9" in capsys.readouterr().err


def test_text_in_other_encodings_with_a_mark_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    assert decode_stdin("Grüße".encode("utf-16")) == "Grüße"
    assert decode_stdin("Grüße".encode("utf-8-sig")) == "Grüße"
    assert capsys.readouterr().err == ""


def test_an_empty_home_is_an_error(shell: Shell) -> None:
    for home, problem in (("", "is empty"), ("here", "is 'here', which is not an absolute path")):
        done = shell.vaka("sessions", "list", HOME=home)
        assert (done.code, f"the variable HOME {problem}; set it" in done.err) == (3, True), done.err
    assert not (shell.folder / ".local").exists()


def test_a_store_in_a_missing_folder_is_an_error(shell: Shell) -> None:
    missing = shell.folder / "missing" / "x.db"
    done = shell.vaka("sessions", "list", "--store", f"sqlite:///{missing}")
    assert (done.code, str(missing) in done.err, missing.parent.exists()) == (3, True, False), done.err


def test_a_scripted_authentication_error_has_the_exit_code_of_a_real_one(shell: Shell) -> None:
    model = shell.write_script({"error": {"status": 401, "message": "bad key"}})
    done = shell.vaka("run", "Hi.", "--model", model, "--store", "memory:")
    assert (done.code, "authentication failed: bad key (status 401)" in done.err) == (4, True), done.err


def test_an_error_shows_no_secret(shell: Shell) -> None:
    message = "bad header Authorization: Bearer a1B2c3D4e5F6g7H8i9J0k1"
    model = shell.write_script({"error": {"status": 400, "message": message}})
    done = shell.vaka("run", "Hi.", "--model", model, "--store", "memory:", "--output", "json")
    assert (done.code, "a1B2c3D4" in done.err, "[redacted]" in done.err) == (6, False, True), done.err
    assert "a1B2c3D4" not in json.dumps(done.json)
