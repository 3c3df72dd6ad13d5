"""Schedule, written next."""


def connect() -> None:
    """Connect."""
