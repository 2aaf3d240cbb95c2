"""Commands that run another command."""

import re
from collections.abc import Iterator, Mapping
from itertools import islice

import msgspec

from vaka.policy.bash.quoting import Mismatch
from vaka.policy.bash.splitting import apart
from vaka.policy.bash.words import INPUT, Hole, Word, Words


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


def _of(flags: str = "", valued: str = "", *long_valued: str, before: int = 0) -> Wrapper:
    return Wrapper(flags, valued, frozenset(long_valued), before)


_RUN = Wrapper(subcommand=("run", "exec", "x"))

WRAPPERS: Mapping[str, Wrapper] = {
    "command": Wrapper("p", queries="vV"),
    "builtin": Wrapper(),
    "exec": _of("cl", "a"),
    "coproc": Wrapper(),
    "noglob": Wrapper(),
    "nocorrect": Wrapper(),
    "time": _of("pvVaq", "fo", "format", "output"),
    "env": Wrapper("i0v", "uCPa", frozenset({"unset", "chdir", "argv0"}), assigns=True, splits=True),
    "nice": Wrapper("", "n", frozenset({"adjustment"}), numbers=True),
    "nohup": Wrapper(),
    "timeout": _of("vfp", "ks", "kill-after", "signal", before=1),
    "gtimeout": _of("vfp", "ks", "kill-after", "signal", before=1),
    "stdbuf": _of("", "ioe", "input", "output", "error"),
    "setsid": _of("cfw"),
    "ionice": _of("t", "cnpPu", "class", "classdata", "pid"),
    "chrt": _of("abdfimorRv", "TPD", "pid", before=1),
    "taskset": _of("ac", "p", before=1),
    "sudo": Wrapper("AbBEHnPSKkiseNv", "CDghpRrTtUu", frozenset({
        "close-from", "chdir", "group", "host", "prompt", "chroot", "role", "type", "other-user", "user",
        "command-timeout",
    }), assigns=True),
    "doas": _of("nsL", "aCu"),
    "pkexec": _of("", "", "user"),
    "run0": _of("", "ugD", "user", "group", "chdir", "unit", "property", "description", "slice"),
    "xargs": Wrapper("0rtpxo", "EILnPsda", frozenset({
        "max-args", "max-procs", "max-chars", "delimiter", "arg-file", "replace-str",
    }), appends=True),
    "watch": _of("bcdegtwxpr", "nqs", "interval", "equexit"),
    "flock": _of("eosunxF", "wE", "timeout", "conflict-exit-code", before=1),
    "chroot": _of("", "", "userspec", "groups", before=1),
    "unshare": _of("muinpUCTfrc", "GRSw", "root", "wd", "setuid", "setgid", "map-user", "map-group", "propagation"),
    "nsenter": _of("amuinpCTFeZ", "tSGrw", "target", "setuid", "setgid"),
    "setpriv": _of("", "", "reuid", "regid", "groups", "inh-caps", "bounding-set", "ambient-caps", "securebits"),
    "capsh": Wrapper(),
    "prlimit": _of("", "p", "pid"),
    "setarch": _of("vRB3ILSTXZ", "", before=1),
    "linux32": _of("vRB3ILSTXZ"), "linux64": _of("vRB3ILSTXZ"), "i386": _of("v"), "x86_64": _of("v"),
    "arch": _of("h", "de"),
    "strace": _of("AcCdDffFhikqrtTvVwxyYzZn", "abeEIoOpPsSuUX"),
    "ltrace": _of("bcCfhiLrStTV", "aADeFlnopsuwx"),
    "valgrind": Wrapper(),
    "perf": Wrapper(subcommand=("stat", "record", "trace")),
    "gdb": Wrapper(),
    "catchsegv": Wrapper(),
    "unbuffer": _of("p"),
    "rlwrap": _of("aAcEhiImnNorRsTUvwWz", "bCDfFgHlMOpPqSt"),
    "script": _of("aefq", "cEIOBoTtm"),
    "systemd-run": _of("tPqdGrS", "MpuE", "unit", "property", "uid", "gid", "slice", "setenv", "working-directory"),
    "systemd-inhibit": _of("", "", "what", "who", "why", "mode"),
    "start-stop-daemon": _of("SbmovtqC", "xpungcdrkRNIO", "exec", "pidfile", "startas"),
    "proot": _of("0", "rbRwqkS"), "fakeroot": _of("uh", "lsib"),
    "fakechroot": Wrapper(), "dbus-run-session": Wrapper(), "dbus-launch": Wrapper(),
    "xvfb-run": _of("al", "efnpsw", "server-num", "server-args"),
    "eatmydata": Wrapper(), "torsocks": Wrapper(), "torify": Wrapper(), "tsocks": Wrapper(),
    "proxychains": _of("q", "f"), "proxychains4": _of("q", "f"),
    "caffeinate": _of("disum", "tw"), "faketime": _of("fm", "p", before=1), "numactl": _of("als", "iCmpNxe"),
    "cpulimit": _of("zivm", "lpe"), "chpst": _of("vVP012", "uUbemdofprtc/n"), "softlimit": _of("", "acdfmlnorpst"),
    "setuidgid": Wrapper(before=1), "envdir": Wrapper(before=1), "gosu": Wrapper(before=1),
    "su-exec": Wrapper(before=1),
    "busybox": Wrapper(), "toybox": Wrapper(), "entr": _of("acdnprsxz"), "parallel": Wrapper("kX", "jIPnN"),
    "runuser": _of("flpm", "ugGcsw", "user", "group"), "sg": Wrapper(before=1), "cgexec": _of("", "g"),
    "chronic": _of("ev"), "ifne": _of("n"), "ts": Wrapper(subcommand=()), "hyperfine": _of("iN", "wmMrpcsSnu"),
    "direnv": Wrapper(subcommand=("exec",), before=1), "uv": _RUN, "poetry": _RUN, "pipenv": _RUN, "pdm": _RUN,
    "hatch": _RUN, "bundle": _RUN, "mise": _RUN, "rtx": _RUN, "npx": Wrapper("yq", "pcw"), "uvx": Wrapper(),
    "nix": Wrapper(subcommand=("run", "develop", "shell")), "doppler": _RUN, "op": _RUN, "dotenv": _RUN,
}  # fmt: skip
"""What rules that deny or ask see through."""

