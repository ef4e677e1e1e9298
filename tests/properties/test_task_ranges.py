"""Reports are judged as ranges: the same verdicts as task by task, whatever was granted, ended, adopted and lost."""

from dataclasses import replace
from itertools import pairwise

from hypothesis import strategies as st

from schemas import InputRefused, KnownAttempt, TaskEnd, TaskFailed, TaskFailure, TaskFinished, TaskRange, TaskStarted
from services.admission.core.granted import attempt_of, is_held, mark_of, marks, put
from services.admission.core.judge import judge
from tests.cells import SlowCell, holds_of
from tests.properties.histories import NODES, Play, histories
from tests.strategies import for_all

SHARDS = 4  # As many as a history may ask for.
SPEAKERS = (*NODES, "nobody")
EPOCHS = ("e1", "last", "other")


class Oracle:
    """What the log has of every task, asked one by one: what was granted to whom is noted from the closings."""

    def __init__(self, cell):
        self.state = cell.admission
        self.holds = holds_of(cell.admission)
        self.last = {}
        self.kept = {}
        for record in cell.records:
            body = record.body
            for grant in getattr(body, "grants", ()):
                for index in range(grant.first, grant.first + grant.count):
                    self.last[grant.job, grant.stage, index] = grant.attempt
            if type(body).__name__ == "JobAdmitted":
                self.last = {task: n for task, n in self.last.items() if task[0] != body.spec.job}
                self.kept[body.spec.job] = body.spec

    def verdict(self, seen, item, index, node, epoch, starting):
        key = f"{item.job}/{item.stage}/{index}"
        hold = self.holds.get(key)
        if hold is not None and hold.attempt == item.attempt:
            if hold.node != node or (epoch is not None and hold.epoch != epoch):
                return "foreign"
            if (starting and hold.started) or key in seen:
                return "stale"
            seen[key] = True
            return "good"
        if item.job not in self.state.jobs:
            return "stale" if item.job in self.state.ended else "foreign"
        stages = {stage.stage: stage.tasks for stage in self.kept[item.job].stages}
        if index >= stages.get(item.stage, 0) or self.last.get((item.job, item.stage, index), 0) < item.attempt:
            return "foreign"
        return "stale"

    def report(self, body):
        """The tasks that count and those refused, each alone: its place, and its run time where it has one."""
        seen, good, refused = {}, [], []
        starting = isinstance(body, TaskStarted)
        for item in body.items:
            for index in range(item.first, item.first + item.count):
                verdict = self.verdict(seen, item, index, item.node, item.epoch, starting)
                if verdict == "good":
                    good.append(one(item, index))
                elif verdict == "foreign":
                    refused.append((item.job, item.stage, index, item.attempt, item.node, item.epoch))
        return good, refused


def one(item, index):
    run_ms = getattr(item, "run_ms", [])
    own = (run_ms[index - item.first] if len(run_ms) == item.count else run_ms[0]) if run_ms else None
    return item.job, item.stage, index, item.attempt, getattr(item, "state", ""), own


def singly(items):
    return [one(item, index) for item in items for index in range(item.first, item.first + item.count)]


def places(ranges):
    return [(r.job, r.stage, i, r.attempt, r.node, r.epoch) for r in ranges for i in range(r.first, r.first + r.count)]


@st.composite
def said(draw):
    """What somebody says of attempts, blind: of which job and stage, which tasks, which attempt, from where."""
    count = draw(st.integers(1, 9))
    run_ms = draw(st.sampled_from([[7], list(range(count))]))
    return (
        draw(st.integers(0, 20)),
        draw(st.integers(0, 4)),
        draw(st.integers(0, 6)),
        count,
        draw(st.integers(1, 3)),
        draw(st.sampled_from(SPEAKERS)),
        draw(st.sampled_from(EPOCHS)),
        run_ms,
    )


