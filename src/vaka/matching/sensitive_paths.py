"""Paths that decide what runs or what is allowed, and paths that hold secrets; for rules and for the sandbox."""

import re
import unicodedata
from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import cache

_CONTROL_FOLDERS = frozenset({".git", ".vscode", ".idea", ".husky", ".devcontainer", ".vaka"})

SHELL_FILES = (
    ".bashrc",
    ".bash_profile",
    ".bash_login",
    ".bash_logout",
    ".profile",
    ".zshrc",
    ".zshenv",
    ".zprofile",
    ".zlogin",
)
"""Files that shells run when they start."""

_CONTROL_FILES = frozenset(
    {
        "vaka.toml",
        ".mcp.json",
        ".claude.json",
        "managed-settings.json",
        ".gitconfig",
        ".gitmodules",
        *SHELL_FILES,
        ".ripgreprc",
        ".envrc",
    }
)

_CLAUDE_SETTINGS = frozenset({"settings.json", "settings.local.json", "hooks"})

HOME_PATHS = (
    *SHELL_FILES,
    ".zlogout",
    ".bash_aliases",
    ".kshrc",
    ".mkshrc",
    ".cshrc",
    ".tcshrc",
    ".login",
    ".xprofile",
    ".xinitrc",
    ".xsession",
    ".xsessionrc",
    ".pam_environment",
    ".inputrc",
    ".gitconfig",
    ".config/git",
    ".config/autostart",
    ".config/systemd",
    ".config/environment.d",
    ".config/fish",
    ".config/plasma-workspace",
    ".local/bin",
    ".local/share/systemd",
    ".local/share/applications",
    ".local/share/dbus-1",
    "bin",
    "Library/LaunchAgents",
    ".ssh",
    ".gnupg",
    ".vimrc",
    ".vim",
    ".config/nvim",
    ".emacs",
    ".emacs.d",
    ".tmux.conf",
    ".config/tmux",
    ".screenrc",
    ".curlrc",
    ".wgetrc",
    ".npmrc",
    ".yarnrc",
    ".yarnrc.yml",
    ".config/pip",
    ".pip",
    ".pypirc",
    ".pythonrc",
    ".gemrc",
    ".irbrc",
    ".cargo/config",
    ".cargo/config.toml",
    ".cargo/bin",
    ".cargo/env",
    ".m2/settings.xml",
    ".gradle/init.d",
    ".gradle/init.gradle",
    ".gradle/gradle.properties",
    ".condarc",
    ".Rprofile",
    ".docker/cli-plugins",
    ".kube/config",
    ".config/direnv",
    ".direnvrc",
    ".gdbinit",
    ".config/gdb",
    ".lldbinit",
    ".oh-my-zsh",
    ".mcp.json",
    ".claude.json",
    ".claude",
    ".config/vaka",
    ".codex",
    ".gemini",
    ".cursor",
)
"""Paths below a home folder that decide what the programs of its owner run."""

_PROJECT_PATHS = (
    ".claude",
    ".github/workflows",
    ".github/actions",
    ".gitlab-ci.yml",
    ".circleci",
    ".travis.yml",
    ".drone.yml",
    ".woodpecker.yml",
    ".woodpecker",
    ".buildkite",
    ".forgejo/workflows",
    ".gitea/workflows",
    "azure-pipelines.yml",
    "bitbucket-pipelines.yml",
    ".npmrc",
    ".yarnrc",
    ".yarnrc.yml",
    ".yarn/plugins",
    ".yarn/releases",
    ".pnpmfile.cjs",
    ".pre-commit-config.yaml",
    ".pre-commit-hooks.yaml",
    "lefthook.yml",
    ".lefthook.yml",
    ".githooks",
    ".cursor",
    ".codex",
    ".gemini",
    ".windsurf",
    ".kiro",
    ".roo",
    ".continue",
    ".amazonq",
    ".hg/hgrc",
    ".zed",
    ".fleet",
    ".run",
    ".nova",
    ".cargo/config",
    ".cargo/config.toml",
    ".bundle/config",
    ".mvn/extensions.xml",
    ".mvn/jvm.config",
    ".mvn/maven.config",
    ".exrc",
    ".nvimrc",
    ".nvim.lua",
    ".vimrc",
    ".lvimrc",
    ".dir-locals.el",
    ".gdbinit",
    ".lldbinit",
    ".Rprofile",
    ".pythonrc",
    "sitecustomize.py",
    "usercustomize.py",
    ".mise.toml",
    ".mise",
    "mise.toml",
    ".config/mise",
    ".direnv",
    ".pdbrc",
    ".pryrc",
    ".helix",
    ".venv/pip.conf",
    "venv/pip.conf",
)
"""Paths of a project that other programs of its owner, or its build service, execute or take configuration from."""