STRIPPED = frozenset({"timeout", "time", "nice", "nohup", "stdbuf"})
"""What rules that allow see through."""

EXACT = frozenset({"watch", "setsid", "ionice", "flock"})
"""Runners that a rule with a wildcard does not cover."""

ELSEWHERE = frozenset({"ssh", "docker", "podman", "nerdctl", "kubectl", "oc"})
"""Runners that run a command on another machine, or in a container: only rules that deny or ask see it."""

_BOXES = frozenset({"bwrap", "firejail"})
_RUNNERS = frozenset({"find", "gfind", "bfs", "fd", "fdfind", "git"}) | ELSEWHERE | _BOXES
_FIND_RUNS = {"-exec", "-execdir", "-ok", "-okdir"}
_FD_RUNS = {"-x", "--exec", "-X", "--exec-batch"}
_FOUND = Hole("input", guess="{}")
_MOST = 64


def base(value: str) -> str:
    """Return the last part of a path."""
    return value.rsplit("/", 1)[-1]


def inner(words: Words) -> tuple[Words, ...]:
    """Return every command that this one may run in turn, in each reading of its options.

    Raises ``Mismatch`` when there are more than anybody means.
    """
    if not words or not _may_run(words[0]):
        return ()
    found: list[Words] = []
    known: dict[int, list[Words]] = {}  # by length: what is as long is seldom, and to compare long ones takes time
    waiting = [words]
    while waiting:
        for one in _direct(waiting.pop()):
            if one and one not in known.setdefault(len(one), []):
                known[len(one)].append(one)
                found.append(one)
                waiting.append(one)
                if len(found) > _MOST:
                    raise Mismatch("it runs commands that run commands, too many times")
    return tuple(found)


def _may_run(word: Word) -> bool:
    name = base(word.guess or "")
    return name in WRAPPERS or name in _RUNNERS


def _direct(words: Words) -> Iterator[Words]:
    name = words[0].guess if words else None
    if not name:
        return
    name = base(name)
    if name in {"find", "gfind", "bfs"}:
        yield from _runs(words, _FIND_RUNS)
    elif name in {"fd", "fdfind"}:
        yield from _runs(words, _FD_RUNS)
    elif (wrapper := WRAPPERS.get(name)) is not None:
        yield from _Reading(words, wrapper).commands()
    elif name == "git" and len(words) > 1:
        yield from _git(words)
    elif name in _BOXES:
        yield from _anywhere(words, 1)
    elif name in ELSEWHERE and name != "ssh":
        yield from _contained(words)


def _git(words: Words) -> Iterator[Words]:
    for index, word in enumerate(words):
        if word.value in {"bisect", "rebase", "submodule"}:
            for later in range(index + 1, len(words)):
                if words[later].value in {"run", "foreach", "--exec", "-x"}:
                    yield words[later + 1 :]


def _contained(words: Words) -> Iterator[Words]:
    """What ``docker run`` and ``docker exec`` run, behind the name of an image or a container."""
    start = next((index for index, word in enumerate(words) if word.value in {"run", "exec"}), len(words))
    yield from _anywhere(words, start + 2)


