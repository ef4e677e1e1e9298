"""The schedule of a simulated run: in a file, one JSON line a task attempt and one a span of room held on purpose, or,
of a short run, in memory.

Written as the attempts end. A path that ends in `.gz` is compressed; the same lines give the same bytes there too.
"""

import gzip
import json
from dataclasses import dataclass, field
from functools import lru_cache
from io import TextIOWrapper
from pathlib import Path
from types import TracebackType
from typing import Literal, Protocol, Self

from schemas.quantities import Vector, quantity_texts

AttemptOutcome = Literal["succeeded", "failed", "killed", "lost", "revoked", "superseded"]
Why = Literal["required", "optional", "packed", "reserved", "speculative"]

_LEVEL = 6  # Named, so that bytes do not follow a library's default.


class Schedule(Protocol):
    """What is written of a simulated run as it goes. Times in ms of the run."""

    def attempt(
        self,
        job: str,
        stage: str,
        index: int,
        attempt: int,
        node: str,
        start_ms: int,
        end_ms: int,
        outcome: AttemptOutcome,
        why: Why,
    ) -> None:
        """One attempt of task `index` of a stage that has ended."""

    def held(self, node: str, from_ms: int, to_ms: int, why: str, demand: Vector) -> None:
        """Room of a node that was kept free on purpose."""


@dataclass(frozen=True, slots=True)
class Span:
    """An attempt, or room held on purpose (no job): from start to end on one node. `why`: why it was there."""

    node: str
    start_ms: int
    end_ms: int
    why: str
    job: str | None = None
    stage: str = ""
    index: int = 0
    attempt: int = 0
    outcome: str = ""


@dataclass(slots=True)
class ShortSchedule:
    """Keeps the schedule of a run in memory as long as it has at most `spans_max` attempts, and as many spans of held
    room; of a longer run a sample: of the attempts in the order of their ends, the first and then one in `one_in`, and
    likewise of the spans of held room one in `held_one_in`.
    """

    spans_max: int
    attempts: int = 0
    spans: list[Span] = field(default_factory=list)
    held_spans: int = 0
    one_in: int = 1
    held_one_in: int = 1

    def attempt(
        self,
        job: str,
        stage: str,
        index: int,
        attempt: int,
        node: str,
        start_ms: int,
        end_ms: int,
        outcome: AttemptOutcome,
        why: Why,
    ) -> None:
        """One attempt of task `index` of a stage that has ended."""
        self._keep(Span(node, start_ms, end_ms, why, job, stage, index, attempt, outcome))

    def held(self, node: str, from_ms: int, to_ms: int, why: str, demand: Vector) -> None:
        """Room of a node that was kept free on purpose."""
        self._keep(Span(node, from_ms, to_ms, why))

    @property
    def whole(self) -> bool:
        """Whether `spans` is all of it."""
        return self.one_in == self.held_one_in == 1

    def _keep(self, span: Span) -> None:
        is_held = span.job is None
        seen, one_in = (self.held_spans, self.held_one_in) if is_held else (self.attempts, self.one_in)
        if seen % one_in == 0:
            self.spans.append(span)
        if is_held:
            self.held_spans += 1
        else:
            self.attempts += 1
        if seen // one_in >= self.spans_max:
            self._halve(is_held=is_held)

    def _halve(self, *, is_held: bool) -> None:
        """Keeps every other one of the attempts, or of the spans of held room."""
        if is_held:
            self.held_one_in *= 2
        else:
            self.one_in *= 2
        kept, position = list[Span](), 0
        for span in self.spans:
            if (span.job is None) == is_held:
                position += 1
                if position % 2 == 0:
                    continue
            kept.append(span)
        self.spans = kept


class ScheduleWriter:
    """Writes `path` again. Times in ms of the run, `attempt` counts from 1. Raises OSError where it cannot write."""

    def __init__(self, path: str) -> None:
        self._raw = Path(path).open("wb")  # noqa: SIM115 - closed in `close`
        # No name and no time in the header: they would change the bytes.
        self._bytes = gzip.GzipFile("", "wb", _LEVEL, self._raw, mtime=0) if path.endswith(".gz") else self._raw
        self._text = TextIOWrapper(self._bytes, encoding="utf-8", newline="\n", write_through=False)

    def attempt(
        self,
        job: str,
        stage: str,
        index: int,
        attempt: int,
        node: str,
        start_ms: int,
        end_ms: int,
        outcome: AttemptOutcome,
        why: Why,
    ) -> None:
        """One attempt of task `index` of a stage that has ended."""
        self._text.write(
            f'{{"job":{_quoted(job)},"stage":{_quoted(stage)},"index":{index},"attempt":{attempt},'
            f'"node":{_quoted(node)},"start_ms":{start_ms},"end_ms":{end_ms},"outcome":"{outcome}","why":"{why}"}}\n'
        )

    def held(self, node: str, from_ms: int, to_ms: int, why: str, demand: Vector) -> None:
        """Room of a node that was kept free on purpose: for whom, and how much."""
        line = {"held": node, "from_ms": from_ms, "to_ms": to_ms, "why": why, "demand": quantity_texts(demand)}
        self._text.write(json.dumps(line, separators=(",", ":")) + "\n")

    def close(self) -> None:
        """Everything is on its way to the disk. Nothing may be written afterwards."""
        self._text.close()
        self._raw.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@lru_cache(maxsize=1 << 16)
def _quoted(text: str) -> str:
    """Names repeat in line after line."""
    return json.dumps(text)
