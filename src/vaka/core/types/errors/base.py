"""What every error of vaka is."""


class VakaError(Exception):
    """Anything vaka raises on purpose. ``code`` is stable and meant for programs."""

    code: str = "error"
    exit_code: int = 1
