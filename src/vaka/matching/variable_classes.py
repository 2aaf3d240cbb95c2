"""Classes of environment variables that decide what programs run, load, trust, or where they send data."""

import re
from collections.abc import Mapping

VARIABLE_CLASSES: Mapping[str, str] = {
    "git, ssh or gpg": "GIT_.* SSH_.* GPG_.* GNUPG.*",
    "the loader of programs and libraries": r"""
        LD_.* DYLD_.* .*_PRELOAD GLIBC_.* GCONV_.* GETCONF_.* LOCPATH NLSPATH MALLOC_.* .*_TUNABLES OPENSSL_.*
        PKCS11.* KRB5.* QT_.* GTK_.* GIO_.* GST_.* GDK_.* OCL_.* VK_.* LIBGL_.* GCC_.* COMPILER_PATH
    """,
    "a path that programs, modules or settings are searched in": r"""
        .*PATH .*PATHEXT HOME .*_HOME XDG_.* TMPDIR TMP TEMP TEMPDIR ZDOTDIR TERMINFO.* TERMCAP TZDIR
        .*_CONFIG(?:_.*)? .*_CONF .*_RC .*RCFILE INPUTRC .*_PLUGINS?(?:_.*)? APPDATA LOCALAPPDATA PROGRAMDATA
        USERPROFILE SYSTEMROOT WINDIR
    """,
    "the shell": r"""
        BASH.* ENV IFS SHELL.* COMSPEC PS[0-4] PROMPT.* GLOBIGNORE EXECIGNORE FIGNORE HIST.* ZSH.* KSH.* FISH.*
        FC.* READLINE_.* POSIXLY_CORRECT MAILCHECK TIMEFORMAT
    """,
    "the options of an interpreter or of its packages": r"""
        PYTHON.* PYTEST.* PY_.* IPYTHON.* JUPYTER_.* COVERAGE_.* TOX_.* NOX.* PIP_.* PIPX_.* PIPENV_.* UV_.*
        POETRY_.* PDM_.* HATCH_.* VIRTUAL_?ENV.* CONDA_.* MAMBA_.* PERL.* RUBY.* GEM_.* BUNDLE_.* RAKE.* IRB.*
        NODE_.* NPM_.* YARN_.* PNPM_.* COREPACK_.* BUN_.* DENO_.* TS_NODE_.* ESLINT_.* BABEL_.* ELECTRON_.*
        JAVA.* _JAVA.* JDK_.* JRE_.* JVM.* MAVEN_.* MVN.* GRADLE_.* ANT_.* SBT_.* KOTLIN_.* SCALA_.* GROOVY_.*
        CLOJURE_.* GO[A-Z0-9]* CGO_.* CARGO.* RUST.* LUA.* R_.* JULIA_.* PHP.* COMPOSER_.* ERL_.* ELIXIR_.*
        MIX_.* IEX_.* HEX_.* DOTNET_.* CORECLR_.* COMPLUS_.* NUGET_.* MONO_.* MSBUILD.* AWK.* GAWK.* SED.* JQ_.*
        TCL.* GUILE_.* EMACS.* G?VIM.* EXINIT MYVIMRC NVIM_.* SWIFT_.* OPAM.* STACK_.* CABAL_.* PYDEVD.*
        WERKZEUG_.*
    """,
    "the options of a program": r"""
        .*FLAGS .*OPTS .*OPTIONS? .*_ARGS MAKE.* GNUMAKE.* CC CXX CPP LD AR AS NM RANLIB STRIP CMAKE_.* CTEST_.*
        NINJA_.* MESON_.* CCACHE_.* BAZEL_.* PKG_CONFIG.* LESS.* RIPGREP_.* FZF_.* FD_.* RSYNC_.* TAR_.*
        ANSIBLE_.* TF_.* TERRAFORM_.* DOCKER_.* BUILDKIT_.* COMPOSE_.* CONTAINER.* PODMAN_.* HELM_.* KUBE.*
        VAGRANT_.* PRE_COMMIT_.* HUSKY.* DIRENV_.* ASDF_.* MISE_.* PYENV_.* RBENV_.* NVM_.* NIX_.* HOMEBREW_.*
        HG.* SVN_.* .*_OPT TAPE GZIP BZIP2? UNZIP ZIPINFO .*ZIPOPT M4 AUTO[A-Z0-9]+ LIBTOOL.* INSTALL
        DEVELOPER_DIR SDKROOT TOOLCHAINS XCODE.* WINE.* MAILCAPS?
    """,
    "a program that others start": r"""
        .*PAGER .*EDITOR VISUAL BROWSER OPENER TERMINAL .*ASKPASS.* .*COMMAND .*_CMD .*_PROGRAM .*_SHELL .*_EXEC
        .*_EXECUTABLE .*_BINARY .*_WRAPPER .*_RSH .*_HOOK .*_LAUNCHER MANOPT MANROFF.* GROFF_.* MORE
    """,
    "where programs connect to and send data": r"""
        .*PROXY.* .*_URLS? .*_URI .*_HOSTS? .*_ENDPOINTS? .*_BASE .*_SERVER .*_ADDR(?:ESS)? .*REGISTRY.*
        .*_INDEX .*_MIRROR .*_HEADERS HOSTALIASES LOCALDOMAIN RES_OPTIONS RESOLV_.* CURL_.* WGET.* HTTPS?_.*
        OTEL_.*
    """,
    "which certificates are trusted": r"""
        SSL.* TLS_.* .*_CA .*_CA_.* .*CA_BUNDLE .*CAFILE .*_CERTS? .*_CERT_.* .*_CERTIFICATES? REQUESTS_.*
        .*_INSECURE .*_VERIFY .*_NO_VERIFY
    """,
    "the keys and accounts that are used": r"""
        .*_KEYS? .*_TOKEN .*SECRET.* .*PASSWORD.* .*PASSWD.* .*CREDENTIAL.* .*_AUTH AWS_.* GOOGLE_.* GCLOUD_.*
        CLOUDSDK_.* AZURE_.* ARM_.* VAULT_.* PG[A-Z]+ MYSQL_.*
    """,
    "the session of the user": r"""
        VAKA_.* USER LOGNAME SUDO_.* DISPLAY WAYLAND_.* XAUTHORITY DBUS_.* SYSTEMD_.* NOTIFY_SOCKET LISTEN_.*
        TMUX.* STY
    """,
}
"""Regular expressions for the names of each class, without regard to case."""

_CLASSES = [
    (what, re.compile("|".join(patterns.split()), re.IGNORECASE)) for what, patterns in VARIABLE_CLASSES.items()
]

_HARMLESS = """
    NODE_ENV MIX_ENV PYTHONUNBUFFERED PYTHONDONTWRITEBYTECODE PYTHONHASHSEED PYTHONIOENCODING PYTHONUTF8 GOOS GOARCH
    CGO_ENABLED GO111MODULE RUST_BACKTRACE RUST_LOG DOTNET_CLI_TELEMETRY_OPTOUT
"""
"""Variables of these classes that only select a platform, a mode or what is printed."""


def class_of_variable(name: str) -> str:
    """Return what a variable decides, ``""`` for one that steers no program that is known."""
    if name.upper() in _HARMLESS.split():
        return ""
    return next((what for what, pattern in _CLASSES if pattern.fullmatch(name)), "")