_MORE_PATHS = {tuple(path.casefold().split("/")) for path in (*HOME_PATHS, *_PROJECT_PATHS) if path != "bin"}

_MORE_BY_FIRST: dict[str, list[tuple[str, ...]]] = {}
for _path in _MORE_PATHS:
    _MORE_BY_FIRST.setdefault(_path[0], []).append(_path)

_INVISIBLE_CHARACTERS = re.compile("[\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\u00ad]")

_SHORT_NAMES = {"git~1": ".git", "claude~1": ".claude", "vscode~1": ".vscode"}
"""Short names of the same folders on Windows file systems."""


def control_part_of(path: Sequence[str]) -> str:
    """Return the part of an absolute path whose content is never changed without a question, ``""`` without one."""
    names = [_normalize_name(part) for part in path]
    for index, name in enumerate(names):
        last = index == len(names) - 1
        if name in _CONTROL_FOLDERS or (last and name in _CONTROL_FILES):
            return path[index]
        if name == ".claude" and (last or names[index + 1] in _CLAUDE_SETTINGS):
            return ".claude" if last else f".claude/{names[index + 1]}"
        if name == "vaka" and index and names[index - 1] in (".config", "etc") and not last:
            return f"{names[index - 1]}/vaka"
    return ""


def protected_part_of(path: Sequence[str]) -> str:
    """Return the part of an absolute path that decides what runs or what is allowed, ``""`` without one."""
    part = control_part_of(path)
    if part:
        return part
    names = [_normalize_name(name) for name in path]
    for index, name in enumerate(names):
        for known in _MORE_BY_FIRST.get(name, ()):
            if tuple(names[index : index + len(known)]) == known:
                return "/".join(path[index : index + len(known)])
    return ""


_CLAUDE_CONTENT = frozenset(
    {
        "agents",
        "commands",
        "hooks",
        "output-styles",
        "plugins",
        "rules",
        "scripts",
        "skills",
        "statusline",
        "workflows",
        "worktrees",
    }
)
"""Folders of ``.claude`` that agents read or run."""


def names_plugin_state(pattern: str, path: Sequence[str]) -> bool:
    """Return whether a file is in a plugin's own folder of ``.claude``, and the pattern of a rule names that folder."""
    folder = _plugin_state_of(path)
    return bool(folder) and re.search(rf"(?:^|/)\.claude/{re.escape(folder)}(?:/|$)", pattern) is not None


def _plugin_state_of(path: Sequence[str]) -> str:
    """Return the folder of ``.claude`` that a file is in, if only the plugin that made it uses it, else ``""``."""
    names = [_normalize_name(name) for name in path]
    index = names.index(".claude") if ".claude" in names else len(names)
    if index + 2 >= len(names):
        return ""  # not in a folder of it
    folder = names[index + 1]
    if folder in _CLAUDE_CONTENT or folder.startswith((".", "settings")):
        return ""
    around = protected_part_of(path[:index]) or protected_part_of(path[index + 2 :])
    return "" if around else path[index + 1]


def _normalize_name(name: str) -> str:
    """Return a name as the most lenient file system compares it."""
    if name.isascii() and name.islower() and name[-1] not in ". " and ":" not in name:
        return _SHORT_NAMES.get(name, name)
    plain = unicodedata.normalize("NFKC", _INVISIBLE_CHARACTERS.sub("", name)).casefold()
    plain = plain.partition(":")[0].rstrip(". ")
    return _SHORT_NAMES.get(plain, plain)


