"""The settings tables about models: validation, trust, and changing one value."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from vaka.config.documents import line_of, set_toml_key
from vaka.config.model_tables import TIERS, ModelEntry, PriceEntry, check_table
from vaka.config.setting_keys import (
    SETTING_KEYS,
    find_project_file,
    parse_key_path,
    parse_value,
    read_settings_file,
    write_setting,
)
from vaka.config.settings import ConfigContext, load_settings, redact_setting
from vaka.core.types.errors import ConfigError, InvalidInput
from vaka.models.options import ModelOptions

KEY = "sk-something-secret"

FULL_SETTINGS = """
retries = 2
model_files = ["models", "~/shared.yaml"]

[models.fast]
provider = "openai"
model = "gpt-x-mini"
options = { temperature = 0, reasoning = "low" }
fallback = ["slow"]
retries = 0
requests_per_minute = 60
tokens_per_minute = 90000
concurrent = 4
price = { input = 0.1, output = 0.4 }

[models.slow]
model = "anthropic/claude-x"

[models.house]
base_url = "https://models.example.com/v1"
wire = "chat"
model = "house-7b"
key_env = "HOUSE_KEY"
headers = { x-team = "boats" }
text_calls = true

[tiers]
low = "fast"
high = "slow"

[subagents]
Explore = "low"

