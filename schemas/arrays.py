"""Which index of an array, and which values of a matrix, each task of a stage has.

An array is kept as a text in its shortest form (`"1,5,10-90:10"`), a matrix as its axes: a stage of 100,000 tasks is as
long as one of ten. Imported by agents: only the standard library.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

INDEX_MAX: Final = 10**9
ARRAY_TEXT_MAX: Final = 4_096  # Characters.

_PART = re.compile(r"([0-9]{1,10})(?:-([0-9]{1,10})(?::([0-9]{1,10}))?)?")


class ArrayWrong(ValueError):
    """A text that is no array: says why."""


def spans_of(text: str, most: int) -> list[range]:
    """The indexes that a text names, in its order. Raises ArrayWrong, also where it names more than `most` indexes."""
    spans: list[range] = []
    count = 0
    for part in text.split(","):
        match = _PART.fullmatch(part.strip())
        if match is None:
            raise ArrayWrong(f'has to be like "0-99", "0-99:10", "1,5,7" or "0-99%8", has "{part.strip()[:40]}"')
        first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        if last < first:
            raise ArrayWrong(f'goes down: write "{last}-{first}", not "{part.strip()}"')
        if not step:
            raise ArrayWrong(f'has a step of 0 in "{part.strip()}": it has to be at least 1')
        if last > INDEX_MAX:
            raise ArrayWrong(f"goes up to {last}: indexes go up to {INDEX_MAX}")
        spans.append(range(first, last + 1, step))
        count += len(spans[-1])
        if count > most:
            raise ArrayWrong(f"has more than {most} indexes: a stage has at most as many tasks")
    _check_apart(spans)
    return spans


def _check_apart(spans: list[range]) -> None:
    if len(spans) < 2:
        return
    found: dict[int, bool] = {}
    for span in spans:
        for index in span:
            if index in found:
                raise ArrayWrong(f"names the index {index} twice")
            found[index] = True


def text_of(spans: Sequence[range]) -> str:
    """The indexes as a stage keeps them; "" where they are those of its tasks, from 0."""
    if len(spans) == 1 and spans[0].start == 0 and (spans[0].step == 1 or len(spans[0]) == 1):
        return ""
    return ",".join(_span_text(span) for span in spans)


def _span_text(span: range) -> str:
    if len(span) == 1:
        return str(span.start)
    return f"{span.start}-{span[-1]}" + (f":{span.step}" if span.step > 1 else "")


@lru_cache(64)
def _spans(text: str) -> tuple[range, ...]:
    spans = []
    for part in text.split(","):
        first, _, rest = part.partition("-")
        last, _, step = rest.partition(":")
        spans.append(range(int(first), int(last or first) + 1, int(step or 1)))
    return tuple(spans)


def index_of(text: str, task: int) -> int:
    """The index of a task, counted from 0, by what its stage keeps."""
    if not text:
        return task
    for span in _spans(text):
        if task < len(span):
            return span[task]
        task -= len(span)
    raise IndexError(task)


def choice_of(sizes: Sequence[int], task: int) -> list[int]:
    """Which value of each axis a task has, where the last axis changes first."""
    choice = [0] * len(sizes)
    for at in reversed(range(len(sizes))):
        task, choice[at] = divmod(task, sizes[at])
    return choice
