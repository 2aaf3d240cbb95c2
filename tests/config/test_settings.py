"""Settings from every layer."""

import sys
from pathlib import Path
from typing import Any

import pytest

from vaka.config.documents import line_of, set_toml_key
from vaka.config.setting_keys import (
    SETTING_KEYS,
    check_value,
    find_key,
    find_project_file,
    parse_seconds,
    parse_value,
    read_settings_file,
    write_setting,
)
from vaka.config.settings import (
    ConfigContext,
    data_folder,
    default_store_url,
    load_settings,
    redact_setting,
    unknown_variables,
    user_config_file,
)
from vaka.core.types.errors import ConfigError, InvalidInput
from vaka.policy.decision import MODES

linux = pytest.mark.skipif(sys.platform != "linux", reason="each platform has folders of its own")


@pytest.fixture
def place(tmp_path: Path) -> ConfigContext:
    (tmp_path / "project" / ".git").mkdir(parents=True)
    return ConfigContext(cwd=tmp_path / "project", home=tmp_path / "home", environ={})


def look_again(place: ConfigContext) -> ConfigContext:
    """Return a context that reads files which have changed: a context reads each file once."""
    return ConfigContext(cwd=place.cwd, home=place.home, environ=place.environ)


def with_environ(place: ConfigContext, **environ: str) -> ConfigContext:
    return ConfigContext(cwd=place.cwd, home=place.home, environ=environ)


def write_file(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_the_modes_are_those_of_the_policy() -> None:
    assert SETTING_KEYS["permission_mode"].choices == MODES


@linux
def test_folders_follow_xdg_when_it_is_absolute(tmp_path: Path) -> None:
    assert user_config_file({}, tmp_path) == tmp_path / ".config/vaka/config.toml"
    assert user_config_file({"XDG_CONFIG_HOME": "/c"}, tmp_path) == Path("/c/vaka/config.toml")
    assert data_folder({"XDG_DATA_HOME": "relative"}, tmp_path) == tmp_path / ".local/share/vaka"
    assert default_store_url({"XDG_DATA_HOME": "/a b"}, tmp_path) == "sqlite:////a%20b/vaka/vaka.db"


def test_a_later_layer_wins_and_lists_grow(place: ConfigContext) -> None:
    user = write_file(place.user_file, 'model = "a"\nmax_steps = 3\ndeny = ["x"]\n')
    project = write_file(place.cwd / "vaka.toml", 'model = "b"\ndeny = ["y"]\n')
    settings = load_settings(
        with_environ(place, VAKA_MAX_STEPS="4", VAKA_DENY='["z"]'), {"model": "c", "allow": (), "timeout": None}
    )
    assert (settings["model"], settings.values["model"].origin) == ("c", "--model")
    assert (settings["max_steps"], settings.values["max_steps"].origin) == (4, "VAKA_MAX_STEPS")
    assert settings["deny"] == ("x", "y", "z")
    assert settings.values["deny"].origin == f"{user}:3, {project}:2, VAKA_DENY"
    assert (settings["allow"], settings["timeout"], settings["output"]) == ((), None, "text")


def test_the_nearest_project_file_counts_and_the_repository_is_the_edge(place: ConfigContext) -> None:
    write_file(place.cwd.parent / "vaka.toml", "")
    inside = place.cwd / "a" / "b"
    inside.mkdir(parents=True)
    assert find_project_file(inside) is None
    toml = write_file(place.cwd / "pyproject.toml", "[tool.vaka]\nmax_steps = 2\n")
    assert find_project_file(inside) == toml
    nearer = write_file(place.cwd / "a" / "vaka.toml", "")
    assert find_project_file(inside) == nearer


def test_a_pyproject_without_vakas_table_is_ignored(place: ConfigContext) -> None:
    file = write_file(place.cwd / "pyproject.toml", "this is [[ not toml")
    assert find_project_file(place.cwd) is None
    file.write_bytes(b"\xff\xfe")
    assert find_project_file(place.cwd) is None
    write_file(file, "[tool.other]\nmax_steps = 2\n[tool.vaka]\nmax_steps = 0\n")
    with pytest.raises(ConfigError, match=r"pyproject\.toml:4: max_steps: expected a number above zero, not 0"):
        load_settings(place)
    write_file(file, "tool = 3 # [tool.vaka]\n")
    assert read_settings_file(file) == {}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("store = 3\n", ":1: store: expected a text, not 3"),
        ("\n\nask = 'always'\n", ":3: ask: expected one of wait, suspend, deny, not 'always'"),
        ("allow = 'x'\n", ":1: allow: expected a list of texts"),
        ("allow = ['']\n", ":1: allow: expected a list of texts"),
        ("max_tokens = 1.5\n", ":1: max_tokens: expected a whole number above zero, not 1.5"),
        ("max_steps = true\n", ":1: max_steps: expected a whole number above zero, not True"),
        ("max_budget_usd = inf\n", ":1: max_budget_usd: expected a number above zero, not inf"),
        ("timeout = 'soon'\n", ":1: timeout: expected a time span such as 90, 5m, 12h or 30d, not 'soon'"),
        ("[modles]\nx = 1\n", ":1: unknown key 'modles'; did you mean 'models'?"),
        ("retries = -1\n", ":1: retries: expected a whole number of zero or more, not -1"),
        ("zzz = 1\n", ":1: unknown key 'zzz'; there are store, "),
        ("a = \n", ":1: not TOML"),
        ("a = [\n", "not TOML"),
    ],
)
def test_an_invalid_setting_is_an_error_with_file_and_line(tmp_path: Path, text: str, expected: str) -> None:
    file = write_file(tmp_path / "vaka.toml", text)
    with pytest.raises(ConfigError) as caught:
        read_settings_file(file)
    assert expected in str(caught.value)
    assert str(file) in str(caught.value)


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_settings_file(tmp_path)
    file = tmp_path / "vaka.toml"
    file.write_bytes(b"a = '\xff'")
    with pytest.raises(ConfigError, match="not UTF-8"):
        read_settings_file(file)


