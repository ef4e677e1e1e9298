"""What the text of a token can be. Imports nothing, so that short commands can."""

TOKEN_CHARACTERS_MAX = 512
"""What is longer is no token, and is not looked at."""

JWT_CHARACTERS_MAX = 8_192
"""The same of a JWT, which says itself who its holder is."""

_JWT_BEGINS = "eyJ"
"""A JSON object, in base64."""


def may_be_token(text: str) -> bool:
    """Whether a text has the form of a token: one word of printable ASCII, as a header can carry it."""
    return 0 < len(text) <= TOKEN_CHARACTERS_MAX and _is_word(text)


def is_jwt(text: str) -> bool:
    """Whether a text has the form of a JWT, of whatever length."""
    return text.startswith(_JWT_BEGINS) and text.count(".") == 2


def can_be_sent(text: str) -> bool:
    """Whether a text may be a token or a JWT, and a header can carry it."""
    return may_be_token(text) or (is_jwt(text) and len(text) <= JWT_CHARACTERS_MAX and _is_word(text))


def _is_word(text: str) -> bool:
    return text.isascii() and text.isprintable() and " " not in text