[prices."gpt-4.1"]
input = 2
output = 8.0
cache_read = 0.5
"""


@pytest.fixture
def place(tmp_path: Path) -> ConfigContext:
    (tmp_path / "project" / ".git").mkdir(parents=True)
    return ConfigContext(cwd=tmp_path / "project", home=tmp_path / "home", environ={})


def write_file(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_can_have_every_table(place: ConfigContext) -> None:
    file = write_file(place.user_file, FULL_SETTINGS)
    settings = load_settings(place)
    assert settings["models"] == {
        "fast": ModelEntry(
            provider="openai",
            model="gpt-x-mini",
            options={"temperature": 0, "reasoning": "low"},
            fallback=("slow",),
            retries=0,
            requests_per_minute=60,
            tokens_per_minute=90000,
            concurrent=4,
            price=PriceEntry(input=0.1, output=0.4),
        ),
        "slow": ModelEntry(model="anthropic/claude-x"),
        "house": ModelEntry(
            base_url="https://models.example.com/v1",
            wire="chat",
            model="house-7b",
            key_env="HOUSE_KEY",
            headers={"x-team": "boats"},
            text_calls=True,
        ),
    }
    assert (settings["tiers"], settings["subagents"]) == ({"low": "fast", "high": "slow"}, {"explore": "low"})
    assert settings["prices"] == {"gpt-4.1": PriceEntry(input=2, output=8, cache_read=0.5)}
    assert settings["retries"] == 2
    assert settings["model_files"] == (str(file.parent / "models"), str(Path("~/shared.yaml").expanduser()))
    assert settings.values["models"].parts == {"fast": f"{file}:5", "slow": f"{file}:16", "house": f"{file}:19"}
    assert settings.values["tiers"].parts["high"] == f"{file}:29"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[models.x]\nprovider = 'openai'\nmodle = 'm'\n", ":3: models.x: unknown key 'modle'; did you mean 'model'?"),
        ("[models.x]\nprovider = 'openai'\n", ":1: models.x: model is missing"),
        ("[models.x]\nmodel = ''\n", ":2: models.x.model: expected the provider's name of the model"),
        ("[models.x]\nmodel = 'gpt'\n", ":2: models.x.model: expected provider, or a model such as 'openai/gpt'"),
        ("[models.x]\nmodel = 'm'\n\nretries = -1\nprovider = 'a'\n", ":4: models.x.retries: expected `int` >= 0"),
        ("[models.x]\nmodel = 'm'\nbase_url = 'https://h'\n", ":1: models.x: base_url needs wire"),
        ("[models.x]\nmodel = 'm'\nbase_url = 'h:1'\nwire = 'chat'\n", ":3: models.x.base_url: expected an address"),
        (
            "[models.x]\nmodel = 'm'\nbase_url = 'https://h/v1?key=k'\nwire = 'chat'\n",
            ":3: models.x.base_url: expected an address such as https://api.example.com/v1, without a query",
        ),
        (
            "[models.x]\nmodel = 'm'\nbase_url = 'https://h/v1#k'\nwire = 'chat'\n",
            ":3: models.x.base_url: expected an address such as https://api.example.com/v1, without a query",
        ),
        ("[models.x]\nmodel = 'm'\nwire = 'chat'\n", ":3: models.x.wire: wire is for a server of your own"),
        ("[models.x]\nmodel = 'm'\nprovider = 'a'\nwire = 'chat'\n", ":4: models.x.wire: a provider implies its wire"),
        ("[models.x]\nmodel = 'm'\nwire = 'soap'\nbase_url = 'https://h'\n", ":3: models.x.wire: invalid enum value"),
        ("[models.'a/b']\nmodel = 'm'\n", ":1: models.a/b: a name is letters"),
        ("[models.low]\nmodel = 'a/m'\n", ":1: models.low: the name is reserved"),
        ("[models]\nx = 1\n", ":2: models.x: expected a table, not int"),
        ("models = 3\n", ":1: models: expected a table, not int"),
        (
            "[models.a]\nmodel='p/m'\nfallback=['b']\n[models.b]\nmodel='p/m'\nfallback=['a']\n",
            ":3: models.a.fallback: falls back in a circle: a → b → a",
        ),
        ("[tiers]\nmidd = 'x'\n", ":1: tiers: unknown tier 'midd'; did you mean 'mid'?"),
        ("[tiers]\nlow = ''\n", ":2: tiers.low: expected a name, not ''"),
        ("[subagents]\nexplore = 'x/y'\n", ":2: subagents.explore: unknown tier 'x/y'; there are low, mid, high"),
        ("[prices.m]\ninput = 1\n", ":1: prices.m: output is missing"),
        ("[prices.m]\ninput = -1\noutput = 1\n", ":2: prices.m.input: expected `float` >= 0"),
        ("[models.x]\nmodel = 'p/m'\nprice = { input = 1, ouput = 2 }\n", ":3: models.x.price"),
    ],
)
def test_an_invalid_table_is_an_error_with_its_place(tmp_path: Path, text: str, expected: str) -> None:
    file = write_file(tmp_path / "config.toml", text)
    with pytest.raises(ConfigError) as caught:
        read_settings_file(file)
    assert f"{file}{expected}" in str(caught.value)


def test_fallbacks_are_visited_once_and_long_chains_refused() -> None:
    """A folder of another user may have such a file, and every command reads it."""
    last = {"a40": {"model": "p/m"}, "b40": {"model": "p/m"}}
    both = {
        f"{name}{step}": {"model": "p/m", "fallback": [f"a{step + 1}", f"b{step + 1}"]}
        for step in range(26, 40)
        for name in "ab"
    }
    assert len(check_table("models", {**both, **last})) == 30
    row = {f"m{step}": {"model": "p/m", "fallback": [f"m{step + 1}"]} for step in range(2000)}
    for order in (row, dict(reversed(row.items()))):
        with pytest.raises(ConfigError, match=r"models\.m\d+\.fallback: falls back through more than 16 models"):
            check_table("models", order)


def test_two_keys_for_one_model_or_one_in_the_wrong_place_are_refused_and_not_repeated(tmp_path: Path) -> None:
    for entry in (f"key = '{KEY}'\nkey_env = 'X'\n", f"key_env = '{KEY}'\n", f"key = ['{KEY}']\n"):
        file = write_file(tmp_path / "config.toml", f"[models.x]\nmodel = 'openai/m'\n{entry}")
        with pytest.raises(ConfigError) as caught:
            read_settings_file(file)
        assert KEY not in str(caught.value)


@pytest.mark.parametrize("name", ["vaka.toml", "pyproject.toml"])
def test_a_key_must_not_be_in_a_projects_file(tmp_path: Path, name: str) -> None:
    above = "tool.vaka." if name == "pyproject.toml" else ""
    file = write_file(tmp_path / name, f"[{above}models.x]\nmodel = 'openai/m'\nkey = '{KEY}'\n")
    with pytest.raises(ConfigError, match=r":1: models\.x\.key: a key must not be in a project's file") as caught:
        read_settings_file(file)
    assert KEY not in str(caught.value)


def test_a_key_in_the_users_file_is_not_shown_and_should_not_be_readable_by_others(place: ConfigContext) -> None:
    file = write_file(
        place.user_file,
        f"[models.x]\nmodel = 'openai/m'\nkey = '{KEY}'\nheaders = {{ Authorization = '{KEY}', x-team = 'boats' }}\n"
        "base_url = 'https://kim:hunter22@h.example/v1'\nprovider = 'openai'\n"  # not a secret
        f"options = {{ headers = {{ x-auth = '{KEY}' }}, extra = {{ store = true, a = {{ token = '{KEY}' }} }} }}\n",
    )
    file.chmod(0o644)
    settings = load_settings(place)
    assert settings["models"]["x"].key == KEY
    assert redact_setting("models", settings["models"]) == {
        "x": {
            "model": "openai/m",
            "provider": "openai",
            "base_url": "https://kim:***@h.example/v1",
            "key": "***",
            "headers": {"Authorization": "***", "x-team": "boats"},
            "options": {"headers": {"x-auth": "***"}, "extra": {"store": True, "a": {"token": "***"}}},
        }
    }
    assert KEY not in repr(settings["models"])
    assert settings.notes == [f"{file}: has a key and other users can read it; run chmod 600 on it"]
    file.chmod(0o600)
    assert load_settings(place).notes == []


def test_a_pyproject_with_only_vakas_tables_is_a_project_file(place: ConfigContext) -> None:
    file = write_file(place.cwd / "pyproject.toml", '[tool.vaka.tiers]\nlow = "a/b"\nmid = 3\n')
    assert find_project_file(place.cwd) == file
    with pytest.raises(ConfigError, match=r"pyproject\.toml:3: tiers\.mid: expected a name"):
        load_settings(place)


LOOSE_SETTINGS = """
model_files = ["m"]
[models.away]
provider = "openai"
model = "m"
base_url = "https://evil.example/v1"
[models.other]
model = "openai/m"
key_env = "AWS_SECRET_ACCESS_KEY"
[models.extra]
model = "openai/m"
options = { extra = { mcp_servers = [] } }
[models.cheap]
model = "openai/m"
price = { input = 0, output = 0 }
[models.mine]
model = "openai/m"
[models.plain]
model = "openai/m"
retries = 9
[tiers]
low = "plain"
[prices.m]
input = 0
output = 0
"""


def test_an_untrusted_folder_can_set_neither_where_keys_go_nor_prices(place: ConfigContext) -> None:
    write_file(place.user_file, '[models.mine]\nmodel = "anthropic/c"\n')
    file = write_file(place.cwd / "vaka.toml", LOOSE_SETTINGS)
    careful = load_settings(place)
    assert set(careful["models"]) == {"mine", "plain"}
    assert careful["models"]["mine"].model == "anthropic/c"
    assert (careful["tiers"], careful["prices"], careful["model_files"]) == ({"low": "plain"}, {}, ())
    notes = [
        "2: model_files does not count: this folder is not trusted; --trust counts it",
        "3: models.away does not count: base_url could send keys or conversations elsewhere; --trust counts it",
        "7: models.other does not count: key_env could send keys or conversations elsewhere; --trust counts it",
        "10: models.extra does not count: options.extra could send keys or conversations elsewhere; --trust counts it",
        "13: models.cheap does not count: price could send keys or conversations elsewhere; --trust counts it",
        "16: models.mine does not count: the user's own file has a model of that name; --trust counts it",
        "23: prices.m does not count: prices decide what a budget is worth; --trust counts it",
    ]
    assert careful.notes == [f"{file}:{note}" for note in notes]
    trusting = load_settings(place, trust=True)
    assert set(trusting["models"]) == {"away", "other", "extra", "cheap", "mine", "plain"}
    assert (trusting["models"]["mine"].model, trusting.notes) == ("openai/m", [])
    assert trusting["model_files"] == (str(place.cwd / "m"),)


def test_a_whole_table_is_written_as_one(tmp_path: Path) -> None:
    assert set_toml_key("a = 1\n", "tiers", {"low": "x"}) == 'a = 1\n\n[tiers]\nlow = "x"\n'
    assert set_toml_key("[tiers]\nmid = 'y'\n", "tiers", {"low": "x"}) == '[tiers]\nlow = "x"\n'
    assert set_toml_key("[models]\n", ("models", "x"), {}) == "[models]\n\n[models.x]\n"


def test_tables_grow_part_by_part_and_the_later_layer_wins(place: ConfigContext) -> None:
    user = write_file(place.user_file, '[tiers]\nlow = "a/1"\nmid = "a/2"\n')
    project = write_file(place.cwd / "vaka.toml", '[tiers]\nmid = "b/2"\n')
    environ = {"VAKA_TIERS": '{"high": "c/3"}', "VAKA_RETRIES": "0"}
    settings = load_settings(ConfigContext(cwd=place.cwd, home=place.home, environ=environ))
    assert settings["tiers"] == {"low": "a/1", "mid": "b/2", "high": "c/3"}
    assert settings.values["tiers"].parts == {"low": f"{user}:2", "mid": f"{project}:2", "high": "VAKA_TIERS"}
    assert settings["retries"] == 0
    with pytest.raises(ConfigError, match="VAKA_TIERS: expected a table as JSON"):
        load_settings(ConfigContext(cwd=place.cwd, home=place.home, environ={"VAKA_TIERS": "low=x"}))
    with pytest.raises(ValueError, match="zero or more"):
        parse_value(SETTING_KEYS["retries"], "-1")


def test_a_part_of_a_table_is_found_by_its_dotted_name() -> None:
    assert parse_key_path("max_steps") == (SETTING_KEYS["max_steps"], ("max_steps",))
    assert parse_key_path("tiers.low") == (SETTING_KEYS["tiers"], ("tiers", "low"))
    assert parse_key_path('prices."gpt-4.1".input') == (SETTING_KEYS["prices"], ("prices", "gpt-4.1", "input"))
    for name, expected in (
        ("tier.low", "did you mean 'tiers'"),
        ("model.x", "model is not a table"),
        ("a b", "there is no setting"),
        ("", "there is no setting"),
    ):
        with pytest.raises(InvalidInput, match=expected):
            parse_key_path(name)


@pytest.mark.parametrize(
    ("before", "path", "value", "after"),
    [
        ("", ("tiers", "low"), "a/b", '[tiers]\nlow = "a/b"\n'),
        ("x = 1", ("tiers", "low"), "a/b", 'x = 1\n\n[tiers]\nlow = "a/b"\n'),
        (
            "[tiers] # mine\nlow = 'c' # old\n\n[prices]\n",
            ("tiers", "low"),
            "a/b",
            '[tiers] # mine\nlow = "a/b" # old\n\n[prices]\n',
        ),
        ("[tiers]\nlow = 'c'\n\n[other]\n", ("tiers", "mid"), "d", "[tiers]\nlow = 'c'\nmid = \"d\"\n\n[other]\n"),
        ("[tiers]", ("tiers", "mid"), "d", '[tiers]\nmid = "d"\n'),
        (
            "[models.x]\nfallback = [\n 'a',\n]\nmodel = 'p/m'\n",
            ("models", "x", "fallback"),
            ["b"],
            "[models.x]\nfallback = [\"b\"]\nmodel = 'p/m'\n",
        ),
        (
            "[models.x]\nmodel = 'p/m'\n",
            ("models", "x", "options"),
            {"extra": {"a b": [1, True]}},
            "[models.x]\nmodel = 'p/m'\noptions = { extra = { \"a b\" = [1,true] } }\n",
        ),
        ("y = 1\n", ("models", "x.y"), {"model": "p/m"}, 'y = 1\n\n[models."x.y"]\nmodel = "p/m"\n'),
        (
            "[models.x]\nmodel = 'p/m'\nretries = 1\n[tiers]\n",
            ("models", "x"),
            {"model": "q/m"},
            '[models.x]\nmodel = "q/m"\n[tiers]\n',
        ),
        ("tiers.low = 'a'\n", ("tiers", "low"), "b", ""),
        ("tiers = { low = 'a' }\n", ("tiers", "low"), "b", ""),
        ("[models.x]\nmodel = 'p/m'\n[models.x.options]\nseed = 1\n", ("models", "x"), {"model": "q/m"}, ""),
        ("text = '''\n[tiers]\n'''\n", ("tiers", "low"), "b", ""),
    ],
)
def test_one_value_of_a_table_is_changed_and_the_rest_is_left(
    before: str, path: tuple[str, ...], value: Any, after: str
) -> None:
    if not after:
        with pytest.raises(ValueError, match="in a form that vaka cannot change"):
            set_toml_key(before, path, value)
    else:
        assert set_toml_key(before, path, value) == after


def test_a_change_that_would_not_be_valid_is_not_written(tmp_path: Path) -> None:
    file = write_file(tmp_path / "vaka.toml", "[models.x]\nmodel = 'openai/m'\n")
    for path, value in ((("models", "x", "model"), "bare"), (("models", "x", "key"), KEY), (("tiers", "hihg"), "x")):
        with pytest.raises(ConfigError) as caught:
            write_setting(file, SETTING_KEYS[path[0]], value, path)
        assert KEY not in str(caught.value)
    inline = write_file(tmp_path / "config.toml", "tiers = { low = 'a' }\n")
    with pytest.raises(ConfigError, match="vaka cannot change"):
        write_setting(inline, SETTING_KEYS["tiers"], "b", ("tiers", "low"))
    assert file.read_text() == "[models.x]\nmodel = 'openai/m'\n"
    write_setting(file, SETTING_KEYS["models"], 3, ("models", "x", "retries"))
    assert read_settings_file(file)["models"].value["x"].retries == 3


def test_the_line_of_a_missing_key_is_that_of_its_table() -> None:
    text = "a = 1\n[x.y]\nz = 2\nfallback = [\n  'u',\n]\n"
    paths = (("a",), ("x",), ("x", "y"), ("x", "y", "z"), ("x", "y", "none"), ("x", "y", "z", "0"), ("q",))
    assert json.dumps([line_of(text, path) for path in paths]) == "[1, 2, 2, 3, 2, 3, 1]"


GUIDE = (Path(__file__).parents[2] / "docs" / "guides" / "models.md").read_text("utf-8")


def test_the_tables_of_the_guide_can_be_written(tmp_path: Path) -> None:
    text = "\n".join(re.findall(r"^```toml\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL))
    found = read_settings_file(write_file(tmp_path / "vaka.toml", text))
    assert (set(found), set(found["models"].value)) == ({"models", "tiers", "subagents"}, {"fast", "house", "old"})
    assert all(f"`{tier}`" in GUIDE for tier in TIERS)


def test_the_guide_has_every_option_of_a_model_and_every_field_of_an_entry() -> None:
    assert [name for name in ModelOptions.__struct_fields__ if f"`{name}`" not in GUIDE] == []
    assert [name for name in ModelEntry.__struct_fields__ if not re.search(rf"\b{name} = ", GUIDE)] == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[compaction]\nrato = 0.5\n", "compaction: unknown key 'rato'; did you mean 'ratio'?"),
        ("[compaction]\nratio = 2.0\n", "ratio 2.0 must be above 0 and at most 1, such as 0.85"),
        ('[compaction]\nkeep_turns = "all"\n', "compaction.keep_turns: expected `int`, got `str`"),
        ("[compaction]\nkeep_turns = 0\n", "keep_turns 0 must be at least 1: the last turn is always kept"),
        ("compaction = true\n", "expected a table, not bool"),
    ],
)
def test_a_wrong_table_of_compactions_is_an_error(tmp_path: Path, text: str, expected: str) -> None:
    path = tmp_path / "vaka.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_settings_file(path)
    assert expected in str(caught.value)


def test_the_table_of_compactions_is_merged_and_needs_trust(tmp_path: Path) -> None:
    (tmp_path / "project" / ".git").mkdir(parents=True)
    place = ConfigContext(cwd=tmp_path / "project", home=tmp_path / "home", environ={})
    place.user_file.parent.mkdir(parents=True)
    place.user_file.write_text("[compaction]\nratio = 0.5\nkeep_turns = 7\n")
    (place.cwd / "vaka.toml").write_text('[compaction]\nratio = 0.7\nrollout_dir = "/etc"\n')
    guest = load_settings(place)
    assert guest["compaction"] == {"ratio": 0.5, "keep_turns": 7}
    assert any("compaction does not count: this folder is not trusted" in note for note in guest.notes)
    trusted = load_settings(place, trust=True)["compaction"]
    assert trusted == {"ratio": 0.7, "keep_turns": 7, "rollout_dir": "/etc"}
