"""``Pepper``: the secret of a server, without which stored digests of credentials cannot be checked."""

import hashlib
import hmac
import secrets
from collections.abc import Mapping

from vaka.config.settings import PEPPER_VARIABLE
from vaka.core.ports.values import KeyValueStore
from vaka.core.types.errors import ConfigError, Corrupt

PEPPER_KEY = "server/pepper"
MIN_PEPPER_LENGTH = 16
_FINGERPRINT_LENGTH = 8


class Pepper:
    """Computes and compares the digests under which credentials are stored."""

    def __init__(self, secret: str) -> None:
        self._secret = secret.encode()
        self.fingerprint = self.digest("vaka pepper fingerprint")[:_FINGERPRINT_LENGTH]
        """Tells peppers apart without revealing them."""

    def digest(self, text: str) -> str:
        """Return HMAC-SHA256 of a text, in hexadecimal digits."""
        return hmac.new(self._secret, text.encode(), hashlib.sha256).hexdigest()

    def matches(self, text: str, digest: str) -> bool:
        """Return whether a text has a digest; the time it takes does not depend on where the digests differ."""
        return hmac.compare_digest(self.digest(text).encode(), digest.encode())


async def load_pepper(values: KeyValueStore, environ: Mapping[str, str], *, create: bool = True) -> Pepper:
    """Return the pepper of the environment, else the stored one, which the first process creates.

    Without ``create`` nothing is stored: the pepper of a store without one matches no digest. Raises ``ConfigError``
    if the pepper of the environment is too short.
    """
    if given := environ.get(PEPPER_VARIABLE, ""):
        if len(given) < MIN_PEPPER_LENGTH:
            raise ConfigError(
                f"the variable {PEPPER_VARIABLE} has {len(given)} characters; expected at least {MIN_PEPPER_LENGTH} "
                "random ones, such as the output of: openssl rand -hex 32"
            )
        return Pepper(given)
    stored, fresh = await values.get(PEPPER_KEY), secrets.token_urlsafe(32)
    if not stored:
        stored = await values.put_if_absent(PEPPER_KEY, fresh) if create else fresh
    if not isinstance(stored, str):
        raise Corrupt(f"the stored value of {PEPPER_KEY!r} is not a text")
    return Pepper(stored)
