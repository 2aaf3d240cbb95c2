"""Commands that run another command (sudo, env, xargs, find -exec), and how env -S splits its text."""

import re
from collections.abc import Iterator, Mapping
from itertools import islice

import msgspec

from vaka.policy.bash.parse.syntax import INPUT_WORD, PLACEHOLDER, Piece, Word, WordExpansion, Words
from vaka.policy.bash.parse.words import ParseMismatch

_ENV_TOKEN = re.compile(
    r"(?P<blank>[ \t\n\v\f\r]+|\\_)|'(?P<single>(?:[^'\\]|\\.)*)'|\"(?P<double>(?:[^\"\\]|\\.)*)\""
    r"|\\(?P<escape>.)|(?P<comment>#)|(?P<plain>[^ \t\n\v\f\r'\"\\#]+|.)|(?P<end>$)",
    re.DOTALL,
)

_ENV_VARIABLE = re.compile(rf"\$\{{(\w+)\}}|{re.escape(PLACEHOLDER)}")

_ENV_ESCAPES = {"f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "_": " "}


def split_env_string(text: str) -> list[Word]:
    """Return the words that ``env -S`` makes of a text; a variable in one is not known."""
    words: list[Word] = []
    pieces: list[Piece] | None = None
    for token in _ENV_TOKEN.finditer(text):
        kind, part = token.lastgroup, token[0]
        stops = kind in ("blank", "end") or (kind == "comment" and pieces is None) or (kind, part) == ("escape", "\\c")
        if not stops:
            pieces = [] if pieces is None else pieces
            pieces.extend(_token_pieces(kind or "", token[kind or 0]))
            continue
        if pieces is not None:
            words.append(_build_word(pieces))
            pieces = None
        if kind != "blank":
            break
    return words


def _token_pieces(kind: str, text: str) -> Iterator[Piece]:
    if kind == "escape":
        yield _ENV_ESCAPES.get(text, text)
    elif kind == "single":
        yield re.sub(r"\\(['\\])", r"\1", text)
    elif kind == "double":
        for at, part in enumerate(re.split(r"\\(.)", text, flags=re.DOTALL)):
            yield from [_ENV_ESCAPES.get(part, part)] if at % 2 else _expand_variables(part)
    else:
        yield from _expand_variables(text)


def _expand_variables(text: str) -> Iterator[Piece]:
    at = 0
    for found in _ENV_VARIABLE.finditer(text):
        yield text[at : found.start()]
        yield WordExpansion("parameter", found[1] or "")
        at = found.end()
    yield text[at:]


def _build_word(pieces: list[Piece]) -> Word:
    texts = [piece for piece in pieces if isinstance(piece, str)]
    if len(texts) == len(pieces):
        return Word("".join(texts), "".join(texts))
    shown = "".join(piece if isinstance(piece, str) else f"${{{piece.name}}}" for piece in pieces)
    return Word(None, shown, tuple(piece for piece in pieces if piece))


class Wrapper(msgspec.Struct, frozen=True):
    """How to find the command inside: options, and what stands before it."""

    flags: str = ""
    """Short options without a value."""
    valued: str = ""
    """Short options with one."""
    long_valued: frozenset[str] = frozenset()
    """Long options whose value is the next word."""
    before: int = 0
    """Words between the options and the command."""
    assigns: bool = False
    """Whether ``NAME=value`` may stand before the command."""
    queries: str = ""
    """Options that make it tell something instead of running anything."""
    numbers: bool = False
    """Whether ``-5`` is an option of it."""
    subcommand: tuple[str, ...] = ()
    """It is a wrapper only with one of these as its first word."""
    appends: bool = False
    """Whether it adds words of its own at the end."""
    splits: bool = False
    """Whether ``-S`` holds several words."""


def _wrapper(flags: str = "", valued: str = "", *long_valued: str, before: int = 0) -> Wrapper:
    return Wrapper(flags, valued, frozenset(long_valued), before)


_RUN_SUBCOMMAND = Wrapper(subcommand=("run", "exec", "x"))

WRAPPERS: Mapping[str, Wrapper] = {
    "command": Wrapper("p", queries="vV"),
    "builtin": Wrapper(),
    "exec": _wrapper("cl", "a"),
    "coproc": Wrapper(),
    "noglob": Wrapper(),
    "nocorrect": Wrapper(),
    "time": _wrapper("pvVaq", "fo", "format", "output"),
    "env": Wrapper("i0v", "uCPa", frozenset({"unset", "chdir", "argv0"}), assigns=True, splits=True),
    "nice": Wrapper("", "n", frozenset({"adjustment"}), numbers=True),
    "nohup": Wrapper(),
    "timeout": _wrapper("vfp", "ks", "kill-after", "signal", before=1),
    "gtimeout": _wrapper("vfp", "ks", "kill-after", "signal", before=1),
    "stdbuf": _wrapper("", "ioe", "input", "output", "error"),
    "setsid": _wrapper("cfw"),
    "ionice": _wrapper("t", "cnpPu", "class", "classdata", "pid"),
    "chrt": _wrapper("abdfimorRv", "TPD", "pid", before=1),
    "taskset": _wrapper("ac", "p", before=1),
    "sudo": Wrapper(
        "AbBEHnPSKkiseNv",
        "CDghpRrTtUu",
        frozenset(
            {
                "close-from",
                "chdir",
                "group",
                "host",
                "prompt",
                "chroot",
                "role",
                "type",
                "other-user",
                "user",
                "command-timeout",
            }
        ),
        assigns=True,
    ),
    "doas": _wrapper("nsL", "aCu"),
    "pkexec": _wrapper("", "", "user"),
    "run0": _wrapper("", "ugD", "user", "group", "chdir", "unit", "property", "description", "slice"),
    "xargs": Wrapper(
        "0rtpxo",
        "EILnPsda",
        frozenset(
            {
                "max-args",
                "max-procs",
                "max-chars",
                "delimiter",
                "arg-file",
                "replace-str",
            }
        ),
        appends=True,
    ),
    "watch": _wrapper("bcdegtwxpr", "nqs", "interval", "equexit"),
    "flock": _wrapper("eosunxF", "wE", "timeout", "conflict-exit-code", before=1),
    "chroot": _wrapper("", "", "userspec", "groups", before=1),
    "unshare": _wrapper(
        "muinpUCTfrc", "GRSw", "root", "wd", "setuid", "setgid", "map-user", "map-group", "propagation"
    ),
    "nsenter": _wrapper("amuinpCTFeZ", "tSGrw", "target", "setuid", "setgid"),
    "setpriv": _wrapper("", "", "reuid", "regid", "groups", "inh-caps", "bounding-set", "ambient-caps", "securebits"),
    "capsh": Wrapper(),
    "prlimit": _wrapper("", "p", "pid"),
    "setarch": _wrapper("vRB3ILSTXZ", "", before=1),
    "linux32": _wrapper("vRB3ILSTXZ"),
    "linux64": _wrapper("vRB3ILSTXZ"),
    "i386": _wrapper("v"),
    "x86_64": _wrapper("v"),
    "arch": _wrapper("h", "de"),
    "strace": _wrapper("AcCdDffFhikqrtTvVwxyYzZn", "abeEIoOpPsSuUX"),
    "ltrace": _wrapper("bcCfhiLrStTV", "aADeFlnopsuwx"),
    "valgrind": Wrapper(),
    "perf": Wrapper(subcommand=("stat", "record", "trace")),
    "gdb": Wrapper(),
    "catchsegv": Wrapper(),
    "unbuffer": _wrapper("p"),
    "rlwrap": _wrapper("aAcEhiImnNorRsTUvwWz", "bCDfFgHlMOpPqSt"),
    "script": _wrapper("aefq", "cEIOBoTtm"),
    "systemd-run": _wrapper(
        "tPqdGrS", "MpuE", "unit", "property", "uid", "gid", "slice", "setenv", "working-directory"
    ),
    "systemd-inhibit": _wrapper("", "", "what", "who", "why", "mode"),
    "start-stop-daemon": _wrapper("SbmovtqC", "xpungcdrkRNIO", "exec", "pidfile", "startas"),
    "proot": _wrapper("0", "rbRwqkS"),
    "fakeroot": _wrapper("uh", "lsib"),
    "fakechroot": Wrapper(),
    "dbus-run-session": Wrapper(),
    "dbus-launch": Wrapper(),
    "xvfb-run": _wrapper("al", "efnpsw", "server-num", "server-args"),
    "eatmydata": Wrapper(),
    "torsocks": Wrapper(),
    "torify": Wrapper(),
    "tsocks": Wrapper(),
    "proxychains": _wrapper("q", "f"),
    "proxychains4": _wrapper("q", "f"),
    "caffeinate": _wrapper("disum", "tw"),
    "faketime": _wrapper("fm", "p", before=1),
    "numactl": _wrapper("als", "iCmpNxe"),
    "cpulimit": _wrapper("zivm", "lpe"),
    "chpst": _wrapper("vVP012", "uUbemdofprtc/n"),
    "softlimit": _wrapper("", "acdfmlnorpst"),
    "setuidgid": Wrapper(before=1),
    "envdir": Wrapper(before=1),
    "gosu": Wrapper(before=1),
    "su-exec": Wrapper(before=1),
    "busybox": Wrapper(),
    "toybox": Wrapper(),
    "entr": _wrapper("acdnprsxz"),
    "parallel": Wrapper("kX", "jIPnN"),
    "runuser": _wrapper("flpm", "ugGcsw", "user", "group"),
    "sg": Wrapper(before=1),
    "cgexec": _wrapper("", "g"),
    "chronic": _wrapper("ev"),
    "ifne": _wrapper("n"),
    "ts": Wrapper(subcommand=()),
    "hyperfine": _wrapper("iN", "wmMrpcsSnu"),
    "direnv": Wrapper(subcommand=("exec",), before=1),
    "uv": _RUN_SUBCOMMAND,
    "poetry": _RUN_SUBCOMMAND,
    "pipenv": _RUN_SUBCOMMAND,
    "pdm": _RUN_SUBCOMMAND,
    "hatch": _RUN_SUBCOMMAND,
    "bundle": _RUN_SUBCOMMAND,
    "mise": _RUN_SUBCOMMAND,
    "rtx": _RUN_SUBCOMMAND,
    "npx": Wrapper("yq", "pcw"),
    "uvx": Wrapper(),
    "nix": Wrapper(subcommand=("run", "develop", "shell")),
    "doppler": _RUN_SUBCOMMAND,
    "op": _RUN_SUBCOMMAND,
    "dotenv": _RUN_SUBCOMMAND,
}
"""What rules that deny or ask see through."""

TRANSPARENT_WRAPPERS = frozenset({"timeout", "time", "nice", "nohup", "stdbuf"})
"""What rules that allow see through."""

EXACT_ONLY_WRAPPERS = frozenset({"watch", "setsid", "ionice", "flock"})
"""Runners that a rule with a wildcard does not cover."""

REMOTE_RUNNERS = frozenset({"ssh", "docker", "podman", "nerdctl", "kubectl", "oc"})
"""Runners that run a command on another machine, or in a container: only rules that deny or ask see it."""

_SANDBOX_RUNNERS = frozenset({"bwrap", "firejail"})

_RUNNERS = frozenset({"find", "gfind", "bfs", "fd", "fdfind", "git"}) | REMOTE_RUNNERS | _SANDBOX_RUNNERS

_FIND_EXEC_ACTIONS = {"-exec", "-execdir", "-ok", "-okdir"}

_FD_EXEC_OPTIONS = {"-x", "--exec", "-X", "--exec-batch"}

_FOUND_PATH = WordExpansion("input", guess="{}")

_MAX_COMMANDS = 64


def base_name(value: str) -> str:
    """Return the last part of a path."""
    return value.rsplit("/", 1)[-1]


def find_wrapped_commands(words: Words) -> tuple[Words, ...]:
    """Return every command that this one may run in turn, in each reading of its options.

    Raises ``Mismatch`` when there are more than anybody means.
    """
    if not words or not _may_run_command(words[0]):
        return ()
    found: list[Words] = []
    known: dict[int, list[Words]] = {}  # by length: what is as long is seldom, and to compare long ones takes time
    waiting = [words]
    while waiting:
        for one in _directly_wrapped(waiting.pop()):
            if one and one not in known.setdefault(len(one), []):
                known[len(one)].append(one)
                found.append(one)
                waiting.append(one)
                if len(found) > _MAX_COMMANDS:
                    raise ParseMismatch("it runs commands that run commands, too many times")
    return tuple(found)


def _may_run_command(word: Word) -> bool:
    name = base_name(word.guess or "")
    return name in WRAPPERS or name in _RUNNERS


def _directly_wrapped(words: Words) -> Iterator[Words]:
    name = words[0].guess if words else None
    if not name:
        return
    name = base_name(name)
    if name in {"find", "gfind", "bfs"}:
        yield from _exec_commands(words, _FIND_EXEC_ACTIONS)
    elif name in {"fd", "fdfind"}:
        yield from _exec_commands(words, _FD_EXEC_OPTIONS)
    elif (wrapper := WRAPPERS.get(name)) is not None:
        yield from _WrapperOptions(words, wrapper).iter_commands()
    elif name == "git" and len(words) > 1:
        yield from _git_commands(words)
    elif name in _SANDBOX_RUNNERS:
        yield from _commands_from(words, 1)
    elif name in REMOTE_RUNNERS and name != "ssh":
        yield from _container_commands(words)


def _git_commands(words: Words) -> Iterator[Words]:
    for index, word in enumerate(words):
        if word.value in {"bisect", "rebase", "submodule"}:
            for later in range(index + 1, len(words)):
                if words[later].value in {"run", "foreach", "--exec", "-x"}:
                    yield words[later + 1 :]


def _container_commands(words: Words) -> Iterator[Words]:
    """What ``docker run`` and ``docker exec`` run, behind the name of an image or a container."""
    start = next((index for index, word in enumerate(words) if word.value in {"run", "exec"}), len(words))
    yield from _commands_from(words, start + 2)


def _commands_from(words: Words, start: int) -> Iterator[Words]:
    """Any word may be the first of the command: what such options take is not for us to know."""
    places = (index for index in range(start, len(words)) if re.fullmatch(r"[\w./+]+", words[index].value or ""))
    yield from (words[index:] for index in islice(places, _MAX_COMMANDS // 2))


def _exec_commands(words: Words, actions: set[str]) -> Iterator[Words]:
    index = 1
    while index < len(words):
        value = words[index].value or ""
        if value in actions or value.partition("=")[0] in actions:
            end = index + 1
            while end < len(words) and words[end].value not in {";", "+"}:
                end += 1
            yield tuple(map(_insert_found_path, words[index + 1 : end]))
            index = end
        index += 1


def _insert_found_path(word: Word) -> Word:
    """A word in which ``find`` puts what it found."""
    if word.value is None or "{" not in word.value or "}" not in word.value:
        return word
    before, _, after = word.value.partition("{}")
    return Word(None, word.source, tuple(piece for piece in (before, _FOUND_PATH, after) if piece))


class _WrapperOptions:
    """Walks over a wrapper's options; where one is not known both readings are tried."""

    def __init__(self, words: Words, wrapper: Wrapper) -> None:
        self.words = words
        self.wrapper = wrapper

    def iter_commands(self) -> Iterator[Words]:
        wrapper, start = self.wrapper, 1
        if wrapper.subcommand:
            while start < len(self.words) and self.words[start].value not in wrapper.subcommand:
                start += 1
            start += 1
        starts, seen = [(start, wrapper.before)], set[tuple[int, int]]()
        while starts:
            place = starts.pop()
            if place in seen or place[0] >= len(self.words):
                continue
            seen.add(place)
            following = self._next_positions(*place)
            if following is None:
                yield self._command_at(place[0])
            else:
                starts += following[0]
                if following[1]:
                    yield self._command_at(place[0])

    def _command_at(self, start: int) -> Words:
        rest = self.words[start:]
        return (*rest, INPUT_WORD) if self.wrapper.appends else rest

    def _next_positions(self, at: int, before: int) -> tuple[list[tuple[int, int]], bool] | None:
        """Return where to go on from a word, and whether it may be the command too; ``None`` when it surely is."""
        word = self.words[at]
        value = word.guess
        if value is None:
            after = [(at + 1, before), (at + 1, max(before - 1, 0))]
            return after, before == 0
        if value == "--":
            return [(at + 1 + before, 0)], False
        if value == "-" and self.wrapper.splits:
            return [(at + 1, before)], False
        if value.startswith("-") and value != "-":
            return self._positions_after_option(value, at, before), False
        if self.wrapper.assigns and _is_assignment(value):
            return [(at + 1, before)], False
        if before:
            return [(at + 1, before - 1)], False
        return None

    def _positions_after_option(self, value: str, at: int, before: int) -> list[tuple[int, int]]:
        one, two = (at + 1, before), (at + 2, before)
        wrapper = self.wrapper
        if wrapper.queries and any(letter in value for letter in wrapper.queries) and not value.startswith("--"):
            return []
        if wrapper.splits and (found := self._split_string_argument(value, at)) is not None:
            self.words = (*self.words[: at + 1], *split_env_string(found[0]), *self.words[found[1] :])
            return [one]
        if value.startswith("--"):
            name, equals, _ = value[2:].partition("=")
            if equals:
                return [one]
            return [two] if name in wrapper.long_valued else [one, two]
        if wrapper.numbers and value[1:].lstrip("-").isdigit():
            return [one]
        return self._positions_after_cluster(value[1:], one, two)

    def _split_string_argument(self, value: str, at: int) -> tuple[str, int] | None:
        """Return the text that ``env -S`` takes apart, and where the words behind it begin."""
        name, equals, text = value.partition("=")
        if len(name) > 2 and "--split-string".startswith(name):  # as short as nobody else's name begins
            if equals:
                return text, at + 1
        else:
            letters, found, rest = value[1:].partition("S")
            if not found or letters.strip("i0v"):
                return None
            if rest:
                return rest, at + 1
        return (self.words[at + 1].placeholder_text, at + 2) if at + 1 < len(self.words) else None

    def _positions_after_cluster(
        self, letters: str, one: tuple[int, int], two: tuple[int, int]
    ) -> list[tuple[int, int]]:
        for index, letter in enumerate(letters):
            if letter in self.wrapper.valued:
                return [two] if index == len(letters) - 1 else [one]
            if letter not in self.wrapper.flags:
                return [one, two]
        return [one]


def _is_assignment(value: str) -> bool:
    name, equals, _ = value.partition("=")
    return bool(equals) and name.isidentifier()


def strip_wrappers(words: Words) -> Words:
    """Return a command without the wrappers that change nothing about it; unchanged when that is not certain."""
    while words and words[0].value is not None and _trusted_base_name(words[0].value) in TRANSPARENT_WRAPPERS:
        rest = _strip_wrapper(words, _trusted_base_name(words[0].value))
        if not rest:
            return words
        words = rest
    return words


def _trusted_base_name(value: str) -> str:
    return base_name(value) if value.startswith(("/usr/bin/", "/bin/")) else value


_STRIP_OPTIONS: Mapping[str, Mapping[str, int]] = {
    "time": {"-p": 1},
    "nohup": {},
    "nice": {"-n": 2, "--adjustment": 2},
    "stdbuf": {"-i": 2, "-o": 2, "-e": 2},
    "timeout": {
        "-k": 2, "-s": 2, "--kill-after": 2, "--signal": 2, "-v": 1, "--verbose": 1, "--foreground": 1,
        "--preserve-status": 1, "-f": 1, "-p": 1,
    },
}  # fmt: skip

_ATTACHED_VALUES = ("--kill-after=", "--signal=", "--adjustment=", "--input=", "--output=", "--error=")


def _strip_wrapper(words: Words, name: str) -> Words:
    options, at = _STRIP_OPTIONS[name], 1
    while at < len(words):
        value = words[at].value
        if value is None or words[at].from_braces:
            return ()
        if not value.startswith("-") or value == "-":
            break
        if value == "--":
            at += 1
            break
        size = _option_width(name, value, options)
        if not size or any(word.value is None or word.from_braces for word in words[at : at + size]):
            return ()
        at += size
    if name == "timeout":
        if at >= len(words) or words[at].value is None:
            return ()
        at += 1
    return words[at:]


def _option_width(name: str, value: str, options: Mapping[str, int]) -> int:
    """Return how many words an option takes, 0 when it is not known."""
    if value in options:
        return options[value]
    if value.startswith("--"):
        known = value.startswith(_ATTACHED_VALUES) and (value.partition("=")[0] in options or name == "stdbuf")
        return 1 if known else 0
    if name == "nice" and value[1:].lstrip("-").isdigit():
        return 1
    return 1 if options.get(value[:2]) == 2 and name in {"nice", "stdbuf", "timeout"} else 0
