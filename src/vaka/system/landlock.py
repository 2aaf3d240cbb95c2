"""Landlock: rulesets that restrict the calling thread and all processes it starts; root is restricted too."""

import ctypes
import os
import stat
import struct

from vaka.system.libc import PR_SET_NO_NEW_PRIVS, check_result, libc, prctl

EXECUTE = 1
WRITE_FILE = 2
READ_FILE = 4
READ_DIR = 8
TRUNCATE, IOCTL_DEV = 1 << 14, 1 << 15
FILE_RIGHTS = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
SCOPE_ABSTRACT_SOCKETS = 1
SCOPE_SIGNALS = 2
SCOPE_ABI = 6
"""Scopes, and the first version of the interface that has them."""

# The same numbers on every architecture.
_CREATE_RULESET = 444
_ADD_RULE = 445
_RESTRICT_SELF = 446
_CREATE_RULESET_VERSION, _RULE_PATH_BENEATH = 1, 1


def abi_version() -> int:
    """Return the version of Landlock's interface, 0 if the system has none."""
    try:
        return max(int(libc().syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _CREATE_RULESET_VERSION)), 0)
    except OSError:
        return 0


def all_file_rights(abi: int) -> int:
    """Return the access rights to files that a version of the interface can restrict."""
    return (1 << (13 + (abi >= 2) + (abi >= 3) + (abi >= 5))) - 1


def create_ruleset(rights: int, *, scopes: int = 0, abi: int = 1) -> int:
    """Return the descriptor of a ruleset that denies ``rights`` to files unless a rule allows them."""
    attributes = struct.pack("=QQQ", rights, 0, scopes)[: 8 if abi < 4 else 16 if abi < 6 else 24]
    result = libc().syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0)
    return check_result(result, "landlock_create_ruleset")


def allow_path(
    ruleset: int, path: str, rights: int, *, follow: bool = True, ignored: tuple[type[OSError], ...] = ()
) -> None:
    """Allow ``rights`` to a file or to everything below a folder; for a file those that apply to files.

    Without ``follow`` a path that is a symbolic link gets no rule. ``ignored``: errors of opening the path that mean
    that there is nothing to allow.
    """
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW))
    except ignored:
        return
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISLNK(mode):
            rule = struct.pack("=Qi", rights if stat.S_ISDIR(mode) else rights & FILE_RIGHTS, descriptor)
            check_result(libc().syscall(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, rule, 0), f"landlock_add_rule {path!r}")
    finally:
        os.close(descriptor)


def restrict_self(ruleset: int) -> None:
    """Enforce a ruleset on the calling thread and all processes it starts, irrevocably."""
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    check_result(libc().syscall(_RESTRICT_SELF, ruleset, 0), "landlock_restrict_self")