def _anywhere(words: Words, start: int) -> Iterator[Words]:
    """Any word may be the first of the command: what such options take is not for us to know."""
    places = (index for index in range(start, len(words)) if re.fullmatch(r"[\w./+]+", words[index].value or ""))
    yield from (words[index:] for index in islice(places, _MOST // 2))


def _runs(words: Words, actions: set[str]) -> Iterator[Words]:
    index = 1
    while index < len(words):
        value = words[index].value or ""
        if value in actions or value.partition("=")[0] in actions:
            end = index + 1
            while end < len(words) and words[end].value not in {";", "+"}:
                end += 1
            yield tuple(map(_filled, words[index + 1 : end]))
            index = end
        index += 1


def _filled(word: Word) -> Word:
    """A word in which ``find`` puts what it found."""
    if word.value is None or "{" not in word.value or "}" not in word.value:
        return word
    before, _, after = word.value.partition("{}")
    return Word(None, word.source, tuple(piece for piece in (before, _FOUND, after) if piece))


class _Reading:
    """Walks over a wrapper's options; where one is not known both readings are tried."""

    def __init__(self, words: Words, wrapper: Wrapper) -> None:
        self.words = words
        self.wrapper = wrapper

    def commands(self) -> Iterator[Words]:
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
            following = self._step(*place)
            if following is None:
                yield self._command(place[0])
            else:
                starts += following[0]
                if following[1]:
                    yield self._command(place[0])

    def _command(self, start: int) -> Words:
        rest = self.words[start:]
        return (*rest, INPUT) if self.wrapper.appends else rest

    def _step(self, at: int, before: int) -> tuple[list[tuple[int, int]], bool] | None:
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
            return self._option(value, at, before), False
        if self.wrapper.assigns and _assigns(value):
            return [(at + 1, before)], False
        if before:
            return [(at + 1, before - 1)], False
        return None

    def _option(self, value: str, at: int, before: int) -> list[tuple[int, int]]:
        one, two = (at + 1, before), (at + 2, before)
        wrapper = self.wrapper
        if wrapper.queries and any(letter in value for letter in wrapper.queries) and not value.startswith("--"):
            return []
        if wrapper.splits and (found := self._split(value, at)) is not None:
            self.words = (*self.words[: at + 1], *apart(found[0]), *self.words[found[1] :])
            return [one]
        if value.startswith("--"):
            name, equals, _ = value[2:].partition("=")
            if equals:
                return [one]
            return [two] if name in wrapper.long_valued else [one, two]
        if wrapper.numbers and value[1:].lstrip("-").isdigit():
            return [one]
        return self._cluster(value[1:], one, two)

    def _split(self, value: str, at: int) -> tuple[str, int] | None:
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
        return (self.words[at + 1].sketch, at + 2) if at + 1 < len(self.words) else None

    def _cluster(self, letters: str, one: tuple[int, int], two: tuple[int, int]) -> list[tuple[int, int]]:
        for index, letter in enumerate(letters):
            if letter in self.wrapper.valued:
                return [two] if index == len(letters) - 1 else [one]
            if letter not in self.wrapper.flags:
                return [one, two]
        return [one]


def _assigns(value: str) -> bool:
    name, equals, _ = value.partition("=")
    return bool(equals) and name.isidentifier()


def plain(words: Words) -> Words:
    """Return a command without the wrappers that change nothing about it; unchanged when that is not certain."""
    while words and words[0].value is not None and _harmless_name(words[0].value) in STRIPPED:
        rest = _strip(words, _harmless_name(words[0].value))
        if not rest:
            return words
        words = rest
    return words


def _harmless_name(value: str) -> str:
    return base(value) if value.startswith(("/usr/bin/", "/bin/")) else value


_STRIP: Mapping[str, Mapping[str, int]] = {
    "time": {"-p": 1},
    "nohup": {},
    "nice": {"-n": 2, "--adjustment": 2},
    "stdbuf": {"-i": 2, "-o": 2, "-e": 2},
    "timeout": {
        "-k": 2, "-s": 2, "--kill-after": 2, "--signal": 2, "-v": 1, "--verbose": 1, "--foreground": 1,
        "--preserve-status": 1, "-f": 1, "-p": 1,
    },
}  # fmt: skip
_ATTACHED = ("--kill-after=", "--signal=", "--adjustment=", "--input=", "--output=", "--error=")


def _strip(words: Words, name: str) -> Words:
    options, at = _STRIP[name], 1
    while at < len(words):
        value = words[at].value
        if value is None or words[at].braced:
            return ()
        if not value.startswith("-") or value == "-":
            break
        if value == "--":
            at += 1
            break
        size = _size(name, value, options)
        if not size or any(word.value is None or word.braced for word in words[at : at + size]):
            return ()
        at += size
    if name == "timeout":
        if at >= len(words) or words[at].value is None:
            return ()
        at += 1
    return words[at:]


def _size(name: str, value: str, options: Mapping[str, int]) -> int:
    """Return how many words an option takes, 0 when it is not known."""
    if value in options:
        return options[value]
    if value.startswith("--"):
        known = value.startswith(_ATTACHED) and (value.partition("=")[0] in options or name == "stdbuf")
        return 1 if known else 0
    if name == "nice" and value[1:].lstrip("-").isdigit():
        return 1
    return 1 if options.get(value[:2]) == 2 and name in {"nice", "stdbuf", "timeout"} else 0
