"""The error for a credential that is not accepted."""


class CredentialRefused(Exception):
    """A credential is not valid; the message is for the caller and has no part of the credential."""