def test_a_key_that_cannot_be_found_is_on_the_first_line() -> None:
    assert line_of("x = 1\n", ("y",)) == 1


def test_variables_are_read_like_flags(place: ConfigContext) -> None:
    settings = load_settings(
        with_environ(place, VAKA_TIMEOUT="5m", VAKA_ALLOW="a, b,", VAKA_MAX_BUDGET_USD="0.5", VAKA_ASK="")
    )
    assert (settings["timeout"], settings["allow"], settings["max_budget_usd"]) == (300.0, ("a", "b"), 0.5)
    for name, value in (("VAKA_MAX_STEPS", "x"), ("VAKA_ALLOW", "[1"), ("VAKA_ASK", "maybe")):
        with pytest.raises(ConfigError, match=name):
            load_settings(with_environ(place, **{name: value}))
    assert unknown_variables({"VAKA_MODEL": "", "VAKA_X": "", "OTHER": ""}) == ["VAKA_X"]


def test_flags_are_checked(place: ConfigContext) -> None:
    with pytest.raises(InvalidInput, match="--max-steps: expected"):
        load_settings(place, {"max_steps": 0})
    with pytest.raises(InvalidInput, match="there is no setting 'x'"):
        load_settings(place, {"x": 0})


def test_a_project_can_tighten_but_not_loosen(place: ConfigContext) -> None:
    file = write_file(place.cwd / "vaka.toml", 'permission_mode = "acceptEdits"\nallow = ["pay"]\ndeny = ["add"]\n')
    careful = load_settings(place)
    assert (careful["permission_mode"], careful["allow"], careful["deny"]) == ("default", (), ("add",))
    assert [note.partition(": ")[0] for note in careful.notes] == [f"{file}:1", f"{file}:2"]
    trusting = load_settings(place, trust=True)
    assert (trusting["permission_mode"], trusting["allow"], trusting.notes) == ("acceptEdits", ("pay",), [])
    write_file(file, 'permission_mode = "bypassPermissions"\n')
    assert load_settings(look_again(place), trust=True)["permission_mode"] == "default"
    write_file(file, 'permission_mode = "plan"\n')
    assert load_settings(look_again(place))["permission_mode"] == "plan"


def test_a_project_cannot_take_its_commands_out_of_the_sandbox(place: ConfigContext) -> None:
    file = write_file(place.cwd / "vaka.toml", 'sandbox = "off"\nadd_dir = ["/"]\ncommand_host = ["*"]\n')
    careful = load_settings(place)
    assert (careful["sandbox"], careful["add_dir"], careful["command_host"]) == ("auto", (), ())
    assert len(careful.notes) == 3
    trusting = load_settings(place, trust=True)
    assert (trusting["sandbox"], trusting["add_dir"], trusting["command_host"]) == ("auto", ("/",), ("*",))
    write_file(file, 'sandbox = "on"\nadd_dir = ["../sibling"]\n')
    assert load_settings(look_again(place))["sandbox"] == "on"
    assert load_settings(look_again(place), trust=True)["add_dir"] == (f"{place.cwd}/../sibling",)


