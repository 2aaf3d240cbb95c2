"""Every error that vaka raises on purpose. ``vaka.core.types.errors`` draws the tree."""

from vaka.core.types.errors import AccessDenied as AccessDenied
from vaka.core.types.errors import AlreadyExists as AlreadyExists
from vaka.core.types.errors import AuthenticationFailed as AuthenticationFailed
from vaka.core.types.errors import BadRequest as BadRequest
from vaka.core.types.errors import Busy as Busy
from vaka.core.types.errors import Cancelled as Cancelled
from vaka.core.types.errors import CannotOpen as CannotOpen
from vaka.core.types.errors import Closed as Closed
from vaka.core.types.errors import ConfigError as ConfigError
from vaka.core.types.errors import ConflictError as ConflictError
from vaka.core.types.errors import ContextTooLong as ContextTooLong
from vaka.core.types.errors import Corrupt as Corrupt
from vaka.core.types.errors import ErasedSession as ErasedSession
from vaka.core.types.errors import FileChanged as FileChanged
from vaka.core.types.errors import FileError as FileError
from vaka.core.types.errors import FileMissing as FileMissing
from vaka.core.types.errors import FileRefused as FileRefused
from vaka.core.types.errors import HeadMoved as HeadMoved
from vaka.core.types.errors import Interrupted as Interrupted
from vaka.core.types.errors import InvalidInput as InvalidInput
from vaka.core.types.errors import LogError as LogError
from vaka.core.types.errors import McpError as McpError
from vaka.core.types.errors import MiddlewareError as MiddlewareError
from vaka.core.types.errors import ModelError as ModelError
from vaka.core.types.errors import ModelRefused as ModelRefused
from vaka.core.types.errors import ModelUnavailable as ModelUnavailable
from vaka.core.types.errors import NetworkError as NetworkError
from vaka.core.types.errors import NetworkRefused as NetworkRefused
from vaka.core.types.errors import NetworkTimeout as NetworkTimeout
from vaka.core.types.errors import NetworkTooLarge as NetworkTooLarge
from vaka.core.types.errors import NetworkUnreachable as NetworkUnreachable
from vaka.core.types.errors import NotADatabase as NotADatabase
from vaka.core.types.errors import NotFound as NotFound
from vaka.core.types.errors import RateLimited as RateLimited
from vaka.core.types.errors import ReadOnlyStore as ReadOnlyStore
from vaka.core.types.errors import Rejected as Rejected
from vaka.core.types.errors import ReplayError as ReplayError
from vaka.core.types.errors import SandboxError as SandboxError
from vaka.core.types.errors import ScriptError as ScriptError
from vaka.core.types.errors import ScriptLimit as ScriptLimit
from vaka.core.types.errors import StoreError as StoreError
from vaka.core.types.errors import StreamCut as StreamCut
from vaka.core.types.errors import Suspended as Suspended
from vaka.core.types.errors import TooNew as TooNew
from vaka.core.types.errors import Truncated as Truncated
from vaka.core.types.errors import TurnError as TurnError
from vaka.core.types.errors import Unavailable as Unavailable
from vaka.core.types.errors import VakaError as VakaError

__all__ = [
    "AccessDenied",
    "AlreadyExists",
    "AuthenticationFailed",
    "BadRequest",
    "Busy",
    "Cancelled",
    "CannotOpen",
    "Closed",
    "ConfigError",
    "ConflictError",
    "ContextTooLong",
    "Corrupt",
    "ErasedSession",
    "FileChanged",
    "FileError",
    "FileMissing",
    "FileRefused",
    "HeadMoved",
    "Interrupted",
    "InvalidInput",
    "LogError",
    "McpError",
    "MiddlewareError",
    "ModelError",
    "ModelRefused",
    "ModelUnavailable",
    "NetworkError",
    "NetworkRefused",
    "NetworkTimeout",
    "NetworkTooLarge",
    "NetworkUnreachable",
    "NotADatabase",
    "NotFound",
    "RateLimited",
    "ReadOnlyStore",
    "Rejected",
    "ReplayError",
    "SandboxError",
    "ScriptError",
    "ScriptLimit",
    "StoreError",
    "StreamCut",
    "Suspended",
    "TooNew",
    "Truncated",
    "TurnError",
    "Unavailable",
    "VakaError",
]
