"""Requests and tries, without any I/O: what is to be sent or waited for is yielded, and the answer is sent in.

So both clients, the one that blocks and the one that does not, run the same steps. A request whose answer is lost is
sent again, since all that changes something says under which name: that makes one of two that are alike. Only those for
which that does not hold (`repeatable` False) are sent again only where the gateway has taken nothing of them.
"""

import json
import random
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import TypeVar

from largesse.client.errors import LargesseError, Unavailable, Unreachable, error_of

TIMEOUT_S = 45.0
"""Longer than the gateway waits for the bus, 30 s at most, and then for the log's answer, 10 s."""
DRY_RUN_TIMEOUT_S = 150.0
"""Longer than the gateway gives a dry run, also where it has to wait for another one."""
WHAT_IF_TIMEOUT_S = 660.0
TAKEN_NOTHING = ("busy", "not_ready", "no_router")
"""Ends of the types of problems that a gateway gives before it does anything."""

T = TypeVar("T")
Document = dict[str, object]


@dataclass(frozen=True, slots=True)
class Retry:
    """How a request is made again that got no answer, status 429 or 5xx: after pauses drawn from 0 to a bound that
    begins with `first_s`, doubles up to `most_s`, and is never below what Retry-After says; until `give_up_s` after
    the first try. `give_up_s` 0: never."""

    give_up_s: float = 60.0
    first_s: float = 0.5
    most_s: float = 8.0


@dataclass(frozen=True, slots=True)
class Call:
    """One request. `repeatable`: two of it have the effect of one. `streamed`: the answer is read later, in pieces."""

    method: str
    path: str
    params: Mapping[str, str | list[str]] = field(default_factory=dict)
    body: bytes | None = None
    timeout_s: float = TIMEOUT_S
    repeatable: bool = True
    headers: Mapping[str, str] = field(default_factory=dict)
    streamed: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back, read whole but for `opened`: what is read later. `headers`: by name in small letters."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    opened: object = None


@dataclass(frozen=True, slots=True)
class Pause:
    """A wait before the next step."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Out:
    """One of several things that are asked for, as soon as it is there."""

    item: object


class NoAnswer(Exception):
    """Thrown into steps where no answer came. `arrived`: whether the request may have reached the gateway."""

    def __init__(self, text: str, *, arrived: bool) -> None:
        super().__init__(text)
        self.arrived = arrived


Steps = Generator[Call | Pause, Answer | None, T]
"""Yields what is to be done, is sent the answer of a Call (None after a Pause), and returns what was asked for."""
Items = Generator[Call | Pause | Out, Answer | None, None]
"""The same of a list: each item comes as an Out."""


class Tries:
    """The tries of one request, or of one stream that is opened again: how long to pause before the next one."""

    def __init__(self, retry: Retry) -> None:
        self._retry = retry
        self.begin()

    def begin(self) -> None:
        """Counts from the start: something has been heard."""
        self.number, self._since = 0, monotonic()

    def pause_s(self, failure: LargesseError, after_s: float | None = None) -> float:
        """Seconds to wait. `after_s`: what Retry-After said. Raises `failure` where no further try is to be made."""
        bound = min(self._retry.most_s, self._retry.first_s * 2 ** min(self.number, 30))
        self.number += 1
        pause = max(after_s or 0.0, random.uniform(0, bound))
        if monotonic() - self._since + pause > self._retry.give_up_s:
            raise failure
        return pause


def asked(call: Call, retry: Retry) -> Steps[Answer]:
    """The answer to a request, which is no error. Raises LargesseError."""
    tries = Tries(retry)
    while True:
        after_s = None
        try:
            answer = yield call
        except NoAnswer as why:
            failure: LargesseError = Unreachable(f"no answer {why}")
            if why.arrived and not call.repeatable:
                raise failure from None
        else:
            assert answer is not None, "a call was answered with nothing"
            if 200 <= answer.status < 300:
                return answer
            failure, after_s = failure_of(answer), retry_after_s(answer.headers)
            may_again = answer.status == 429 or answer.status >= 500
            if not may_again or not (call.repeatable or took_nothing(failure)):
                raise failure
        yield Pause(tries.pause_s(failure, after_s))


def took_nothing(failure: LargesseError) -> bool:
    """Whether a gateway that answered so has done nothing of what was asked."""
    return failure.status == 429 or failure.kind in TAKEN_NOTHING


def failure_of(answer: Answer) -> LargesseError:
    """The error that an answer is."""
    try:
        document = json.loads(answer.body)
    except ValueError:
        document = None
    return error_of(answer.status, document)


def is_passing(failure: LargesseError) -> bool:
    """Whether a stream that ended so is opened again."""
    return isinstance(failure, Unavailable | Unreachable)


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """What Retry-After says in seconds; None where it says nothing, or a date."""
    text = headers.get("retry-after", "")
    return float(text) if text.isdecimal() else None


def document_in(answer: Answer, *fields: str) -> Document:
    """The JSON document of an answer, which has these fields. Raises Unreachable: no gateway answers otherwise."""
    try:
        document = json.loads(answer.body)
    except ValueError:
        document = None
    if not isinstance(document, dict) or not all(name in document for name in fields):
        raise Unreachable(f"an answer that no gateway gives (status {answer.status})", {"status": answer.status})
    return document


class Lines:
    """Documents of an answer that has one a line, as its bytes come. Only a line feed ends a line."""

    def __init__(self) -> None:
        self._begun = b""

    def of(self, data: bytes) -> list[Document]:
        """Those that are whole now. Raises Unreachable for what no gateway sends."""
        *whole, self._begun = (self._begun + data).split(b"\n")
        found = []
        for line in whole:
            try:
                document = json.loads(line)
            except ValueError:
                document = None
            if not isinstance(document, dict):
                raise Unreachable("a line that no gateway sends")
            found.append(document)
        return found
