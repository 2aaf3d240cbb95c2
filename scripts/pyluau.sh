#!/usr/bin/env bash
# Build pyluau and install it with the given Python. What was built is kept in the user's cache, by the text it was
# built of, so that another checkout of the same text need not build it again.
#
#   scripts/pyluau.sh .venv/bin/python            build and install
#   scripts/pyluau.sh .venv/bin/python --wheel    build, and print the path of the wheel
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=$1

command -v cargo >/dev/null || {
	echo "pyluau is built by Rust, and there is no cargo here: install Rust first" >&2
	exit 1
}
home=${XDG_CACHE_HOME:-$HOME/.cache}/vaka
text=$({
	cd pyluau
	find Cargo.toml .cargo pyproject.toml README.md LICENSE licenses src python -type f -not -name '*.so' -not -path '*/__pycache__/*' -print0 |
		LC_ALL=C sort -z | xargs -0 sha256sum
	rustc --version
	uname -sm
} | sha256sum | cut -c1-32)
wheels=$home/wheels/$text

if ! compgen -G "$wheels/pyluau-*.whl" >/dev/null; then
	echo "building pyluau (once for each change of it, some minutes)" >&2
	made=$(mktemp -d)
	trap 'rm -rf "$made"' EXIT
	CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$home/cargo} PIP_BUILD_CONSTRAINT=constraints.txt \
		"$python" -m pip wheel --quiet --no-deps --wheel-dir "$made" ./pyluau
	mkdir -p "$wheels"
	mv "$made"/pyluau-*.whl "$wheels"/
fi
if [ "${2:-}" = --wheel ]; then
	compgen -G "$wheels/pyluau-*.whl"
	exit
fi
"$python" -m pip install --quiet --no-deps --force-reinstall "$wheels"/pyluau-*.whl
