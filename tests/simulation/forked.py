"""Many what-ifs of one recording: it is followed once, and each is decided in a process that forks off where it stands.

A what-if that changes what was submitted has to follow the recording from its first record, so it is slower.
"""

import os
import pickle
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TypeVar

from schemas import ConfigChanged, JobAdmitted, JobChanged, Plans, Record, Releases, RoundClosed
from services.replay.refold import Refold
from services.replay.source import Source, Step
from services.replay.verify import recorded_winners
from services.replay.whatif import run as what_if
from services.replay.whatif.facts import Told
from services.replay.whatif.outcomes import Outcomes
from services.replay.whatif.run import Question

T = TypeVar("T")

TESTER = "tester"
Starts = dict[tuple[str, str], int]
"""By job and stage, when the next of its tasks was granted."""
Wanted = dict[tuple[str, str], int | None]
"""The stages that are asked about, with the time by which more is not asked; None: there is none."""


@dataclass
class World(Question):
    """What is different: also of jobs, from their submission on, and what is said at the fork. `only`: jobs that may
    start tasks behind it, all others are held and nobody comes; None: everybody.
    """

    jobs: dict[tuple[str, str], dict] = field(default_factory=dict)
    said: list = field(default_factory=list)
    only: tuple[str, ...] | None = None


class _Enough(Exception):
    """All that was asked is known."""


class _Starts(Outcomes):
    """Ends a run when every wanted stage has started, or can no more start in time."""

    def __init__(self, wanted: Wanted | None):
        super().__init__(1_000)
        self.first: Starts = {}
        self.wanted = wanted
        self.ends_ms: int | None = None

    def begin(self, wanted: Wanted | None) -> None:
        """The recording is behind, the other world begins."""
        self.first.clear()
        self.wanted = None if wanted is None else dict(wanted)
        self._look()

    def _look(self) -> None:
        if self.wanted is not None:
            times = list(self.wanted.values())
            self.ends_ms = None if None in times else max((each for each in times if each is not None), default=0)

    def observe(self, record: Record) -> None:
        super().observe(record)
        if isinstance(record.body, RoundClosed):
            for grant in record.body.grants:
                key = grant.job, grant.stage
                self.first.setdefault(key, record.time)
                if self.wanted is not None and key in self.wanted:
                    del self.wanted[key]
                    self._look()
        if self.wanted is not None and (not self.wanted or (self.ends_ms is not None and record.time > self.ends_ms)):
            raise _Enough


class _Run(what_if._Run):
    def __init__(self, source, world, outcomes, heard, fork, wanted):
        super().__init__(source, world, outcomes, heard, fork)
        self.wanted = wanted

    def _differ(self, cell, drive):
        world = self._question
        super()._differ(cell, drive)
        cell.put(ConfigChanged(cell.admission.policy, None, TESTER))  # Has a round open.
        for body in world.said:
            if body.job in cell.admission.jobs:
                cell.take(body, TESTER)
        for name in list(cell.admission.jobs) if world.only is not None else ():
            if name not in world.only:
                cell.take(JobChanged(name, hold=True, author=TESTER), TESTER)

    def _following(self, records):
        if self._question.only is not None:
            return iter(())
        return super()._following(records)

    def _go_on(self, cell, agents):
        super()._go_on(cell, agents)
        self._outcomes.begin(self.wanted)

    def starts(self):
        with suppress(_Enough):
            self.answer(None)
        return self._outcomes.first


class _Forked(_Run):
    """Stands at the fork already. `rest`: the steps behind it."""

    cores: Refold
    last: Record
    rest: Iterator[Step]

    def _begin(self, shards):
        cell = what_if.Cell(shards=shards)
        agents = what_if.SimCluster(self._before.metrics)
        agents.ends = self._outcomes
        cell.take_up(self.cores.all(), self.last, self.cores.prefix)
        self._go_on(cell, agents)
        cell.observers = [agents.observe, self._outcomes.observe, self._before_reserved.observe]
        return cell, agents, self._following(step.accepted.record for step in self.rest)


class Recording:
    """A log in memory, followed from one moment to the next. `foresight`: how long tasks will run is known; else
    no more than what has ended by the moment tells.
    """

    def __init__(self, source: Source, *, foresight: bool = True) -> None:
        self.steps = list(source.steps())
        self.source = Source(source.name, lambda hear: iter(self.steps), source.shards_max)
        outcomes, heard = _Starts(None), Told()
        what_if._read(self.source, Question(), outcomes if foresight else Outcomes(), heard)
        self._learns = None if foresight else outcomes.learn
        self._run = _Forked(self.source, World(), outcomes, heard, 0, None)
        self._run.cores = Refold(heard.shards)
        self._at = 0

    def follow(self, seq: int) -> None:
        """Up to a record at which no round is open, with the forecasts that were made in it."""
        run = self._run
        while self._at < len(self.steps):
            step = self.steps[self._at]
            record = step.accepted.record
            if record.seq > seq and not isinstance(record.body, Releases | Plans):
                break
            if isinstance(record.body, RoundClosed):
                run.cores.feed(recorded_winners(step, record))
            run.cores.fold(step.accepted)
            if self._learns is not None:
                self._learns(record)
            run._share(record)
            run.last, run._fork = record, record.seq
            self._at += 1

    def tried(self, world: World, wanted: Wanted) -> Starts:
        """When stages start in another world that forks here."""
        if world.jobs:
            return in_another_process(lambda: self._from_the_beginning(world, wanted))
        return in_another_process(lambda: self._from_here(world, wanted))

    def _from_here(self, world, wanted):
        run = self._run
        run._question, run.wanted, run.rest = world, wanted, iter(self.steps[self._at :])
        return run.starts()

    def _from_the_beginning(self, world, wanted):
        source = self.source
        changed = Source(source.name, lambda hear: _changed(source.read(hear), world), source.shards_max)
        outcomes, heard = _Starts(None), Told()
        fork = what_if._read(changed, world, outcomes, heard)
        return _Run(changed, world, outcomes, heard, fork, wanted).starts()


def _changed(steps: Iterator[Step], world: World) -> Iterator[Step]:
    names = {name for name, _ in world.jobs}
    for step in steps:
        record = step.accepted.record
        if isinstance(record.body, JobAdmitted) and record.body.spec.job in names:
            spec = record.body.spec
            stages = [replace(each, **world.jobs.get((spec.job, each.stage), {})) for each in spec.stages]
            body = replace(record.body, spec=replace(spec, stages=stages))
            step = Step(replace(step.accepted, record=replace(record, body=body)), step.decisions)
        yield step


def in_another_process(do: Callable[[], T]) -> T:
    """What is done there changes nothing here."""
    into, out = os.pipe()
    child = os.fork()
    if not child:
        code = 1
        try:
            os.close(into)
            with os.fdopen(out, "wb") as pipe:
                pickle.dump(do(), pipe)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(out)
    with os.fdopen(into, "rb") as pipe:
        said = pipe.read()
    _, status = os.waitpid(child, 0)
    assert status == 0, f"a what-if ended with status {status}"
    found: T = pickle.loads(said)
    return found
