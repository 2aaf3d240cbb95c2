#!/usr/bin/env bash
# Install the packages that ts/ is built and tested with, and link them as ts/node_modules.
# They are kept in the user's cache, by the versions that are named, so that another checkout need not fetch them again.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

scripts/system.sh npm
home=${XDG_CACHE_HOME:-$HOME/.cache}/vaka/ts
manifests=$(ls ts/package.json ts/*/package.json)
# shellcheck disable=SC2086 # one word per file
packages=$home/$(cat $manifests | sha256sum | cut -c1-32)
if [[ ! -e $packages/node_modules ]]; then
	echo "fetching the packages of ts/"
	mkdir -p "$home"
	made=$(mktemp -d "$home/new.XXXXXX")
	trap 'rm -rf "$made"' EXIT
	for manifest in $manifests; do
		mkdir -p "$made/$(dirname "${manifest#ts/}")"
		cp "$manifest" "$made/${manifest#ts/}"
	done
	npm install --silent --no-package-lock --no-audit --no-fund --prefix "$made"
	mv -T "$made" "$packages" 2>/dev/null || [[ -e $packages/node_modules ]]
fi
ln -sfn "$packages/node_modules" ts/node_modules
