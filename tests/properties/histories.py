"""Histories of a cell: what clients, agents and operators do, drawn blind, and played on the cell as it then stands.

A `Play` notes every call that it makes on its cell, so that twins can be put through the very same facts.
"""

from dataclasses import replace
from random import Random
from typing import NamedTuple

from hypothesis import strategies as st

from schemas import (
    AntiAffinity,
    JobChanged,
    JobRerun,
    JobSpec,
    NodeDrained,
    NodeRemoved,
    Queue,
    Spread,
    TaskEnd,
    TaskFailed,
    TaskFailure,
    TaskFinished,
    TaskRange,
    TaskStarted,
)
from schemas.nodes import KnownAttempt
from tests.builders import config, node, queue, report, stage, tree
from tests.cells import AUTHOR, attempts_of

NODES = {
    "plain": node("plain", 4_000, 8_192, labels={"zone": "a"}),
    "small": node("small", 2_000, 4_096, labels={"zone": "b"}),
    "gpus": node("gpus", 8_000, 8_192, gpus=(1_000, 1_000, 1_000), labels={"zone": "b", "disk": "ssd"}),
    "spare": node("spare", 3_000, 16_384),
}
TREES = {
    "wide": tree(queue("a"), queue("b", 3), queue("c", 1.5)),
    "deep": tree(queue("a", 2), queue("in", 1, queue("b", 1), queue("c", 4))),
    "uneven": tree(queue("in", 5, queue("deeper", 3, queue("a", 0.1))), queue("b"), queue("c")),
    "limited": tree(
        Queue("f", policy="fifo", max={"cpu": 6_000}),
        Queue("in", policy="srtf", max={"memory": 9_000}, children=[Queue("b", running_jobs_max=2), Queue("c")]),
    ),
    "capped": tree(  # The same limits without policies, which presets that plan jobs refuse.
        Queue("g", max={"cpu": 6_000}),
        Queue("in", max={"memory": 9_000}, children=[Queue("b", running_jobs_max=2), Queue("c")]),
    ),
    "users": tree(
        Queue("h", user_running_max=2),
        Queue("in", user_running_max=4, children=[Queue("b", user_running_max=3), Queue("c")]),
    ),
}
QUEUES_IN = {  # A queue is known by another path in each tree.
    "wide": ("a", "b", "c", "default"),
    "deep": ("a", "in/b", "in/c", "default"),
    "uneven": ("in/deeper/a", "b", "c", "default"),
    "limited": ("f", "in/b", "in/c", "default"),
    "capped": ("g", "in/b", "in/c", "default"),
    "users": ("h", "in/b", "in/c", "default"),
}
USERS = ("", "ann", "bob")
LABELS: tuple[dict[str, str], ...] = ({}, {}, {}, {}, {"zone": "a"}, {"zone": "b"}, {"disk": "ssd"})
PREFERS: tuple[dict[str, str], ...] = ({}, {}, {}, {"zone": "a"}, {"zone": "b", "disk": "ssd"})
APARTS = (*[None] * 6, AntiAffinity(), AntiAffinity(required=False), AntiAffinity("group"))
SPREADS = (*[None] * 6, Spread("zone"), Spread("zone", 2), Spread("disk", required=False))
KINDS = ((500, 512), (2_000, 256), (250, 4_096), (1_000, 1_024))  # Millicores, MiB.
GPUS = (0, 0, 0, 0, 250, 400, 1_000, 1_500, 2_000)
REASONS = ("exit_code", "exit_code", "timeout", "cannot_start", "lost", "killed")


CALM = (
    *["submit"] * 8,
    *["finish"] * 10,
    *["fail", "fail", "start", "repeat", "foreign", "cancel", "wait", "wait"],
    *["round"] * 4,
    *["settle"] * 4,
    *["open"] * 4,
)
WILD = (
    *CALM,
    *["lose", "register", "register", "report", "drain", "drain", "drain", "remove"],
    *["cancel", "knobs", "knobs", "tree", "wait", "wait", "abandon"],
)


