"""Variables: those that change nothing that matters, and those that change what a command is."""

import re

from vaka.policy.bash.text import names

_SAFE = names(
    """
    LANG LANGUAGE TZ NO_COLOR FORCE_COLOR CLICOLOR CLICOLOR_FORCE COLORTERM TERM COLUMNS LINES BLOCK_SIZE BLOCKSIZE
    LS_COLORS GREP_COLOR GREP_COLORS CI DEBUG VERBOSE LOG_LEVEL NODE_ENV RAILS_ENV RACK_ENV APP_ENV FLASK_ENV MIX_ENV
    RUST_BACKTRACE RUST_LOG GOOS GOARCH CGO_ENABLED GO111MODULE PYTHONUNBUFFERED PYTHONDONTWRITEBYTECODE PYTHONHASHSEED
    PYTHONIOENCODING PYTHONUTF8
    """
)

_UNSAFE = re.compile(
    r"""
    PATH | IFS | ENV | HOME | SHELL | CDPATH | FPATH | GLOBIGNORE | EXECIGNORE | PROMPT_COMMAND | PS[0-4] | SHELLOPTS
    | BASH.* | LD_.* | DYLD_.* | GIT_.* | GCONV_PATH | GETCONF_DIR | HOSTALIASES | LOCALDOMAIN | LOCPATH | MALLOC_.*
    | NIS_PATH | NLSPATH | RESOLV_HOST_CONF | RES_OPTIONS | TMPDIR | TZDIR | TERMINFO.* | TERMCAP | POSIXLY_CORRECT
    | .*PAGER | .*EDITOR | VISUAL | BROWSER | LESS.* | MORE | MANOPT | MANPATH | MANROFFOPT | MANLESS | GROFF_.*
    | PYTHON.* | PERL.* | RUBY.* | NODE_.* | NPM_.* | npm_.* | YARN_.* | JAVA_.* | _JAVA_.* | JDK_.* | CLASSPATH
    | GEM_.* | BUNDLE_.* | GO[A-Z0-9]* | CARGO.* | RUST[CD].* | LUA_.* | R_.* | PIP_.* | UV_.* | VIRTUAL_ENV | CONDA_.*
    | RIPGREP_CONFIG_PATH | FZF_.* | FD_.* | JQ_.* | AWK.* | GAWK.* | SED.* | GREP_OPTIONS | TAR_OPTIONS | MAKE.*
    | .*_proxy | .*_PROXY | SSL_.* | CURL_.* | WGET.* | SSH_.* | SUDO_.* | AWS_.* | GOOGLE_.* | AZURE_.* | KUBECONFIG
    | DOCKER_.* | XDG_.* | DBUS_.* | DISPLAY | CC | CXX | LD | AR | .*FLAGS | .*_COMMAND | .*_CMD | .*_PROGRAM
    """,
    re.VERBOSE,
)


def safe(name: str) -> bool:
    """Return whether a command may be given this variable without a question."""
    return name in _SAFE or name.startswith("LC_")


def unsafe(name: str) -> bool:
    """Return whether this variable decides what runs or how it is run."""
    return name not in _SAFE and _UNSAFE.fullmatch(name) is not None
