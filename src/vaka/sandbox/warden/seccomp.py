"""The seccomp filter: it refuses system calls that commands do not need and that escapes begin with.

Refused are: tracing other processes, mounts and namespaces, kernel keys and modules, clocks and logs, calls that bypass
this filter, socket families that a network namespace does not confine, and setuid bits on files.
"""

import errno
import struct
from typing import Literal, NamedTuple, TypeAlias

SocketRule: TypeAlias = Literal["network", "none"]
"""``network``: unix and internet sockets, which namespaces confine. ``none``, for commands without namespaces: only
socket pairs, and no System V IPC."""


class _Architecture(NamedTuple):
    audit: int
    column: int


_ARCHITECTURES = {"x86_64": _Architecture(0xC000003E, 0), "aarch64": _Architecture(0xC00000B7, 1)}

_ABSENT = -1
_DENIED: dict[str, tuple[int, int]] = {
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "pidfd_getfd": (438, 438), "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "move_mount": (429, 429), "open_tree": (428, 428), "fsopen": (430, 430), "fsconfig": (431, 431),
    "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442), "open_tree_attr": (467, 467),
    "unshare": (272, 97), "setns": (308, 268), "keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218),
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282), "fanotify_init": (300, 262),
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "init_module": (175, 105), "finit_module": (313, 273),
    "delete_module": (176, 106), "reboot": (169, 142), "swapon": (167, 224), "swapoff": (168, 225),
    "syslog": (103, 116), "acct": (163, 89), "quotactl": (179, 60), "quotactl_fd": (443, 443),
    "open_by_handle_at": (304, 265), "settimeofday": (164, 170), "clock_settime": (227, 112), "adjtimex": (159, 171),
    "clock_adjtime": (305, 266), "sethostname": (170, 161), "setdomainname": (171, 162), "vhangup": (153, 58),
    "iopl": (172, _ABSENT), "ioperm": (173, _ABSENT), "nfsservctl": (180, 42), "lookup_dcookie": (212, 18),
}  # fmt: skip
_REPORTED_AS_MISSING: dict[str, tuple[int, int]] = {
    "clone3": (435, 435), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "openat2": (437, 437),
}  # fmt: skip
"""Fail with ENOSYS, so that programs fall back to calls that can be filtered."""
_SYSTEM_V_IPC: dict[str, tuple[int, int]] = {
    "shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195), "semget": (64, 190), "semop": (65, 193),
    "semctl": (66, 191), "semtimedop": (220, 192), "msgget": (68, 186), "msgsnd": (69, 189), "msgrcv": (70, 188),
    "msgctl": (71, 187), "mq_open": (240, 180), "mq_unlink": (241, 181),
}  # fmt: skip
"""Without an IPC namespace these are shared with all processes of the user, and outlive a command."""
_CLONE, _SOCKET, _SOCKETPAIR, _IOCTL = (56, 220), (41, 198), (53, 199), (16, 29)

_MODE_CALLS: dict[str, tuple[int, int, int]] = {
    "chmod": (90, _ABSENT, 1), "fchmod": (91, 52, 1), "fchmodat": (268, 53, 2), "fchmodat2": (452, 452, 2),
    "mknod": (133, _ABSENT, 1), "mknodat": (259, 33, 2), "creat": (85, _ABSENT, 1),
}  # fmt: skip
"""Calls that set the mode of a file, with the index of the mode argument."""
_OPEN_CALLS: dict[str, tuple[int, int, int]] = {"open": (2, _ABSENT, 1), "openat": (257, 56, 2)}
"""Calls that set a mode if their flags create a file, with the index of the flags; the mode follows them."""
_PRLIMIT, _SETPRIORITY = (302, 261), (141, 140)
"""Calls that affect any process of the same user; they are allowed for the calling process only."""
_PRIO_USER = 2
_CREATE_FLAGS = 0x400040
_SETUID_BIT = 0o4000

_NEW_NAMESPACES = 0x7E020000
_TERMINAL_INPUT_REQUESTS = (0x5412, 0x541C)
"""Requests that insert input into a terminal."""
_UNIX, _INET, _INET6, _NETLINK = 1, 2, 10, 16
_X32 = 0x40000000

_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_UNLESS_EQUAL = -_EQUAL
_UNCONDITIONAL = (_LOAD, _RETURN)
_NUMBER, _ARCH = 0, 4

_Instruction: TypeAlias = tuple[int, int, int]


def is_supported(architecture: str) -> bool:
    return architecture in _ARCHITECTURES


