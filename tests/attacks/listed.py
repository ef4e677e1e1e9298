"""What an attack is, and how it has to end."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Attack:
    """`story`: tries it, given what its module attacks, and returns what came of it. `refused`: that; `logged`: what
    the component says of it in its log, line by line; `counted`: what goes up in which counter."""

    name: str
    story: Callable[..., object]
    refused: str
    logged: str = ""
    counted: str = ""

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Target:
    """What the attacks of one module are against: a title, and how it is set up, for the page."""

    title: str
    about: str


def named(attack: Attack) -> str:
    """The id of its test."""
    return attack.name


def ended(attack: Attack) -> tuple[str, str, str]:
    """How it ends, and what is logged and counted."""
    return attack.refused, attack.logged, attack.counted


def check_names(attacks: list[Attack]) -> None:
    """No two have one name: a test would be another's."""
    names = [each.name for each in attacks]
    assert len(set(names)) == len(names), sorted(name for name in names if names.count(name) > 1)
