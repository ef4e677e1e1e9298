"""Other names for all that a log names, in the same order, and nothing of what people wrote freely.

Rules break ties by names, sort by them and put them together with separators, so a name is taken apart into words of
letters and digits; each word becomes another one of the same kind, and the order of all words stays. Which words they
become follows from a secret. Numbers stay numbers, since jobs whose names end in numbers recur.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from functools import cache
from hmac import digest
from types import UnionType
from typing import Literal, Union, get_args, get_origin, get_type_hints

from schemas.plans import AtomOrder
from schemas.quantities import Vector

KEPT_WORDS = {"default": "e", "root": "s0", "simulator": "t", "unknown": "v"}
"""Words that rules or the simulator know by their names, and how new words begin that come between each and the next.
"""

_WORD = re.compile(r"[^\x00-/:-@\[-`{-\x7f]+")  # Letters and digits, and whatever is not ASCII.
_CHARACTERS = "0123456789bcdfghjklmnpqrstvwxz"
"""Of new words: in order, and without the vowels that make them look like words of a language."""
_SPREAD = 64
"""How many places new words lie apart, in the mean."""
_NO_DIGITS = str.maketrans("", "", "0123456789")

How = Literal["name", "keep", "text", "command", "env"]

_HOW: dict[str, How] = {
    **dict.fromkeys(("topic", "hash", "prefix", "token", "every", "zone", "rdl", "atom", "reservation_atom"), "keep"),
    **dict.fromkeys(("kinds", "resource", "kind"), "keep"),  # Of quantities.
    **dict.fromkeys(("on", "array"), "keep"),  # Of rules for retries, and of indexes.
    **dict.fromkeys(("detail", "address", "folder", "unschedulable", "reason", "field", "cwd", "out"), "text"),
    **dict.fromkeys(("image", "source", "target"), "text"),
    "command": "command",
    "env": "env",
}
"""By field, what becomes of its texts; of all others: another name. Of closed vocabularies nothing is changed."""

TEXT = "(redacted)"


def words_of(text: str) -> list[str]:
    """The words of a name."""
    return _WORD.findall(text)


class Names:
    """The new names of one log. `given`: by new name, the old one, of what was asked for."""

    def __init__(self, words: Iterable[str], secret: bytes) -> None:
        self._secret = secret
        self._words = _renamed(sorted({*words, *KEPT_WORDS}), secret)
        self.given: dict[str, str] = {}

    def of(self, name: str) -> str:
        """The new name."""
        if not name:
            return ""
        new = _WORD.sub(lambda found: self._words[found[0]], name)
        self.given[new] = name
        return new

    def of_command(self, argument: str) -> str:
        """What stands for an argument of a command. Those that differ in numbers alone get the same."""
        found = digest(self._secret, argument.translate(_NO_DIGITS).encode("utf-8", "backslashreplace"), "sha256")
        return "".join(_CHARACTERS[10 + byte % 20] for byte in found[:12])

    def body(self, body: object) -> object:
        """A record's body with other names."""
        return _changed(body, self)


def _renamed(words: list[str], secret: bytes) -> dict[str, str]:
    """By word the new one. Those of each group lie between two kept words, or have digits alone or as beginnings."""
    places, place = [], 0
    for word in words:
        place += 1 + int.from_bytes(digest(secret, word.encode("utf-8", "backslashreplace"), "sha256")[:4]) % (
            2 * _SPREAD
        )
        places.append(place)
    digits, letters = len(str(place)), 1
    while len(_CHARACTERS) ** letters <= place:
        letters += 1
    found, begins = {}, "a"
    for word, at in zip(words, places, strict=True):
        if word in KEPT_WORDS:
            found[word], begins = word, KEPT_WORDS[word]
        elif word[0].isascii() and word[0].isdigit():
            is_number = word.isascii() and word.isdecimal()
            found[word] = f"{at:0{digits}}" + ("0" if is_number else "x")
        else:
            found[word] = (begins if word[0] >= "a" else "A") + _spelt(at, letters)
    return found


def _spelt(number: int, width: int) -> str:
    text = ""
    for _ in range(width):
        number, place = divmod(number, len(_CHARACTERS))
        text = _CHARACTERS[place] + text
    return text


# ---------------------------------------------------------------- bodies
def walk(value: object, name: Callable[[str], object]) -> None:
    """Calls `name` with every name in a body."""
    _changed(value, _Listening(name))


class _Listening(Names):
    def __init__(self, name: Callable[[str], object]) -> None:
        super().__init__((), b"-")
        self._name = name

    def of(self, name: str) -> str:
        self._name(name)
        return name


def masked(value: object) -> object:
    """A body as a document, without what may differ where nothing but names does: texts, hashes, and ports, which are
    drawn by name."""
    if is_dataclass(value) and not isinstance(value, type):
        return {
            each.name: masked(getattr(value, each.name))
            for each in fields(value)
            if each.name not in ("hashes", "ports", "prefix") and _how(type(value), each.name) != "text"
        }
    return [masked(each) for each in value] if isinstance(value, list) else value


def _changed(value: object, names: Names) -> object:
    if is_dataclass(value) and not isinstance(value, type):
        kind = type(value)
        changed = {each.name: _field(getattr(value, each.name), _how(kind, each.name), names) for each in fields(kind)}
        return kind(**changed)
    return value


def _field(value: object, how: How, names: Names) -> object:
    if how == "keep" or value is None:
        return value
    if how == "env":
        assert isinstance(value, dict)
        return {names.of(key): TEXT for key in value}
    if isinstance(value, list):
        return [_field(each, how, names) for each in value]
    if isinstance(value, dict):
        return {names.of(key): names.of(text) if isinstance(text, str) else text for key, text in value.items()}
    if is_dataclass(value):
        return _changed(value, names)
    if not isinstance(value, str):
        return value
    if how == "text":
        return TEXT if value else ""
    return names.of_command(value) if how == "command" else names.of(value)


@cache
def _how(kind: type, field: str) -> How:
    hint = get_type_hints(kind)[field]
    if hint is Vector or (get_origin(hint) is dict and get_args(hint)[1] is int and field not in _BY_NAME):
        return "keep"
    if kind is AtomOrder or _is_closed(hint):  # Atoms are named by their places in a request.
        return "keep"
    return _HOW.get(field, "name")


_BY_NAME = ("donated", "received", "waited")
"""Amounts that are listed by names and not by resources."""


def _is_closed(hint: object) -> bool:
    """Whether it is of a closed vocabulary."""
    if get_origin(hint) in (Union, UnionType):
        return all(_is_closed(each) or each is type(None) for each in get_args(hint))
    return get_origin(hint) is Literal
