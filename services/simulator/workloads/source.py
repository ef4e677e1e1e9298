"""What every importer shares: its options, numbered lines of a trace, and fields that are what they should be.

Traces are read strictly: a damaged line raises Damaged with file, line, field and what was expected there. Numbers are
read exactly (Fraction), never as floats.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, Protocol

from schemas.edge.read import Malformed
from schemas.edge.strict_json import loads
from schemas.quantities import QUANTITY_MAX
from services.simulator.workloads.files import LINE_BYTES_MAX, Damaged, read_lines

Line = dict[str, Any]
"""One line of a workload file, as the contract has it; quantities in base units."""


class Leave(Protocol):
    """Is told of each job that is left out, and why, in a few words; equal words are counted together. `what` names
    what is left out where it is less than a job, in the singular."""

    def __call__(self, why: str, what: str = "job", count: int = 1) -> None: ...


_NUMBER = re.compile(r"[+-]?\d{1,18}(\.\d{1,18})?")


@dataclass(frozen=True, slots=True)
class Option:
    """One option of an importer as a command line shows it. `parse` takes its text; for bool it is a flag."""

    name: str
    parse: type[int] | type[str] | type[bool] | type[Fraction]
    default: int | str | bool | Fraction
    help: str
    choices: tuple[str, ...] = ()


def require(option: str, holds: bool, wanted: str, value: object) -> None:
    """Raises ValueError that names the option."""
    if not holds:
        raise ValueError(f"{option}: has to be {wanted}, is {value}")


def unheard(why: str, what: str = "job", count: int = 1) -> None:
    """A `Leave` for who does not want to know."""


class Row:
    """One line or object of a trace. Every reader raises Damaged where the field is missing or something else.

    `cells`: the values are texts, as of a table, not JSON values.
    """

    def __init__(self, values: object, where: str, *, cells: bool = False) -> None:
        if not isinstance(values, Mapping):
            raise Damaged(where, "", "has to be an object")
        self._values = values
        self._cells = cells
        self.where = where

    def __contains__(self, name: str) -> bool:
        return self._values.get(name) not in (None, "")

    def value(self, name: str) -> object:
        """Whatever stands there; None where nothing does."""
        return self._values.get(name)

    def number(self, name: str, least: int = 0) -> Fraction:
        """An exact number of at least `least`."""
        exact = _exact(self._values.get(name), self._cells)
        if exact is None or exact < least:
            raise Damaged(self.where, name, f"has to be a number of at least {least}, is {self._shown(name)}")
        return exact

    def whole(self, name: str, least: int = 0, most: int = QUANTITY_MAX) -> int:
        """A whole number from `least` to `most`."""
        number = self.number(name, least)
        if number.denominator != 1 or number > most:
            raise Damaged(self.where, name, f"has to be a whole number of at most {most}, is {self._shown(name)}")
        return number.numerator

    def text(self, name: str) -> str:
        """A text that is not empty."""
        value = self._values.get(name)
        if not isinstance(value, str) or not value:
            raise Damaged(self.where, name, f"has to be a text, is {self._shown(name)}")
        return value

    def items(self, name: str) -> list[object]:
        """A list."""
        value = self._values.get(name)
        if not isinstance(value, list):
            raise Damaged(self.where, name, f"has to be a list, is {self._shown(name)}")
        return value

    def rows(self, name: str) -> list["Row"]:
        """A list of objects, at least one."""
        found = [
            Row(value, f"{self.where}: {name}[{i}]", cells=self._cells) for i, value in enumerate(self.items(name))
        ]
        if not found:
            raise Damaged(self.where, name, "may not be empty")
        return found

    def row(self, name: str) -> "Row":
        """An object."""
        return Row(self._values.get(name), f"{self.where}: {name}", cells=self._cells)

    def names(self) -> list[str]:
        """Names of the fields, in order."""
        return list(self._values)

    def wholes(self, name: str, least: int = 0) -> list[int]:
        """A list of whole numbers, perhaps none."""
        inner = self._listed(name)
        return [inner.whole(index, least) for index in inner.names()]

    def texts(self, name: str) -> list[str]:
        """A list of texts, perhaps none."""
        inner = self._listed(name)
        return [inner.text(index) for index in inner.names()]

    def numbers(self, name: str, least: int = 0) -> list[Fraction]:
        """A list of numbers, perhaps none."""
        inner = self._listed(name)
        return [inner.number(index, least) for index in inner.names()]

    def _listed(self, name: str) -> "Row":
        values = {str(i): value for i, value in enumerate(self.items(name))}
        return Row(values, f"{self.where}: {name}", cells=self._cells)

    def _shown(self, name: str) -> str:
        return repr(self._values[name])[:40] if name in self._values else "missing"


def _exact(value: object, cells: bool) -> Fraction | None:
    if cells:
        return Fraction(value) if isinstance(value, str) and _NUMBER.fullmatch(value) else None
    return Fraction(value) if isinstance(value, int | Decimal) and not isinstance(value, bool) else None


def json_rows(path: str) -> Iterator[Row]:
    """The objects of a file of JSON lines."""
    for number, line in read_lines(path):
        yield json_row(line, f"{path}:{number}")


def json_row(text: bytes, where: str) -> Row:
    """One JSON object. Raises Damaged."""
    try:
        return Row(loads(text, size_max=LINE_BYTES_MAX), where)
    except Malformed as fault:
        raise Damaged(where, fault.field, fault.reason) from None


def table_rows(
    path: str, separator: str, columns: tuple[str, ...] = (), header: tuple[str, ...] = (), needed: tuple[str, ...] = ()
) -> Iterator[Row]:
    """The rows of a table without quoting. Columns are those named here, or, where there are none or the first line is
    `header`, those that the first line names. Raises Damaged for a damaged line, and where the first line does not name
    all columns of `needed`."""
    for number, line in read_lines(path):
        where = f"{path}:{number}"
        try:
            cells = line.decode().rstrip("\r\n").split(separator)
        except UnicodeDecodeError:
            raise Damaged(where, "", "is no text") from None
        if not columns or (number == 1 and tuple(cells) == header):
            columns = tuple(cells)
            if missing := [name for name in needed if name not in columns]:
                raise Damaged(where, "", f"has to name the columns of the table; missing: {', '.join(missing)}")
        elif len(cells) != len(columns):
            raise Damaged(where, "", f"has to have {len(columns)} columns ({', '.join(columns)}), has {len(cells)}")
        else:
            yield Row(dict(zip(columns, cells, strict=True)), where, cells=True)


def nearest(value: Fraction) -> int:
    """The nearest whole number, halves up."""
    return (2 * value.numerator + value.denominator) // (2 * value.denominator)


def up(value: Fraction) -> int:
    """The least whole number that is not smaller."""
    return -(-value.numerator // value.denominator)


def milliseconds(seconds: Fraction) -> int:
    """A duration, to the nearest millisecond and at least one: what ran took time, whatever the clock's grain."""
    return max(1, nearest(seconds * 1000))
