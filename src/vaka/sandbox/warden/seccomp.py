"""The seccomp filter: it refuses system calls that commands do not need and that escapes begin with.

Refused are: tracing other processes, mounts and namespaces, kernel keys and modules, clocks and logs, calls that bypass
this filter, socket families that a network namespace does not confine, and setuid and setgid bits on files.
"""

import errno
import struct
from collections.abc import Iterator
from typing import Literal, TypeAlias

SocketRule: TypeAlias = Literal["network", "none"]
"""``network``: unix and internet sockets, which namespaces confine. ``none``, for commands without namespaces: only
socket pairs, and no System V IPC."""


ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
"""The processors that there is a filter for, each with its audit number and its column in the tables."""

_ABSENT = -1
_DENIED: dict[str, tuple[int, int]] = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "move_mount": (429, 429),
    "open_tree": (428, 428),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467),
    "unshare": (272, 97),
    "setns": (308, 268),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "fanotify_init": (300, 262),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "syslog": (103, 116),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "open_by_handle_at": (304, 265),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "adjtimex": (159, 171),
    "clock_adjtime": (305, 266),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "vhangup": (153, 58),
    "iopl": (172, _ABSENT),
    "ioperm": (173, _ABSENT),
    "nfsservctl": (180, 42),
    "lookup_dcookie": (212, 18),
}
_REPORTED_AS_MISSING: dict[str, tuple[int, int]] = {
    "clone3": (435, 435),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "openat2": (437, 437),
}
"""Fail with ENOSYS, so that programs fall back to calls that can be filtered."""
_SYSTEM_V_IPC: dict[str, tuple[int, int]] = {
    "shmget": (29, 194),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "semget": (64, 190),
    "semop": (65, 193),
    "semctl": (66, 191),
    "semtimedop": (220, 192),
    "msgget": (68, 186),
    "msgsnd": (69, 189),
    "msgrcv": (70, 188),
    "msgctl": (71, 187),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
}
"""Without an IPC namespace these are shared with all processes of the user, and outlive a command."""
_CLONE = (56, 220)
_SOCKET = (41, 198)
_SOCKETPAIR = (53, 199)
_IOCTL = (16, 29)

_MODE_CALLS: dict[str, tuple[int, int, int]] = {
    "chmod": (90, _ABSENT, 1),
    "fchmod": (91, 52, 1),
    "fchmodat": (268, 53, 2),
    "fchmodat2": (452, 452, 2),
    "mknod": (133, _ABSENT, 1),
    "mknodat": (259, 33, 2),
    "creat": (85, _ABSENT, 1),
}
"""Calls that set the mode of a file, with the index of the mode argument."""
_OPEN_CALLS: dict[str, tuple[int, int, int]] = {"open": (2, _ABSENT, 1), "openat": (257, 56, 2)}
"""Calls that set a mode if their flags create a file, with the index of the flags; the mode follows them."""
_PRLIMIT, _SETPRIORITY = (302, 261), (141, 140)
"""Calls that affect any process of the same user; they are allowed for the calling process only."""
_PRIO_USER = 2
_CREATE_FLAGS = 0x400040
_SETID_BITS = 0o6000

_NEW_NAMESPACES = 0x7E020000
_TERMINAL_INPUT_REQUESTS = (0x5412, 0x541C)
"""Requests that insert input into a terminal."""
_UNIX = 1
_INET = 2
_INET6 = 10
_NETLINK = 16
_X32 = 0x40000000

_ALLOW = 0x7FFF0000
_KILL = 0x80000000
_ERRNO = 0x00050000
_LOAD = 0x20
_EQUAL = 0x15
_AT_LEAST = 0x35
_ANY_BIT = 0x45
_RETURN = 0x06
_UNLESS_EQUAL = -_EQUAL
_UNCONDITIONAL = (_LOAD, _RETURN)
_NUMBER, _ARCH = 0, 4
_ALLOW_REST = (_RETURN, _ALLOW, 0)
_INSTRUCTION = struct.Struct("=HBBI")

_Instruction: TypeAlias = tuple[int, int, int]
"""An operation, its value, and what the filter answers if the operation is a test that holds.

A negative operation is a negated test.
"""


