"""What an agent says of one attempt until the log has it: the real `Outbox`, and a log that takes each word once.

Words are lost, also once the bus has taken them, arrive although the agent hears an error, arrive twice; the agent dies
and finds on its disk what ran.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from services.agent.outbox import Due, Name, Outbox, Result, Unreported

KEY, NAME, RESULT = "a/b/0/1", Name("a", "b", 0, 1), Result(None, 5)
Word = tuple[bool, bool]


@dataclass(frozen=True, slots=True)
class Rules:
    """`keeps`: what the bus did not take is said again. `repeats`: and so is what the log does not show. `finds`: a new
    agent says what its disk has. `faults`: so much goes wrong at most."""

    keeps: bool = True
    repeats: bool = True
    finds: bool = True
    faults: int = 2


@dataclass(frozen=True, slots=True)
class Attempt:
    """`said`: the outbox, as in how many ms the start and the end are due, and after how long again. `ran`: what has
    happened on the node: "", started or ended. `flying`: words on their way. `log`: what the log has, in order. `read`:
    how much of it the agent has read."""

    ran: str = ""
    start: tuple[int, int] | None = None
    end: tuple[int, int] | None = None
    flying: tuple[Word, ...] = ()
    log: tuple[str, ...] = ()
    read: int = 0
    faults: int = 0


class Reports:
    """Steps, law and goal of the model."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules

    def law(self, attempt: Attempt) -> str:
        """What is broken; empty: nothing."""
        if len(set(attempt.log)) < len(attempt.log):
            return "the log has a report twice"
        if "end" in attempt.log and attempt.ran != "ended":
            return "the log has an end that was none"
        return ""

    def is_done(self, attempt: Attempt) -> bool:
        """The log has the end, and there is nothing left to say."""
        return "end" in attempt.log and attempt.start is None and attempt.end is None and not attempt.flying

    def steps(self, attempt: Attempt) -> Iterator[tuple[str, Attempt]]:
        """All that may happen next."""
        if not attempt.ran:
            yield "it starts", _after(replace(attempt, ran="started"), lambda box: box.started(KEY, NAME, 0))
        if attempt.ran == "started":
            yield "it ends", _after(replace(attempt, ran="ended"), lambda box: box.ended(KEY, NAME, RESULT, 0))
        if attempt.ran and attempt.faults < self.rules.faults:
            yield "the agent dies", self._anew(replace(attempt, faults=attempt.faults + 1))
        yield from self._says(attempt)
        for at, word in enumerate(attempt.flying):
            rest = replace(attempt, flying=attempt.flying[:at] + attempt.flying[at + 1 :])
            yield "a word comes", replace(rest, log=_taken(attempt.log, word))
            if attempt.faults < self.rules.faults:
                yield "the power takes a word", replace(rest, faults=attempt.faults + 1)
        if attempt.read < len(attempt.log):
            what = attempt.log[attempt.read]
            read = replace(attempt, read=attempt.read + 1)
            yield "the agent reads", _after(read, lambda box: box.begun(KEY) if what == "start" else box.over(KEY))

    def _anew(self, attempt: Attempt) -> Attempt:
        """What another agent makes of its folders; it reads the log first."""
        box = Outbox()
        if self.rules.finds and "end" not in attempt.log:
            if "start" not in attempt.log:
                box.started(KEY, NAME, 0)
            if attempt.ran == "ended":
                box.ended(KEY, NAME, RESULT, 0)
        return _kept(replace(attempt, read=len(attempt.log)), box)

    def _says(self, attempt: Attempt) -> Iterator[tuple[str, Attempt]]:
        dues = [due[0] for due in (attempt.start, attempt.end) if due is not None]
        if not dues:
            return
        wait_ms = max(0, min(dues))
        box = _box(attempt, wait_ms)
        said = box.due(0)
        word = any(part.start for part in said), any(part.result is not None for part in said)
        box.sent(said, 0)
        sent = _kept(attempt, box) if self.rules.repeats else replace(attempt, start=None, end=None)
        flying = tuple(sorted((*attempt.flying, word)))
        if len(flying) <= 2:
            yield "the bus takes it", replace(sent, flying=flying)
        if attempt.faults >= self.rules.faults:
            return
        failed = attempt if self.rules.keeps else replace(attempt, start=None, end=None)
        failed = replace(failed, faults=attempt.faults + 1)
        yield "it is lost", failed
        if len(flying) <= 2:
            yield "it is on its way, and an error is heard", replace(failed, flying=flying)
        if len(flying) <= 1:
            yield "it comes twice", replace(sent, flying=(word, word), faults=attempt.faults + 1)


def _taken(log: tuple[str, ...], word: Word) -> tuple[str, ...]:
    """What the sequencer makes of a word: what it has already, and a start behind the end, is dropped."""
    start, end = word
    if start and "start" not in log and "end" not in log:
        log = (*log, "start")
    return (*log, "end") if end and "end" not in log else log


def _box(attempt: Attempt, passed_ms: int = 0) -> Outbox:
    """The outbox as it is, so much later."""
    box = Outbox()
    if attempt.start is None and attempt.end is None:
        return box
    start, end = (Due(due[0] - passed_ms, due[1]) if due is not None else None for due in (attempt.start, attempt.end))
    box.unreported[KEY] = Unreported(NAME, start, end, RESULT if end is not None else None)
    return box


def _kept(attempt: Attempt, box: Outbox) -> Attempt:
    known = box.unreported.get(KEY, Unreported(NAME))
    start, end = ((max(0, due.at_ms), due.repeat_ms) if due is not None else None for due in (known.start, known.end))
    return replace(attempt, start=start, end=end)


def _after(attempt: Attempt, does: Callable[[Outbox], None]) -> Attempt:
    box = _box(attempt)
    does(box)
    return _kept(attempt, box)
