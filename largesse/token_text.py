"""What the text of a token can be. Imports nothing, so that short commands can."""

TOKEN_CHARACTERS_MAX = 512
"""What is longer is no token, and is not looked at."""


def may_be_token(text: str) -> bool:
    """Whether a text has the form of a token: one word of printable ASCII, as a header can carry it."""
    return 0 < len(text) <= TOKEN_CHARACTERS_MAX and text.isascii() and text.isprintable() and " " not in text