def named(cell, which, stage):
    """A job and a stage that were admitted once, or are no one's."""
    specs = [record.body.spec for record in cell.records if type(record.body).__name__ == "JobAdmitted"]
    if not specs:
        return "stranger", "map"
    spec = specs[which % len(specs)]
    stages = [each.stage for each in spec.stages] + ["none"]
    return spec.job, stages[stage % len(stages)]


def items_of(cell, sayings, kind):
    items = []
    held = [(*key.split("/"), hold) for key, hold in holds_of(cell.admission).items()]
    for which, stage, first, count, attempt, node, epoch, run_ms in sayings:
        place = (*named(cell, which, stage), first, count, attempt, node, epoch)
        if held and which % 3:  # Mostly of what is held.
            job, name, index, hold = held[which % len(held)]
            near = max(0, int(index) - first)
            place = (job, name, near, count, hold.attempt, hold.node, hold.epoch if stage else epoch)
        if kind is TaskStarted:
            items.append(TaskRange(*place))
        elif kind is TaskFinished:
            items.append(TaskEnd(*place, run_ms))
        else:
            items.append(TaskFailure(*place, "exit_code", run_ms=run_ms))
    return items


@for_all(histories(30), st.lists(st.lists(said(), min_size=1, max_size=4), min_size=1, max_size=6))
def test_a_report_is_judged_as_if_task_by_task(history, reports):
    cell = SlowCell(SHARDS)
    play = Play(cell, "wide")
    for step in history:
        play.step(*step)
    for number, sayings in enumerate(reports):
        kind = (TaskStarted, TaskFinished, TaskFailed)[number % 3]
        body = kind(items_of(cell, sayings, kind))
        good, refused = Oracle(cell).report(body)

        answer = judge(cell.admission, body, "tester", cell.time)

        if isinstance(answer, kind):
            assert singly(answer.items) == good
            assert places(answer.refused) == refused
        else:
            assert good == []
            assert isinstance(answer, InputRefused) == bool(refused)


@for_all(histories(30), st.lists(said(), min_size=1, max_size=6), st.sampled_from(sorted(NODES)))
def test_what_a_registration_knows_is_taken_as_if_task_by_task(history, sayings, name):
    cell = SlowCell(SHARDS)
    play = Play(cell, "wide")
    for step in history:
        play.step(*step)
    items = items_of(cell, sayings, TaskFinished)
    known = [KnownAttempt(i.job, i.stage, i.first, i.count, i.attempt, "succeeded", i.run_ms) for i in items]
    oracle, kept, wanted = Oracle(cell), {}, []
    for item in known:
        for index in range(item.first, item.first + item.count):
            if oracle.verdict(kept, item, index, name, None, False) == "good":
                wanted.append(one(item, index))
    lost = [key for key, hold in oracle.holds.items() if hold.node == name and key not in kept]

    body = judge(cell.admission, replace(NODES[name], epoch="a new one", attempts=known), "tester", cell.time)

    assert singly(body.attempts) == wanted
    assert [f"{r.job}/{r.stage}/{r.first}" for r in body.lost] == lost


@for_all(
    st.lists(st.tuples(st.integers(0, 11), st.integers(1, 12), st.integers(0, 3), st.booleans()), max_size=30),
    st.integers(0, 11),
    st.integers(1, 20),
)
def test_runs_of_attempts_say_what_a_list_of_all_tasks_would(changes, first, count):
    plain, granted = [0] * 12, []
    for at, more, attempt, held in changes:
        end = min(12, at + more)
        granted = put(granted, at, end, mark_of(attempt, held), 12)
        plain[at:end] = [mark_of(attempt, held)] * (end - at)

    runs = marks(granted, 0, 12)

    assert [mark for low, high, mark in runs for _ in range(low, high)] == plain
    assert all(a[2] != b[2] for a, b in pairwise(runs)), "neighbours of one mark are one run"
    part = [mark for low, high, mark in marks(granted, first, first + count) for _ in range(low, high)]
    assert part[: 12 - first] == plain[first : first + count]
    assert [(attempt_of(mark), is_held(mark)) for mark in plain] == [(mark // 2, mark % 2 == 1) for mark in plain]
