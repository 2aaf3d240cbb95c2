#!/usr/bin/env bash
# Install the conformance suite of the Model Context Protocol and its Node.js, and link them as .venv/mcp-conformance.
# They are kept in the user's cache, by the versions that are named, so that another checkout need not fetch them again.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
versions=tests/blackbox/mcp_conformance/package.json

scripts/system.sh npm
home=${XDG_CACHE_HOME:-$HOME/.cache}/vaka/mcp-conformance
suite=$home/$(sha256sum "$versions" | cut -c1-32)
if [[ ! -e $suite/node_modules ]]; then
	echo "fetching the conformance suite of MCP"
	mkdir -p "$home"
	made=$(mktemp -d "$home/new.XXXXXX")
	trap 'rm -rf "$made"' EXIT
	cp "$versions" "$made/package.json"
	npm install --silent --no-package-lock --no-audit --no-fund --prefix "$made"
	mv -T "$made" "$suite" 2>/dev/null || [[ -e $suite/node_modules ]]
fi
ln -sfn "$suite" .venv/mcp-conformance