def test_a_relative_store_is_beside_the_file_that_names_it(place: ConfigContext) -> None:
    file = write_file(place.cwd / "vaka.toml", 'store = "sqlite:///log.db"\n')
    assert load_settings(place, trust=True)["store"] == f"sqlite:///{place.cwd}/log.db"
    for store in ("memory:", "sqlite:///", "sqlite://host/x", "postgresql://h/d", f"sqlite:///{place.cwd}/x.db"):
        write_file(file, f'store = "{store}"\n')
        assert load_settings(look_again(place), trust=True)["store"] == store


def test_an_untrusted_folder_sets_neither_store_nor_durability(place: ConfigContext) -> None:
    write_file(place.cwd / "vaka.toml", 'store = "sqlite:///theirs.db"\ndurability = "process"\nsnapshots = "off"\n')
    careful = load_settings(place)
    assert [careful.values[name].layer for name in ("store", "durability", "snapshots")] == ["default"] * 3
    assert len(careful.notes) == 3
    trusting = load_settings(place, trust=True)
    assert (trusting["durability"], trusting["snapshots"], trusting.notes) == ("process", "off", [])


def test_a_password_is_hidden() -> None:
    assert redact_setting("store", "postgresql://a:b@h/d") == "postgresql://a:***@h/d"
    assert redact_setting("store", "postgresql://a@h/d") == "postgresql://a@h/d"
    assert redact_setting("allow", ("a",)) == ["a"]


@pytest.mark.parametrize(
    ("text", "value"), [("90", 90), ("1.5s", 1.5), ("5m", 300), ("2 h", 7200), ("30d", 2592000), ("1w", 604800)]
)
def test_time_spans_are_parsed_with_their_units(text: str, value: float) -> None:
    assert parse_seconds(text) == value


def test_values_are_read_by_kind() -> None:
    assert parse_value(find_key("max_steps"), "3") == 3
    assert parse_value(find_key("model"), "local") == "local"
    assert check_value(find_key("timeout"), 3) == 3.0
    with pytest.raises(ValueError, match="number above zero"):
        parse_value(find_key("max_budget_usd"), "nan")


@pytest.mark.parametrize(
    ("before", "name", "value", "after"),
    [
        ("", "model", "x", 'model = "x"\n'),
        ("# a\nmodel = 'y' # b\nask = 'deny'\n", "model", "x", "# a\nmodel = \"x\" # b\nask = 'deny'\n"),
        ("deny = [\n  'a',\n  'b',\n]\nask = 'deny'", "deny", ["c"], "deny = [\"c\"]\nask = 'deny'"),
        ("ask = 'deny'", "max_steps", 3, "ask = 'deny'\nmax_steps = 3\n"),
        ("[table]\nx = 1\n", "max_steps", 3, "max_steps = 3\n[table]\nx = 1\n"),
    ],
)
def test_one_key_is_changed_and_the_rest_is_left(before: str, name: str, value: Any, after: str) -> None:
    assert set_toml_key(before, name, value) == after


def test_settings_are_written_whole_or_not_at_all(tmp_path: Path) -> None:
    file = tmp_path / "new" / "config.toml"
    write_setting(file, find_key("model"), 'a "quoted" \\ name')
    file.chmod(0o640)
    write_setting(file, find_key("max_steps"), 3)
    assert {name: found.value for name, found in read_settings_file(file).items()} == {
        "model": 'a "quoted" \\ name',
        "max_steps": 3,
    }
    assert file.stat().st_mode & 0o777 == 0o640
    assert [path.name for path in file.parent.iterdir()] == ["config.toml"]
    broken = write_file(tmp_path / "vaka.toml", "nonsense")
    for path in (broken, tmp_path / "pyproject.toml", file / "below.toml"):
        with pytest.raises(ConfigError):
            write_setting(path, find_key("model"), "x")
    assert broken.read_text() == "nonsense"


def test_a_changed_key_keeps_its_comment_the_line_ends_and_the_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "vaka.toml"
    before = '\ufeff# mine\r\nmax_steps = 5  # few # only\r\nmodel = "a#b" # x\r\n\r\n[tiers]\r\nlow = "l" # cheap\r\n'
    path.write_bytes(before.encode())
    write_setting(path, SETTING_KEYS["max_steps"], 7)
    write_setting(path, SETTING_KEYS["model"], "c#d")
    write_setting(path, SETTING_KEYS["tiers"], "local", ("tiers", "low"))
    wanted = before.replace("= 5", "= 7").replace("a#b", "c#d").replace('"l"', '"local"')
    assert path.read_bytes().decode() == wanted
