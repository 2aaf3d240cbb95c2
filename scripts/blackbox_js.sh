#!/usr/bin/env bash
# Install the JavaScript clients of the black-box tests and their Node.js, and link them as .venv/blackbox-js.
# They are kept in the user's cache, by the versions that are named, so that another checkout need not fetch them again.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
versions=tests/blackbox/js/package.json

scripts/system.sh npm
home=${XDG_CACHE_HOME:-$HOME/.cache}/vaka/blackbox-js
clients=$home/$(sha256sum "$versions" | cut -c1-32)
if [[ ! -e $clients/node_modules ]]; then
	echo "fetching the JavaScript clients of the black-box tests"
	mkdir -p "$home"
	made=$(mktemp -d "$home/new.XXXXXX")
	trap 'rm -rf "$made"' EXIT
	cp "$versions" "$made/package.json"
	npm install --silent --no-package-lock --no-audit --no-fund --prefix "$made"
	mv -T "$made" "$clients" 2>/dev/null || [[ -e $clients/node_modules ]]
fi
ln -sfn "$clients" .venv/blackbox-js
