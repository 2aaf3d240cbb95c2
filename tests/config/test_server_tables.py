"""``[server]`` and ``[features]``: what counts, what is an error, and that an untrusted folder cannot set them."""

from pathlib import Path

import pytest

from vaka.config.server_tables import FEATURE_NAMES, JwtTable
from vaka.config.settings import ConfigContext, load_settings, redact_setting
from vaka.core.types.errors import ConfigError
from vaka.feature import find_features
from vaka.server.doors import FEATURE_DOORS


def context_of(tmp_path: Path, text: str) -> ConfigContext:
    (tmp_path / "home").mkdir()
    project = tmp_path / "project"
    project.mkdir()
    (project / "vaka.toml").write_text(text)
    return ConfigContext(cwd=project, home=tmp_path / "home", environ={})


def test_the_tables_of_a_trusted_folder_count(tmp_path: Path) -> None:
    text = """
    [server]
    port = 9000
    hosts = ["agents.example"]
    jwt = {issuer = "https://issuer.example", audience = "vaka", jwks = "keys.json"}
    [features]
    a2a = false
    """
    settings = load_settings(context_of(tmp_path, text), trust=True)
    jwt = JwtTable(issuer="https://issuer.example", audience="vaka", jwks="keys.json")
    assert settings["server"] == {"port": 9000, "hosts": ("agents.example",), "jwt": jwt}
    assert settings["features"] == {"a2a": False}
    assert redact_setting("server", settings["server"])["jwt"]["audience"] == "vaka"


def test_an_untrusted_folder_cannot_change_how_the_server_listens(tmp_path: Path) -> None:
    settings = load_settings(context_of(tmp_path, '[server]\nhost = "0.0.0.0"\n[features]\nui = false\n'))
    assert (settings["server"], settings["features"]) == ({}, {})
    assert [note.partition(": ")[2] for note in settings.notes] == [
        "server does not count: this folder is not trusted; --trust counts it",
        "features does not count: this folder is not trusted; --trust counts it",
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[server]\nprot = 1\n", "server: unknown key 'prot'; did you mean 'port'?"),
        ("[server]\nport = 99999\n", "server.port: expected `int` <= 65535"),
        ('[server]\nworkers = "two"\n', "server.workers: expected `int`, got `str`"),
        (
            '[server]\nhosts = ["agents.example:80"]\n',
            "server.hosts: expected a name such as agents.example.com, without",
        ),
        (
            '[server]\norigins = ["app.example"]\n',
            "server.origins: expected an origin such as https://app.example.com,",
        ),
        (
            '[server]\npublic_url = "agents.example:8443"\n',
            "server.public_url: expected an address such as https://agents.example.com, in small letters, not",
        ),
        ("server = 3\n", "server: expected a table, not int"),
        ('[server.jwt]\nisuer = "a"\n', "server.jwt: unknown key 'isuer'; did you mean 'issuer'?"),
        ('[server.jwt]\nissuer = "a"\n', "missing required field `audience`"),
        ("[features]\nagiu = true\n", "features: unknown key 'agiu'; did you mean 'agui'?"),
        ('[features]\nagui = "no"\n', "features.agui: expected true or false, not 'no'"),
    ],
)
def test_a_mistake_is_an_error_with_its_line(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings(context_of(tmp_path, text), trust=True)
    assert problem in str(caught.value)
    assert "vaka.toml:" in str(caught.value)


def test_every_feature_of_the_server_has_a_switch() -> None:
    of_folders = {feature.server_feature for feature in find_features() if feature.server_feature}
    assert set(FEATURE_NAMES) == {*FEATURE_DOORS, *of_folders}