def build_filter(architecture: str, sockets: SocketRule) -> bytes:
    """Return the filter program. Raises ``KeyError`` for an architecture that is not supported."""
    audit, column = ARCHITECTURES[architecture]
    start: list[_Instruction] = [(_LOAD, _ARCH, 0), (_UNLESS_EQUAL, audit, _KILL), (_LOAD, _NUMBER, 0)]
    if architecture == "x86_64":
        start.append((_AT_LEAST, _X32, _ERRNO | errno.EPERM))
    refused = [
        (_DENIED, errno.EPERM),
        (_REPORTED_AS_MISSING, errno.ENOSYS),
        *([(_SYSTEM_V_IPC, errno.EACCES)] if sockets == "none" else []),
    ]
    for numbers, answer in refused:
        start += [(_EQUAL, pair[column], _ERRNO | answer) for pair in numbers.values() if pair[column] != _ABSENT]
    other: _Instruction = (_UNLESS_EQUAL, 0, _ERRNO | errno.EPERM)
    mine: _Instruction = (_EQUAL, _PRIO_USER, _ERRNO | errno.EPERM)
    typing = [(_EQUAL, request, _ERRNO | errno.EPERM) for request in _TERMINAL_INPUT_REQUESTS]
    calls: list[tuple[int, list[_Instruction]]] = [
        *_refuse_setid_modes(column),
        (_PRLIMIT[column], [_argument(0), (_EQUAL, 0, _ALLOW), _argument(2), other, _argument(2, upper=True), other]),
        (_SETPRIORITY[column], [_argument(0), mine, _argument(1), other]),
        (_CLONE[column], [_argument(0), (_ANY_BIT, _NEW_NAMESPACES, _ERRNO | errno.EPERM)]),
        (_IOCTL[column], [_argument(1), *typing]),
        (_SOCKETPAIR[column], [_argument(0), (_EQUAL, _UNIX, _ALLOW), (_RETURN, _ERRNO | errno.EACCES, 0)]),
        (_SOCKET[column], _socket_instructions(sockets)),
    ]
    return _encode(start) + b"".join(_match_call(number, steps) for number, steps in calls) + _encode([_ALLOW_REST])


def _refuse_setid_modes(column: int) -> Iterator[tuple[int, list[_Instruction]]]:
    """Refuse to set the setuid and setgid bits."""
    owned: _Instruction = (_ANY_BIT, _SETID_BITS, _ERRNO | errno.EPERM)
    for *numbers, at in _MODE_CALLS.values():
        if numbers[column] != _ABSENT:
            yield numbers[column], [_argument(at), owned]
    reads: _Instruction = (-_ANY_BIT, _CREATE_FLAGS, _ALLOW)
    for *numbers, at in _OPEN_CALLS.values():
        if numbers[column] != _ABSENT:
            yield numbers[column], [_argument(at), reads, _argument(at + 1), owned]


def _socket_instructions(sockets: SocketRule) -> list[_Instruction]:
    if sockets == "none":
        return [(_RETURN, _ERRNO | errno.EACCES, 0)]
    families = [(_EQUAL, family, _ALLOW) for family in (_UNIX, _INET, _INET6)]
    # Of netlink only protocol 0, which lists addresses and routes.
    other: _Instruction = (_UNLESS_EQUAL, _NETLINK, _ERRNO | errno.EAFNOSUPPORT)
    protocol = [_argument(2), (_EQUAL, 0, _ALLOW), (_RETURN, _ERRNO | errno.EAFNOSUPPORT, 0)]
    return [_argument(0), *families, other, *protocol]


def _argument(at: int, *, upper: bool = False) -> _Instruction:
    """Load 32 of the 64 bits of an argument."""
    return (_LOAD, 16 + 8 * at + 4 * upper, 0)


def _match_call(number: int, steps: list[_Instruction]) -> bytes:
    """Return tests of the arguments of one call; a call that no test answers is allowed."""
    body = _encode([*steps, _ALLOW_REST])
    return _INSTRUCTION.pack(_EQUAL, 0, len(body) // _INSTRUCTION.size, number) + body


def _encode(steps: list[_Instruction]) -> bytes:
    """Return instructions as classic BPF; a test jumps over the return that follows it."""
    code = bytearray()
    for operation, value, answer in steps:
        if operation in _UNCONDITIONAL:
            code += _INSTRUCTION.pack(operation, 0, 0, value)
        else:
            code += _INSTRUCTION.pack(abs(operation), operation < 0, operation > 0, value)
            code += _INSTRUCTION.pack(_RETURN, 0, 0, answer)
    return bytes(code)