SECRETS_IN_HOMES = (
    # keys and passwords
    ".ssh",
    ".gnupg",
    ".age",
    ".config/age",
    ".config/sops",
    ".password-store",
    ".local/share/keyrings",
    ".local/share/kwalletd",
    ".pki",
    ".config/op",
    ".config/Bitwarden CLI",
    ".config/lastpass",
    ".lpass",
    ".config/keybase",
    ".vault-token",
    ".vault_pass",
    ".netrc",
    "_netrc",
    ".authinfo",
    ".authinfo.gpg",
    ".env",
    ".msmtprc",
    ".fetchmailrc",
    ".mbsyncrc",
    ".config/msmtp",
    ".electrum",
    ".bitcoin",
    ".ethereum",
    ".config/solana",
    # hosts of code and models
    ".git-credentials",
    ".config/git/credentials",
    ".config/gh",
    ".config/hub",
    ".config/glab-cli",
    ".config/tea",
    ".subversion/auth",
    ".hgrc",
    ".cache/huggingface/token",
    ".cache/huggingface/stored_tokens",
    ".huggingface",
    ".config/github-copilot",
    ".kaggle",
    ".config/kaggle",
    ".config/wandb",
    ".replicate",
    ".config/replicate",
    ".openai",
    ".config/openai",
    ".anthropic",
    ".config/anthropic",
    ".codex/auth.json",
    ".gemini",
    ".claude/.credentials.json",
    ".claude.json",
    ".config/io.datasette.llm",
    ".ollama/id_ed25519",
    ".modal.toml",
    ".config/vaka",
    ".local/share/vaka",
    ".continue",
    ".aider.conf.yml",
    ".config/zed/credentials",
    # clouds
    ".aws",
    ".azure",
    ".config/gcloud",
    ".oci",
    ".aliyun",
    ".tccli",
    ".bluemix",
    ".ibmcloud",
    ".config/doctl",
    ".config/hcloud",
    ".config/linode-cli",
    ".config/vultr-cli.yaml",
    ".vultr-cli.yaml",
    ".config/scw",
    ".ovh.conf",
    ".config/openstack",
    ".config/exoscale",
    ".fly",
    ".config/fly",
    ".netlify",
    ".config/netlify",
    ".vercel",
    ".local/share/com.vercel.cli",
    ".config/vercel",
    ".railway",
    ".config/railway",
    ".render",
    ".cf",
    ".cloudflared",
    ".config/cloudflared",
    ".wrangler",
    ".config/.wrangler",
    ".config/heroku",
    ".s3cfg",
    ".boto",
    ".gsutil",
    ".config/rclone",
    ".mc",
    ".config/stripe",
    ".config/ngrok",
    ".ngrok2",
    ".sentryclirc",
    ".config/snowflake",
    ".snowsql",
    ".snowflake",
    ".databrickscfg",
    ".dbt",
    ".bigqueryrc",
    ".terraform.d",
    ".terraformrc",
    ".pulumi",
    ".config/configstore",
    ".config/firebase",
    ".config/supabase",
    ".supabase",
    ".config/planetscale",
    # containers and build services
    ".docker/config.json",
    ".docker/run",
    ".config/containers/auth.json",
    ".kube",
    ".minikube",
    ".config/helm",
    ".helm",
    ".rancher",
    ".config/argocd",
    ".circleci",
    ".travis",
    ".config/buildkite",
    # package managers
    ".npmrc",
    ".yarnrc",
    ".yarnrc.yml",
    ".bunfig.toml",
    ".pypirc",
    ".config/pypoetry",
    ".config/pip",
    ".pip",
    ".local/share/uv/credentials",
    ".config/hatch",
    ".condarc",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".gem/credentials",
    ".bundle/config",
    ".m2/settings.xml",
    ".m2/settings-security.xml",
    ".gradle/gradle.properties",
    ".sbt/.credentials",
    ".ivy2/.credentials",
    ".composer/auth.json",
    ".config/composer/auth.json",
    ".nuget",
    ".config/NuGet",
    ".hex",
    ".config/hex",
    ".pub-cache/credentials.json",
    ".config/dart",
    ".cabal/config",
    # databases
    ".pgpass",
    ".my.cnf",
    ".mylogin.cnf",
    ".mongorc.js",
    ".mongodb",
    ".dbshell",
    ".config/pgcli",
    ".config/mycli",
    ".clickhouse-client",
    ".config/redis",
    ".cassandra",
    # browsers and messengers
    ".mozilla",
    ".thunderbird",
    ".config/google-chrome",
    ".config/chromium",
    ".config/BraveSoftware",
    ".config/microsoft-edge",
    ".config/Slack",
    ".config/discord",
    ".config/Signal",
    ".local/share/TelegramDesktop",
    # histories
    ".bash_history",
    ".zsh_history",
    ".python_history",
    ".psql_history",
    ".mysql_history",
    ".node_repl_history",
    ".sqlite_history",
    ".rediscli_history",
    ".irb_history",
    ".local/share/fish/fish_history",
    ".mongo_history",
)
"""Paths below a home folder that hold secrets."""

