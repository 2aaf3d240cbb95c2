"""The environment variables of a command."""

from vaka.sandbox.sensitive import build_command_environment, is_secret, scrub_environment

SECRET_NAMES = [
    "OPENAI_API_KEY",
    "ANTHROPIC_API_KEY",
    "SOME_APIKEY",
    "GITHUB_TOKEN",
    "NPM_TOKEN",
    "token",
    "CI_JOB_TOKEN_X",
    "MY_SECRET",
    "SECRET_KEY_BASE",
    "DB_PASSWORD",
    "PGPASSWORD",
    "MYSQL_PWD",
    "SMTP_PASS",
    "SSH_PASSPHRASE",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_PROFILE",
    "AZURE_CLIENT_ID",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GCP_SERVICE_ACCOUNT",
    "KUBECONFIG",
    "VAULT_ADDR",
    "TF_VAR_x",
    "VAKA_STORE",
    "DIGITALOCEAN_X",
    "SENTRY_DSN",
    "SIGNING_KEY",
    "STRIPE_KEY",
    "BASIC_AUTH",
    "SESSION_COOKIE",
    "SSH_AUTH_SOCK",
    "DBUS_SESSION_BUS_ADDRESS",
    "XDG_RUNTIME_DIR",
    "DOCKER_HOST",
    "BASH_ENV",
    "BASH_FUNC_ls%%",
    "LD_PRELOAD",
]
HARMLESS_NAMES = [
    "PATH",
    "HOME",
    "LANG",
    "LC_ALL",
    "TZ",
    "TERM",
    "USER",
    "SHELL",
    "PWD",
    "OLDPWD",
    "EDITOR",
    "VIRTUAL_ENV",
    "JAVA_HOME",
    "CARGO_HOME",
    "GOPATH",
    "NODE_OPTIONS",
    "PYTHONPATH",
    "CI",
    "NO_COLOR",
    "COLUMNS",
    "HOSTNAME",
    "KEYBOARD",
    "MONKEY",
    "COMPASS",
    "PATTERN",
    "AUTHOR",
    "CFLAGS",
    "MAKEFLAGS",
    "LD_LIBRARY_PATH",
    "PAGER",
]
UNKNOWN_NAMES = ["KEYBOARD", "MONKEY", "COMPASS", "PATTERN", "AUTHOR"]
SECRET_VALUES = [
    "sk-abcdefghijklmnopqrstuvwx",
    "Bearer sk-ant-" + "a1" * 12,
    "ghp_abcdefghijklmnopqrstuvwxyz0123",
    "github_pat_11ABCDEFG0abcdefghijklmn",
    "glpat-abcdefghijklmnopqrst",
    "xoxb-1234567890-abc",
    "AKIA" + "A1B2" * 4,
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc",
    "-----BEGIN RSA " + "PRIVATE KEY-----",
    "postgres://me:pw@host/db",
    "https://user:pass@proxy:8080",
    "redis://:pw@host",
]
HARMLESS_VALUES = [
    "",
    "yes",
    "/usr/bin:/bin",
    "https://example.org/a:b@c",
    "postgres://host/db",
    "ask-me",
    "sk-short",
    "a@b",
]


def test_variables_with_secret_names_are_dropped() -> None:
    assert [name for name in SECRET_NAMES if not is_secret(name, "x")] == []
    assert [name for name in HARMLESS_NAMES if is_secret(name, "x")] == []


def test_variables_with_secret_values_are_dropped() -> None:
    assert [value for value in SECRET_VALUES if not is_secret("SETTING", value)] == []
    assert [value for value in HARMLESS_VALUES if is_secret("SETTING", value)] == []


def test_allowed_variables_are_kept() -> None:
    environ = {"MY_TOKEN": "1", "MY_OTHER_TOKEN": "2", "THEIR_TOKEN": "3", "LANG": "4", "": "5", "A=B": "6"}
    assert scrub_environment(environ) == {"LANG": "4"}
    assert scrub_environment(environ, ["MY_TOKEN"]) == {"MY_TOKEN": "1", "LANG": "4"}
    assert scrub_environment(environ, ["MY_*"]) == {"MY_TOKEN": "1", "MY_OTHER_TOKEN": "2", "LANG": "4"}


def test_only_known_variables_are_passed() -> None:
    unknown = ["COMPANY_CRED", "PLAIN", "JIRA", "ACME_LOGIN", "DATABASE", "X", "SLACK", "LDAP_BIND", "GH_ENTERPRISE"]
    assert scrub_environment(dict.fromkeys([*unknown, *HARMLESS_NAMES], "x")) == dict.fromkeys(
        (name for name in HARMLESS_NAMES if name not in UNKNOWN_NAMES), "x"
    )
    assert scrub_environment({"COMPANY_CRED": "x"}, ["COMPANY_*"]) == {"COMPANY_CRED": "x"}
    assert scrub_environment({"NPM_CONFIG_REGISTRY": "https://me:pw@host/"}) == {}


def test_path_home_and_language_have_defaults() -> None:
    made = build_command_environment({}, {})
    assert {"PATH", "HOME", "LANG"} <= made.keys()
    assert build_command_environment({"HOME": "/home/me", "LANG": "de"}, {"LANG": "fr"})["LANG"] == "fr"


def test_the_proxy_variables_name_the_proxy() -> None:
    made = build_command_environment({"HTTP_PROXY": "http://other"}, {}, proxy="http://127.0.0.1:3128")
    assert made["HTTP_PROXY"] == made["https_proxy"] == "http://127.0.0.1:3128"
    assert "localhost" in made["NO_PROXY"]