def build_filter(architecture: str, sockets: SocketRule) -> bytes:
    """Return the filter program. Raises ``KeyError`` for an architecture that is not supported."""
    audit, column = _ARCHITECTURES[architecture]
    code = _FilterCode()
    code.load(_ARCH)
    code.return_if(_UNLESS_EQUAL, audit, _KILL)
    code.load(_NUMBER)
    if architecture == "x86_64":
        code.return_if(_AT_LEAST, _X32, _errno_action(errno.EPERM))
    refused = [
        (_DENIED, errno.EPERM),
        (_REPORTED_AS_MISSING, errno.ENOSYS),
        *([(_SYSTEM_V_IPC, errno.EACCES)] if sockets == "none" else []),
    ]
    for numbers, answer in refused:
        for pair in numbers.values():
            if pair[column] != _ABSENT:
                code.return_if(_EQUAL, pair[column], _errno_action(answer))
    _refuse_setuid_modes(code, column)
    other: _Instruction = (_UNLESS_EQUAL, 0, _errno_action(errno.EPERM))
    code.match_call(
        _PRLIMIT[column],
        [*_load_argument(0), (_EQUAL, 0, _ALLOW), *_load_argument(2), other, *_load_argument(2, upper=True), other],
    )
    mine: _Instruction = (_EQUAL, _PRIO_USER, _errno_action(errno.EPERM))
    code.match_call(_SETPRIORITY[column], [*_load_argument(0), mine, *_load_argument(1), other])
    code.match_call(_CLONE[column], [*_load_argument(0), (_ANY_BIT, _NEW_NAMESPACES, _errno_action(errno.EPERM))])
    typing = [(_EQUAL, request, _errno_action(errno.EPERM)) for request in _TERMINAL_INPUT_REQUESTS]
    code.match_call(_IOCTL[column], [*_load_argument(1), *typing])
    code.match_call(_SOCKETPAIR[column], [*_load_argument(0), (_EQUAL, _UNIX, _ALLOW), _return_errno(errno.EACCES)])
    code.match_call(_SOCKET[column], _socket_instructions(sockets))
    code.return_action(_ALLOW)
    return bytes(code.words)


def _refuse_setuid_modes(code: "_FilterCode", column: int) -> None:
    """Refuse to set the setuid bit."""
    owned: _Instruction = (_ANY_BIT, _SETUID_BIT, _errno_action(errno.EPERM))
    for *numbers, at in _MODE_CALLS.values():
        if numbers[column] != _ABSENT:
            code.match_call(numbers[column], [*_load_argument(at), owned])
    for *numbers, at in _OPEN_CALLS.values():
        if numbers[column] != _ABSENT:
            reads: _Instruction = (-_ANY_BIT, _CREATE_FLAGS, _ALLOW)
            code.match_call(numbers[column], [*_load_argument(at), reads, *_load_argument(at + 1), owned])


def _errno_action(number: int) -> int:
    return _ERRNO | number


def _load_argument(at: int, *, upper: bool = False) -> list[_Instruction]:
    """Load 32 of the 64 bits of an argument."""
    return [(_LOAD, 16 + 8 * at + 4 * upper, 0)]


def _return_errno(number: int) -> _Instruction:
    return (_RETURN, _errno_action(number), 0)


def _socket_instructions(sockets: SocketRule) -> list[_Instruction]:
    if sockets == "none":
        return [_return_errno(errno.EACCES)]
    families = [(_EQUAL, family, _ALLOW) for family in (_UNIX, _INET, _INET6)]
    # Of netlink only protocol 0, which lists addresses and routes.
    other: _Instruction = (_UNLESS_EQUAL, _NETLINK, _errno_action(errno.EAFNOSUPPORT))
    protocol = [*_load_argument(2), (_EQUAL, 0, _ALLOW), _return_errno(errno.EAFNOSUPPORT)]
    return [*_load_argument(0), *families, other, *protocol]


class _FilterCode:
    """A program in classic BPF whose jumps only skip the following return."""

    def __init__(self) -> None:
        self.words = bytearray()

    def load(self, offset: int) -> None:
        self._emit(_LOAD, offset)

    def return_action(self, answer: int) -> None:
        self._emit(_RETURN, answer)

    def return_if(self, operation: int, value: int, answer: int) -> None:
        """Return ``answer`` if the loaded value matches; a negative operation negates the test."""
        if operation < 0:
            self._emit(-operation, value, 1, 0)
        else:
            self._emit(operation, value, 0, 1)
        self.return_action(answer)

    def match_call(self, number: int, steps: list[_Instruction]) -> None:
        """Add tests of the arguments of one call; a call that no test answers is allowed."""
        length = sum(1 if operation in _UNCONDITIONAL else 2 for operation, _, _ in steps)
        self._emit(_EQUAL, number, 0, length + 1)
        for operation, value, answer in steps:
            if operation in _UNCONDITIONAL:
                self._emit(operation, value)
            else:
                self.return_if(operation, value, answer)
        self.return_action(_ALLOW)

    def _emit(self, operation: int, value: int, yes: int = 0, no: int = 0) -> None:
        self.words += struct.pack("=HBBI", operation, yes, no, value)
