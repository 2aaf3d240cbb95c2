"""Environment variables by class: those that a project must not set, since they decide what runs or where data goes."""

from pathlib import Path

import pytest

from tests.policy.tables import each_row
from vaka.matching.variable_classes import VARIABLE_CLASSES, class_of_variable
from vaka.policy.bash.programs import read_set

STEERING = {
    "git": """
        GIT_SSH_COMMAND GIT_CONFIG_COUNT GIT_DIR GIT_EXTERNAL_DIFF SSH_ASKPASS SSH_AUTH_SOCK GNUPGHOME
    """,
    "the loader": """
        LD_PRELOAD LD_LIBRARY_PATH LD_AUDIT DYLD_INSERT_LIBRARIES DYLD_LIBRARY_PATH GLIBC_TUNABLES GCONV_PATH
        OPENSSL_CONF OPENSSL_MODULES GTK_MODULES QT_PLUGIN_PATH LOCPATH
    """,
    "a path": """
        PATH PATHEXT HOME CARGO_HOME XDG_CONFIG_HOME TMPDIR CLASSPATH MANPATH ZDOTDIR CMAKE_PREFIX_PATH CDPATH
        JAVA_HOME GIT_EXEC_PATH NODE_PATH RIPGREP_CONFIG_PATH npm_config_userconfig INPUTRC
    """,
    "the shell": """
        BASH_ENV ENV IFS SHELL SHELLOPTS BASHOPTS PS4 PROMPT_COMMAND GLOBIGNORE BASH_FUNC_ls%% HISTFILE
    """,
    "the options of an interpreter": """
        PYTHONSTARTUP PYTHONHOME PYTHONINSPECT PYTHONBREAKPOINT PYTEST_ADDOPTS PERL5OPT PERL5LIB PERL5DB
        RUBYOPT RUBYLIB NODE_OPTIONS JAVA_TOOL_OPTIONS _JAVA_OPTIONS JDK_JAVA_OPTIONS MAVEN_OPTS LUA_INIT
        PHPRC GOFLAGS CARGO_BUILD_RUSTC RUSTC_WRAPPER DOTNET_STARTUP_HOOKS ERL_FLAGS R_PROFILE UV_PYTHON
        PIP_INDEX_URL EXINIT GVIMINIT VIMINIT OPAMROOT CABAL_DIR WERKZEUG_DEBUG_PIN
    """,
    "the options of a program": """
        CFLAGS LDFLAGS MAKEFLAGS CC LESSOPEN TAR_OPTIONS RSYNC_RSH DOCKER_CONFIG KUBECONFIG ANSIBLE_CONFIG
        TF_CLI_ARGS HGRCPATH GREP_OPTIONS CMAKE_TOOLCHAIN_FILE TAPE ZIPOPT XZ_OPT GZIP M4 AUTOCONF DEVELOPER_DIR
        WINEPREFIX MAILCAPS
    """,
    "a program": """
        PAGER MANPAGER SYSTEMD_PAGER EDITOR VISUAL SVN_EDITOR BROWSER SUDO_ASKPASS CVS_RSH MANROFFOPT
        BUILD_COMMAND
    """,
    "where": """
        HTTPS_PROXY http_proxy ALL_PROXY NO_PROXY ANTHROPIC_BASE_URL OPENAI_API_BASE OLLAMA_HOST DATABASE_URL
        HOSTALIASES CURL_HOME OTEL_EXPORTER_OTLP_ENDPOINT ANTHROPIC_CUSTOM_HEADERS
    """,
    "which certificates": """
        SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE CURL_CA_BUNDLE NODE_EXTRA_CA_CERTS GIT_SSL_CAINFO
        CLIENT_CERT MYSQL_CA
    """,
    "the keys": """
        OPENAI_API_KEY GITHUB_TOKEN MY_SECRET DB_PASSWORD AWS_PROFILE GOOGLE_APPLICATION_CREDENTIALS PGHOST
    """,
    "the session": """
        VAKA_MODEL USER DISPLAY DBUS_SESSION_BUS_ADDRESS SUDO_USER TMUX
    """,
}

FREE = """
    CI DEBUG VERBOSE LOG_LEVEL PORT TZ LANG LC_ALL NO_COLOR FORCE_COLOR TERM COLUMNS NODE_ENV RAILS_ENV APP_ENV
    FLASK_ENV DJANGO_SETTINGS_MODULE PYTHONUNBUFFERED PYTHONDONTWRITEBYTECODE GOOS CGO_ENABLED RUST_LOG
    RUST_BACKTRACE FEATURE_X DATABASE_NAME TIMEOUT MAX_JOBS A SHAPE
"""


def test_there_is_a_sample_of_each_class() -> None:
    described = {class_of_variable(names.split()[0]) for names in STEERING.values()}
    assert described == {*VARIABLE_CLASSES}


@each_row([name for names in STEERING.values() for name in names.split()])
def test_a_variable_of_a_class_is_known_in_any_case(name: str) -> None:
    assert class_of_variable(name)
    assert class_of_variable(name.lower()) == class_of_variable(name)


@pytest.mark.parametrize("what", STEERING)
def test_the_first_variable_of_a_sample_names_its_class(what: str) -> None:
    assert class_of_variable(STEERING[what].split()[0]).startswith(what)


@each_row(FREE.split())
def test_a_variable_that_steers_no_known_program_is_free(name: str) -> None:
    assert class_of_variable(name) == ""


def test_a_variable_that_is_harmless_before_a_command_is_free() -> None:
    harmless = read_set("safe_variables")
    assert [name for name in sorted(harmless) if class_of_variable(name)] == []


def test_the_guide_lists_every_class() -> None:
    guide = (Path(__file__).parents[2] / "docs/guides/claude-folder.md").read_text("utf-8")
    assert [what for what in VARIABLE_CLASSES if f"| {what} |" not in guide] == []