SYSTEM_SECRETS = (
    "/etc/shadow",
    "/etc/shadow-",
    "/etc/gshadow",
    "/etc/gshadow-",
    "/etc/sudoers",
    "/etc/sudoers.d",
    "/etc/ssl/private",
    "/etc/krb5.keytab",
    "/etc/kubernetes",
    "/var/lib/docker",
    "/var/lib/kubelet",
    "/var/lib/postgresql",
    "/var/snap/lxd",
    "/var/spool/cron",
    "/var/backups",
    "/boot",
    "/etc/rancher",
    "/etc/wireguard",
    "/etc/openvpn",
    "/etc/ppp",
    "/etc/NetworkManager/system-connections",
    "/etc/docker/key.json",
    "/etc/containers/auth.json",
    "/etc/vault.d",
    "/etc/letsencrypt",
    "/etc/mysql/debian.cnf",
)

_ORDINARY_IN_PROJECTS = frozenset({".env", ".circleci", ".yarnrc", ".yarnrc.yml", ".bundle/config"})

_LISTED = (
    ".docker",
    "keyrings",
    "vaka/stored_keys",
    *(path for path in SECRETS_IN_HOMES if path not in _ORDINARY_IN_PROJECTS),
)
"""Paths that hold secrets below any folder."""


@cache  # slow to compile, and many processes never need it
def _secret_paths() -> re.Pattern[str]:
    return re.compile(
        rf"(?:^|/)(?:{'|'.join(map(re.escape, _LISTED))}|\.[a-z]*_history|id_(?:rsa|dsa|ecdsa|ed25519))(?:/|$)"
        r"|^/etc/(?:g?shadow|sudoers|ssl/private|ssh/ssh_host)|^/proc/.*(?:environ|mem|cmdline|maps)$"
        r"|^/(?:var/)?run/secrets|^/dev/(?!null$|zero$|urandom$|random$|stdin$|stdout$|stderr$|fd/|tty$)"
    )


_SECRET_FILES = ("/etc/shadow", "/etc/gshadow", "/etc/sudoers", "/proc/1/environ", "/proc/self/environ", "/run/secrets")

_SECRET_NAMES = tuple({path.partition("/")[0] for path in _LISTED} - {".config", ".cache", ".local"})


def holds_secrets(path: str) -> bool:
    """Return whether a normalized path, which may start with ``~``, is known to hold secrets."""
    return _secret_paths().search(path) is not None


def may_match_secrets(pattern: str) -> bool:
    """Return whether a pattern that leads out of its folder may match a file with secrets."""
    if not pattern.startswith(("/", "~", "..")):
        return False
    parts = pattern.split("/")
    dotted = [part for part in parts if part.startswith(".") and part.strip(".*?")]
    if any(fnmatchcase(name, part) for part in dotted for name in _SECRET_NAMES):
        return True
    files = (file.split("/") for file in _SECRET_FILES)
    return any(len(parts) >= len(file) and all(map(fnmatchcase, file, parts)) for file in files)
