#!/usr/bin/env bash
# Install vaka and pyluau from wheels of this checkout into an environment of their own, with the extras of the README and
# without development packages. The tests in tests/journeys use this environment. It is made anew when the dependencies
# change; when only the source changes, the wheels are built and installed again. Wheels are kept in the user's cache by
# the digest of their source.
#
#   scripts/installed_vaka.sh .venv/bin/python .venv/installed
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=$1 place=$2
extras=postgres,tui,mcp,definitions,server

mkdir -p "$(dirname "$place")"
exec 9>"$place.lock"
! command -v flock >/dev/null || flock 9 # several test processes may ask at once

digest_files() { # of the files below the given folders
	find "$@" -type f -not -name '*.so' -not -path '*/__pycache__/*' -print0 | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum | cut -c1-32
}
source_digest=$(digest_files pyproject.toml README.md LICENSE src)
dependency_digest=$({
	sed '/^\[tool\./,$d' pyproject.toml # what it depends on, without the settings of tools
	cat constraints.txt
	echo "$extras"
	"$python" -VV
} | sha256sum | cut -c1-32)
luau_wheel=$(scripts/pyluau.sh "$python" --wheel)
state="$dependency_digest $source_digest $luau_wheel"
[ "$(cat "$place/.state" 2>/dev/null)" != "$state" ] || exit 0

wheels=${XDG_CACHE_HOME:-$HOME/.cache}/vaka/wheels/$source_digest
if ! compgen -G "$wheels/vaka-*.whl" >/dev/null; then
	made=$(mktemp -d)
	trap 'rm -rf "$made"' EXIT
	PIP_BUILD_CONSTRAINT=constraints.txt "$python" -m pip wheel --quiet --no-deps --wheel-dir "$made" .
	mkdir -p "$wheels"
	mv "$made"/vaka-*.whl "$wheels"/
	find "$wheels/.." -name 'vaka-*.whl' -mtime +7 -delete # of earlier sources
fi
vaka_wheel=$(compgen -G "$wheels/vaka-*.whl")

if [ "$(cut -d' ' -f1 "$place/.state" 2>/dev/null)" != "$dependency_digest" ]; then
	echo "installing vaka and its dependencies into $place (once for each change of them)"
	rm -rf "$place"
	"$python" -m venv "$place"
	"$place/bin/pip" install --quiet --disable-pip-version-check -c constraints.txt "$vaka_wheel[$extras]"
	"$place/bin/pip" install --quiet --disable-pip-version-check "$luau_wheel"
else
	rm -f "$place/.state"
	"$place/bin/pip" install --quiet --disable-pip-version-check --no-deps --force-reinstall "$vaka_wheel" "$luau_wheel"
fi
echo "$state" >"$place/.state"