def drawn(seed, most=90):
    """The steps of one history. Drawn from the seed alone: Hypothesis by itself draws too few unlike steps in a row.

    In a calm one nodes and knobs stay as they are, so that cores may remember for long.
    """
    chance = Random(seed)
    steps = chance.choice([CALM, WILD])
    found = [_step(chance, chance.choice(steps)) for _ in range(chance.randint(most // 3, most))]
    return found if seed % 3 else limited(found, Random(seed))


def limited(steps, chance):
    """The same steps, with stages of which only so many tasks run at a time."""
    return [(step[0], _limited(step[1], chance), *step[2:]) if step[0] == "submit" else step for step in steps]


def _limited(stages, chance):
    return [
        each if each.gang or chance.random() < 0.3 else replace(each, running_max=chance.choice([1, 1, 2, 3, 9]))
        for each in stages
    ]


class Seeded(NamedTuple):
    """A history, and the number that it was drawn from: its tree and its restarts follow from that, too."""

    seed: int
    steps: list

    @classmethod
    def of(cls, seed, most=90):
        return cls(seed, drawn(seed, most))


LEFT_OUT = 8
"""A step is left out where the byte that is drawn for it is below this."""


@st.composite
def seeded_histories(draw, most=90):
    """Histories of a seed, of whose steps a few are left out. Hypothesis makes the bytes of one that fails smaller, and
    so it shrinks to the steps that it needs. They are one choice: among many, most examples would be of few seeds.
    """
    history = Seeded.of(draw(st.integers(0, 2**64 - 1)), most)
    count = len(history.steps)
    kept = draw(st.binary(min_size=count, max_size=count))
    return history._replace(steps=[step for step, byte in zip(history.steps, kept, strict=True) if byte >= LEFT_OUT])


def histories(most=70):
    """The steps alone."""
    return seeded_histories(most).map(lambda history: history.steps)


def _step(chance, what):
    number = chance.randint(0, 1_000)
    if what == "submit":
        return what, _stages(chance), number, chance.randint(-1, 1)
    if what in ("finish", "start", "repeat"):
        return what, number, chance.randint(1, 8)
    if what == "fail":
        return what, number, chance.randint(1, 3), chance.choice(REASONS)
    if what == "wait":
        return what, chance.choice([1, 10, 1_000, 5_000, 70_000])
    if what in ("round", "settle", "open", "abandon"):
        return (what,)
    return what, number, chance.randint(0, 1_000)


def _stages(chance):
    """Stages s0, s1 ... of a job, each after some of those before it."""
    return [_stage(chance, k) for k in range(chance.choice([1, 1, 2, 3, 4]))]


def _stage(chance, k):
    cpu, memory = chance.choice(KINDS)
    tasks, gang = chance.randint(1, 6), chance.random() < 0.15
    return stage(
        f"s{k}",
        tasks,
        after=[f"s{j}" for j in range(k) if chance.random() < 0.6],
        cpu=cpu,
        memory=memory,
        gpu=chance.choice(GPUS),
        gang=gang,
        retries=chance.randint(0, 2),
        labels=chance.choice(LABELS),
        prefer=(prefer := chance.choice(PREFERS)),
        locality_wait_ms=chance.choice([None, 0, 1_000, 60_000]) if prefer else None,
        anti_affinity=chance.choice(APARTS),
        spread=chance.choice(SPREADS),
        max_failed=0 if gang else min(tasks, chance.choice([0, 0, 1, 3])),
        on_failure=chance.choice(["fail", "continue"]),
    )


class Play:
    """Plays steps on a cell, noting each call. What the steps' numbers mean depends on how the cell then stands."""

    def __init__(self, cell, tree_name="wide", **knobs):
        self.cell = cell
        self.calls = []
        self.tree = tree_name
        self.submitted = 0
        self.specs = {}
        self.epochs = 0
        self.reported = []
        self.deadlines = {}  # By node that drains, when its agent revokes what is left.
        queues = TREES.get(tree_name)
        self.call("take", config(queues, retry_backoff_ms=1_000, **knobs))
        for each in NODES.values():
            self.call("take", each)

    def call(self, name, *arguments):
        self.calls.append((name, arguments))
        return getattr(self.cell, name)(*arguments)

    def step(self, what, *numbers):
        getattr(self, f"_{what}")(*numbers)

    # ------------------------------------------------------------ clients
    def _submit(self, stages, at, priority):
        paths = QUEUES_IN.get(self.tree, ("default", "x", "y"))
        user = USERS[at // 4 % len(USERS)]
        spec = JobSpec(f"j{self.submitted}", paths[at % len(paths)], stages, priority, user=user)
        self.submitted += 1
        self.specs[spec.job] = spec
        self.call("take", spec)

    def _cancel(self, which, _):
        if live := list(self.cell.admission.jobs):
            self.call("cancel", live[which % len(live)])

    def _change(self, which, how):
        """A user holds a job, releases it, or changes its priority or queue, sometimes several of these at once."""
        if live := list(self.cell.admission.jobs):
            paths = QUEUES_IN.get(self.tree, ("default", "x", "y"))
            hold = (True, True, False, False, None)[how % 5]
            priority = (None, None, -1, 0, 2)[how // 5 % 5]
            queue = paths[how // 50 % len(paths)] if how // 25 % 2 else None
            self.call("take", JobChanged(live[which % len(live)], hold, priority, queue))

    def _rerun(self, which, how):
        """A job that has ended, or lives, is to run again, or a part of it."""
        if self.specs:
            spec = list(self.specs.values())[which % len(self.specs)]
            names = ["", *[each.stage for each in spec.stages]]
            self.call("take", JobRerun(spec, names[how % len(names)]))

    # ------------------------------------------------------------ agents
    def _holds(self, which, count):
        """Some attempts that hold room: as (job, stage, index, hold)."""
        held = [(*key.split("/"), hold) for key, hold in attempts_of(self.cell.admission)]
        first = which % len(held) if held else 0
        return [(name, of, int(index), hold) for name, of, index, hold in held[first : first + count]]

    def _range(self, name, of, index, hold):
        return name, of, index, 1, hold.attempt, hold.node, hold.epoch

    def _tell(self, body):
        self.reported.append(body)
        self.call("take", body)

    def _start(self, which, count):
        if held := self._holds(which, count):
            self._tell(TaskStarted([TaskRange(*self._range(*each)) for each in held]))

    def _finish(self, which, count):
        if held := self._holds(which, count):
            self._tell(TaskFinished([TaskEnd(*self._range(*each), [10]) for each in held]))

    def _fail(self, which, count, reason):
        if held := self._holds(which, count):
            self._tell(TaskFailed([TaskFailure(*self._range(*each), reason) for each in held]))

    def _repeat(self, which, count):
        if self.reported:
            self.call("take", self.reported[which % len(self.reported)])

    def _foreign(self, which, how):
        for name, of, index, hold in self._holds(which, 1):
            place = [name, of, index, 1, hold.attempt, hold.node, hold.epoch]
            at = 2 + how % 5
            place[at] = [index + 7, 1, hold.attempt + 1, "elsewhere", "other epoch"][at - 2]
            self.call("take", TaskFinished([TaskEnd(*place, [10])]))

    def _node(self, which):
        return list(NODES.values())[which % len(NODES)]

    def _is_known(self, name):
        return name in self.cell.admission.nodes

    def _lose(self, which, _):
        name = self._node(which).node
        if self._is_known(name):
            self.call("lose", name)

    def _drain(self, which, how):
        """Stops or resumes placements, with a deadline for what runs there or without one."""
        name, draining = self._node(which).node, how % 3 > 0
        within_ms = (0, 1, 1_000, 60_000)[how // 6 % 4] if draining and how % 2 else None
        self.call("take", NodeDrained(name, draining, AUTHOR, within_ms=within_ms))
        self.deadlines.pop(name, None)
        if within_ms is not None and self._is_known(name):
            self.deadlines[name] = self.cell.time + within_ms
            self._revoke()

    def _revoke(self):
        """Agents end what a drain's deadline leaves."""
        for name in [name for name, at_ms in self.deadlines.items() if at_ms <= self.cell.time]:
            del self.deadlines[name]
            if held := [each for each in self._holds(0, 1_000) if each[3].node == name]:
                self._tell(TaskFailed([TaskFailure(*self._range(*each), "revoked") for each in held]))

    def _remove(self, which, lost):
        """An operator removes a node, lost just now or as it is: one that is alive is refused."""
        if lost % 2:
            self._lose(which, 0)
        self.call("take", NodeRemoved(self._node(which).node, AUTHOR))

    def _report(self, which, how):
        plain = self._node(which)
        if not self._is_known(plain.node):
            return
        epoch = self.cell.admission.nodes[plain.node].epoch
        capacity = {kind: amount // (1 + how % 2) for kind, amount in plain.capacity.items()}
        devices = plain.devices[: len(plain.devices) // (1 + how % 2)]
        if devices:
            capacity["gpu"] = sum(device.milli for device in devices)
        labels = plain.labels if how % 3 else {}
        changed = report(plain.node, epoch=epoch, labels=labels, devices=devices, **capacity)
        self.call("take", changed)

    def _register(self, which, how):
        """A restarted agent: it knows some of what its node holds, running or ended, and may say a thing twice."""
        plain = self._node(which)
        self.epochs += 1
        attempts = []
        for k, (name, of, index, hold) in enumerate(self._holds(0, 1_000)):
            if hold.node == plain.node and (how >> k % 8) % 4:
                state = ("running", "succeeded", "failed", "running")[(how >> k % 7) % 4]
                reason = REASONS[how % len(REASONS)] if state == "failed" else None
                attempts.append(KnownAttempt(name, of, index, 1, hold.attempt, state, [5], reason))
        if attempts and how % 5 == 0:
            attempts.append(replace(attempts[0], state="succeeded"))
            attempts.append(replace(attempts[0], job="unheard of"))
        self.call("take", replace(plain, epoch=f"r{self.epochs}", attempts=attempts))

    # ------------------------------------------------------------ operators
    def _knobs(self, which, value):
        knobs = [
            {"preset": ("largesse", "carbyne", "hdrf", "fifo", "carbyne", "drf")[value % 6]},
            {"altruism_shards": (1, 2, 4)[value % 3]},
            {"round_gap_ms": (0, 700)[value % 2]},
            {"retry_backoff_ms": (0, 500)[value % 2], "retry_backoff_ms_max": 900},
            {"keyframe_rounds": 1 + value % 4},
            {"fifo_order": ("job", "stage")[value % 2]},
            {"estimates": ("spec", "history", "finished", "preset")[value % 4]},
            {"altruism": ("on", "off")[value % 2], "isolation_permille": (0, 400)[value // 2 % 2]},
            {"shadow_steps": 1 + value % 40},
            {"classes": ("on", "off")[value % 2], "theta_permille": (100, 300, 600)[value % 3]},
        ]
        self.call("take", config(**knobs[which % len(knobs)]))

    def _tree(self, which, _):
        self.call("take", config(TREES[sorted(TREES)[which % len(TREES)]]))
        if self.cell.admission.queues is not None:
            here = next(name for name, top in TREES.items() if _alike(top, self.cell.admission.queues))
            self.tree = here

    # ------------------------------------------------------------ time and rounds
    def _wait(self, span_ms):
        self.call("at", self.cell.time + span_ms)
        self._revoke()

    def _round(self):
        self._close_open()
        self.call("round")

    def _settle(self):
        self._close_open()
        self.call("settle")

    def _open(self):
        if self.cell.opening is None:
            self.call("open")

    def _abandon(self):
        if self.cell.opening is not None:
            self.call("abandon")

    def _close_open(self):
        if self.cell.opening is not None:
            self.call("close")

    # ------------------------------------------------------------ the end
    def wind_up(self):
        """Every node comes back, and every attempt ends well. Fails if jobs are left that nothing moves, though the
        maxima and the limits on users are lifted then: a gang may be larger than one that came after its admission.
        """
        self._close_open()
        self.call("take", config(round_gap_ms=0))
        for name in list(self.cell.admission.on_hold):
            self.call("take", JobChanged(name, hold=False))
        for name, plain in NODES.items():
            holds = attempts_of(self.cell.admission)
            held = [(*key.split("/"), hold) for key, hold in holds if hold.node == name]
            attempts = [KnownAttempt(j, s, int(i), 1, hold.attempt, "running", []) for j, s, i, hold in held]
            self.call("take", replace(plain, epoch="last", attempts=attempts))
            self.call("resume", name)
        for _ in range(400):
            self.call("settle")
            if attempts_of(self.cell.admission):
                self._finish(0, 1_000)
            elif not self.cell.admission.jobs:
                return
            else:
                moment, top = self.cell.next_ms(), self.cell.admission.queues
                if moment is not None:
                    self.call("at", max(moment, self.cell.time))
                    continue
                lifted = None if top is None else _lifted(top)
                assert lifted != top, f"nothing moves {list(self.cell.admission.jobs)} any more"
                self.call("take", config(lifted))
        raise AssertionError(f"{list(self.cell.admission.jobs)} do not end")


def _lifted(queue):
    """The tree without its maxima and without limits on users."""
    return replace(queue, max={}, user_running_max=None, children=[_lifted(child) for child in queue.children])


def _alike(plain, in_force):
    names = [child.name for child in in_force.children if child.name != "default"]
    return [child.name for child in plain.children] == names


def replay(calls, cell, before=None):
    """Puts a twin through the same calls. `before` is asked before each one, with its number."""
    for number, (name, arguments) in enumerate(calls):
        if before is not None:
            before(cell, number)
        getattr(cell, name)(*arguments)
    return cell
