"""Why tasks of a stage wait: the gateway's reasons, the numbers behind each, and what would remove it."""

from largesse.lifecycle.running_limit import queue_at_limit
from largesse.lifecycle.slots import counted_demand
from schemas import Vector
from schemas.jobs import ENGINE_LABEL
from schemas.quantities import SHARE_UNITS, quantity_text
from schemas.queue_tree import upwards
from schemas.reasons import REASONS, Reason
from schemas.wording import plural
from services.gateway.documents import Document
from services.gateway.documents.jobs import why_waiting
from services.gateway.documents.promised_waits import moment, span
from services.gateway.documents.queueing import Queueing, named
from services.gateway.documents.queues import held_shares
from services.gateway.documents.user_limits import width_of
from services.gateway.view.jobs import AFTER_JOBS, LiveJob, waiting_of
from services.gateway.view.pending import Pending
from services.gateway.view.releases import run_ms_of
from services.gateway.view.starts import Starts
from services.gateway.view.state import State
from services.gateway.view.user_tasks import counts_for
from services.gateway.why.room import Census, census, less_texts

NODES_NAMED_MAX = 3
ALSO, BEHIND = "and also: ", "behind that: "
LIMITS = ("queue_max", "user_running_max", "running_limit", "running_max")
RESERVED = ("lease", "promise_used")
"""Tasks of reserved jobs that wait for these may have what is free."""
BARRED = (*RESERVED, "promised", "spread", "failed_there", "pool")
"""Where there may be room, and not for them."""
NEED_ROOM_TOO = ("no_room", "gang_no_room", "labels", "kept", "pool", "behind_head", "spread", "failed_there")


class Waits:
    """Answers about one state of the view, which must not change while this is in use."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._queueing = Queueing(state)
        self._pending = Pending(state)
        self.starts = Starts(state, self._pending)

    def of_stage(self, job: LiveJob, at: int) -> list[Document]:
        """Why tasks of a stage wait, the main reason first; none: none waits."""
        waiting = waiting_of(job, at)
        if not waiting:
            return []
        found = []
        for said in why_waiting(self._state, self._queueing, job, at, waiting, whole=True):
            found += self._reasons(job, at, said)
        found += self._behind(job, at, found)
        for row in found:
            if names := self._named_nodes(row["text"]):
                row["numbers"]["named_nodes"] = names
        return found

    def _named_nodes(self, text: str) -> list[str]:
        """The nodes that a sentence names."""
        words = dict.fromkeys(word.strip(",;:()") for word in text.split())
        return [word for word in words if word in self._state.nodes]

    def _reasons(self, job: LiveJob, at: int, said: Document) -> list[Document]:
        """A reason of the gateway's, behind it what is found when the nodes are looked at."""
        word, tasks = said["reason"], said["tasks"]
        stage = job.graph.stages[at]
        row: Document = {
            "reason": word,
            "text": said["text"],
            "numbers": {"stage": stage.stage, "tasks": tasks},
            "unblocks": [],
        }
        if word in ("no_room", "gang_no_room", "no_node", "pool", "spread", "failed_there", "locality", "behind_head"):
            return self._of_room(job, at, row)
        numbers, unblocks = self._others(job, at, word)
        row["numbers"] |= numbers
        row["unblocks"] = unblocks or [REASONS[word].action]
        return [row]

    # ---------------------------------------------------------------- room
    def _of_room(self, job: LiveJob, at: int, row: Document) -> list[Document]:
        stage, word = job.graph.stages[at], row["reason"]
        found = self._census(job, at)
        row["numbers"] |= found.numbers() | {"share": self.share_by_level(job.spec.queue)}
        row["unblocks"] = self._room_unblocks(job, at, word, found)
        finer = found.finer(stage.tasks if stage.gang else 1) if word in ("no_room", "gang_no_room") else None
        if finer is None:
            return [row]
        help_text = [REASONS[finer].action]
        if finer == "labels":
            text = self._labels_text(job, at, found)
            help_text = [f"without {_labels(stage.labels)} it fits on {plural(found.labels_room, 'place')}"]
        elif finer == "kept":
            text = self._kept_text(found)
        else:
            text = f"the nodes that have room run tasks beside which its anti_affinity bars it: {found.barred_room}"
        first = {"reason": finer, "text": text, "numbers": dict(row["numbers"]), "unblocks": help_text}
        return [first, row]

    def _labels_text(self, job: LiveJob, at: int, found: Census) -> str:
        stage = job.graph.stages[at]
        others = f"{plural(found.labels, 'other node')} {'has' if found.labels == 1 else 'have'} room for it"
        able = sum(group.nodes for group in found.groups.values())
        return f"only {plural(able, 'node')} with {_labels(stage.labels)} could run it and none has room; {others}"

    def _kept_text(self, found: Census) -> str:
        names = found.kept_nodes
        more = f" and {len(names) - NODES_NAMED_MAX} more" if len(names) > NODES_NAMED_MAX else ""
        kept = self._state.kept.get(names[0]) or self._state.vacated[names[0]]
        what = {"gang": "a gang", "promise": "a reservation"}.get(kept.why, "a larger task")
        return f"there is room on {', '.join(names[:NODES_NAMED_MAX])}{more}, but it is gathered for {what}"

    def _room_unblocks(self, job: LiveJob, at: int, word: Reason, found: Census) -> list[str]:
        stage = job.graph.stages[at]
        texts = less_texts(found, stage) if word in ("no_room", "gang_no_room") else []
        if word == "no_node":
            texts += [
                f"less {kind}: {plural(nodes, 'node')} {'has' if nodes == 1 else 'have'} too little of it"
                for kind, nodes in sorted(found.small.items())
            ]
            if found.labels:
                texts.append(f"other labels: {plural(found.labels, 'node')} {_lack(found.labels)} what it asks for")
            if found.closed:
                texts.append(f"{plural(found.closed, 'node')} that {_takes(found.closed)} no tasks now")
        elif word in ("spread", "failed_there", "locality", "behind_head", "pool"):
            texts.append(REASONS[word].action)
        elif ends := self._ends_text(job, at, word):
            texts.append(ends)
        return texts or [REASONS[word].action]

    def _ends_text(self, job: LiveJob, at: int, word: Reason) -> str:
        """Which tasks end first, and where the room is that is waited for."""
        start = self.starts.of(job, at, word)
        if start is None:
            return ""
        in_ms = start.earliest_ms - self._state.time
        if in_ms <= 0:
            return ""
        return f"running tasks end: there is room in about {span(in_ms)} at the earliest"

    def share_by_level(self, queue: str) -> list[Document]:
        """What a queue and those above it hold and are due, leaf first."""
        paths = [path for path in upwards(queue) if path in self._state.shares]
        held = held_shares(self._state, paths)
        return [
            {
                "queue": path,
                "held": held[path] / SHARE_UNITS,
                "fair": self._state.shares[path].fair / SHARE_UNITS,
                "guaranteed": self._state.shares[path].guaranteed / SHARE_UNITS,
            }
            for path in paths
        ]

    # ---------------------------------------------------------------- what comes behind the main reason
    def _behind(self, job: LiveJob, at: int, found: list[Document]) -> list[Document]:
        """Of a limit, of a reservation that has nothing for it now, and of rules that bar nodes: that nodes are full,
        or their room is gathered for others, which holds the tasks back, too (`also`). Of full nodes, a limit that what
        waits below it goes beyond: it would be next (`behind`).
        """
        words = [row["reason"] for row in found]
        rows: list[Document] = []
        if words[0] in LIMITS:
            rows += self._limits_also(job, at, found[0])
            room = self._census(job, at)
            if full := self._full_also(job, at, room):
                rows += full
            elif short := self._short_behind(job, at, found[0]["numbers"].get("queue"), room):
                rows.append(short)
        elif words[0] in BARRED:
            rows += self._full_also(job, at, self._census(job, at, words[0]))
        if words[0] in NEED_ROOM_TOO:
            rows += self._limits_behind(job, at)
        main = words[0], found[0]["numbers"].get("queue")
        return [row for row in rows if row["reason"] not in words or _limit_of(row) not in (None, main)]

    def _full_also(self, job: LiveJob, at: int, room: Census) -> list[Document]:
        """Full nodes, or room that is gathered for others, where that holds the tasks back, too."""
        stage = job.graph.stages[at]
        needed = stage.tasks if stage.gang else 1
        if room.room - room.kept_room >= needed:
            return []
        word: Reason = "kept" if room.room >= needed else "gang_no_room" if stage.gang else "no_room"
        return [self._row(job, at, word, f"{ALSO}{REASONS[word].means}", {"also": True} | room.numbers())]

    def _census(self, job: LiveJob, at: int, word: str = "") -> Census:
        row = self._state.reservations.get(job.spec.reservation or "")
        promised = row is not None and row.state == "accepted" and word not in RESERVED
        barred = None if word == "spread" else self._barred(job, at)
        gathered = {**self._state.vacated, **self._state.kept}
        if word == "promised":  # What is gathered for a promise is that same reason.
            gathered = {name: held for name, held in gathered.items() if held.why != "promise"}
        return census(self._state, job.graph.stages[at], gathered=gathered, promised=promised, barred=barred)

    def _barred(self, job: LiveJob, at: int) -> dict[str, int] | None:
        """The nodes on which the anti-affinity of a stage allows no further task; None: it has none."""
        rule = job.graph.stages[at].anti_affinity
        if rule is None or not rule.required:
            return None
        if not rule.group:
            return job.nodes[at]
        found: dict[str, int] = {}
        for other in self._state.jobs.values():
            if other.spec.queue == job.spec.queue:
                for place, stage in enumerate(other.graph.stages):
                    if stage.anti_affinity is not None and stage.anti_affinity.group == rule.group:
                        found |= other.nodes[place]
        return found

    def _limits_also(self, job: LiveJob, at: int, main: Document) -> list[Document]:
        """Further limits that are reached, too."""
        spec, stage = job.spec, job.graph.stages[at]
        named_already = [main["numbers"].get("queue")] if main["reason"] == "queue_max" else []
        rows = []
        for each in self._queueing.limits(spec.queue, stage):
            if each.held + each.asked > each.most and each.queue not in named_already:
                named_already.append(each.queue)
                numbers: Document = {"also": True, "queue": each.queue, "resource": each.resource}
                text = f"{ALSO}{each.text()} and holds {each.amount(each.held)}"
                rows.append(self._row(job, at, "queue_max", text, numbers))
        limit = self._queueing.users.of(spec.queue, spec.user) if counts_for(self._state, job) else None
        if limit is not None and limit.free < width_of(stage) and main["reason"] != "user_running_max":
            numbers = {"also": True, "queue": limit.queue, "user": limit.user}
            rows.append(self._row(job, at, "user_running_max", f"{ALSO}{limit.text(width_of(stage))}", numbers))
        return rows

    def _short_behind(self, job: LiveJob, at: int, queue: str | None, room: Census) -> Document | None:
        """There is room now, and less than all that waits for the same limit of a queue asks for."""
        stage = job.graph.stages[at]
        if queue is None:
            return None
        free: Vector = {}
        for group in room.groups.values():
            for kind, amount in group.free.items():
                free[kind] = free.get(kind, 0) + amount
        for kind, amount in sorted(counted_demand(self._state.policy, stage.demand).items()):
            wanted = self._demand(queue, kind) if amount else 0
            if wanted > free.get(kind, 0):
                word: Reason = "gang_no_room" if stage.gang else "no_room"
                numbers: Document = {"behind": True, "resource": kind, "waiting": quantity_text(kind, wanted)}
                text = f"{BEHIND}{numbers['waiting']} of {kind} waits in {named(queue)}, and "
                text += f"{quantity_text(kind, free.get(kind, 0))} is free where it could run"
                return self._row(job, at, word, text, numbers)
        return None

    def _limits_behind(self, job: LiveJob, at: int) -> list[Document]:
        spec, stage = job.spec, job.graph.stages[at]
        rows = []
        limit = self._queueing.users.of(spec.queue, spec.user) if counts_for(self._state, job) else None
        if limit is not None and self._asked(limit.queue, spec.user) > limit.free:
            numbers: Document = {"behind": True, "queue": limit.queue, "user": limit.user}
            numbers |= {"most": limit.most, "running": limit.tasks}
            text = f"{BEHIND}{limit.text(width_of(stage))}"
            rows.append(self._row(job, at, "user_running_max", text, numbers))
        for each in self._queueing.limits(spec.queue, stage):
            wanted = self._demand(each.queue, each.resource)
            if each.held + wanted > each.most:
                numbers = {"behind": True, "queue": each.queue, "resource": each.resource}
                numbers["waiting"] = each.amount(wanted)
                text = f"{BEHIND}{each.text()} and holds {each.amount(each.held)}; {each.amount(wanted)} of it waits"
                rows.append(self._row(job, at, "queue_max", text, numbers))
                break
        return rows

    def _row(self, job: LiveJob, at: int, word: Reason, text: str, numbers: Document) -> Document:
        numbers = {"stage": job.graph.stages[at].stage} | numbers
        return {"reason": word, "text": text, "numbers": numbers, "unblocks": [REASONS[word].action]}

    def _asked(self, queue: str, user: str) -> int:
        return sum(tasks for job, _, tasks in self._pending.below(queue) if job.spec.user == user)

    def _demand(self, queue: str, resource: str) -> int:
        policy = self._state.policy
        return sum(
            counted_demand(policy, job.graph.stages[at].demand).get(resource, 0) * tasks
            for job, at, tasks in self._pending.below(queue)
        )

    # ---------------------------------------------------------------- everything else
    def _others(self, job: LiveJob, at: int, word: Reason) -> tuple[Document, list[str]]:
        state, spec, stage = self._state, job.spec, job.graph.stages[at]
        if word == "after":
            left = {
                name: job.progress.left[job.graph.position[name]]
                for name in stage.after
                if job.progress.left[job.graph.position[name]]
            }
            return {"left": left}, [
                f"stage {name} ends: {plural(tasks, 'task')} to go{self._stage_end(job, name)}"
                for name, tasks in left.items()
            ]
        if word == "held" and job.hold is not None:
            others = [f"job {each.job} ends" for each in spec.after_jobs if each.job in state.jobs]
            ways = others if job.hold.by == AFTER_JOBS and others else [f"largesse release {spec.job}"]
            return {"by": job.hold.by, "since_ms": job.hold.since_ms}, ways
        if word == "running_limit":
            return self._running_limit(job)
        if word == "queue_max":
            return self._queue_max(job, at)
        if word == "user_running_max":
            limit = self._queueing.users.of(spec.queue, spec.user)
            if limit is not None:
                numbers = {"queue": limit.queue, "user": limit.user, "most": limit.most, "running": limit.tasks}
                return numbers, [
                    f"tasks of the user end in {named(limit.queue)}",
                    f"raise user_running_max of {named(limit.queue)}",
                ]
        if word == "back_off":
            in_ms = max(0, job.retry_ms[at] - state.time)
            return {"until_ms": job.retry_ms[at], "failed_attempts": job.failed[at]}, [
                f"the pause ends in {span(in_ms)}",
                REASONS[word].action,
            ]
        if word == "running_max":
            return {"most": stage.running_max}, [f"raise running_max of stage {stage.stage}"]
        if word in ("lease", "promise_used", "promised"):
            return self._promise(job, at)
        return {}, []

    def _stage_end(self, job: LiveJob, name: str) -> str:
        at = job.graph.position[name]
        run_ms = run_ms_of(job, at)
        return f", each about {span(run_ms)}" if run_ms else ""

    def _running_limit(self, job: LiveJob) -> tuple[Document, list[str]]:
        running = self._state.running_limits
        full = queue_at_limit(running, job.spec.queue)
        if full is None or job.spec.job not in running.leaf:
            return {}, []
        ahead = self._queueing.ahead_of(job, full)
        numbers = {"queue": full, "most": running.limits[full], "ahead": ahead}
        return numbers, [
            f"{plural(ahead + 1, 'job')} of {named(full)} {'ends' if not ahead else 'end'}",
            f"raise running_jobs_max of {named(full)}",
            f"largesse change {job.spec.job} --priority N lets it go before others",
        ]

    def _queue_max(self, job: LiveJob, at: int) -> tuple[Document, list[str]]:
        stage, limits = job.graph.stages[at], self._queueing.limits(job.spec.queue, job.graph.stages[at])
        if not limits:
            return {}, []
        tight = next((each for each in limits if each.held + each.asked > each.most), None)
        tight = tight or min(limits, key=lambda each: each.most - each.held - each.asked)
        numbers = {
            "queue": tight.queue,
            "resource": tight.resource,
            "max": tight.amount(tight.most),
            "held": tight.amount(tight.held),
            "asked": tight.amount(tight.asked),
        }
        texts = [f"raise max of {tight.resource} of {named(tight.queue)}"]
        if tight.asked > tight.most:
            return numbers, [*texts, f"ask for {quantity_text(tight.resource, tight.most)} of {tight.resource} or less"]
        missing = tight.held + tight.asked - tight.most
        if missing > 0:
            ends = self.starts.ends(tight.queue)
            when = f", the first in about {span(ends[0] - self._state.time)}" if ends else ""
            amount = tight.amount(missing)
            texts.append(f"tasks of {named(tight.queue)} end that hold {amount} of {tight.resource}{when}")
            free = tight.most - tight.held
            each = tight.asked // (stage.tasks if stage.gang else 1)
            if not stage.gang and 0 < free < each:
                texts.append(f"{tight.amount(missing)} less {tight.resource} fits below the max")
        return numbers, texts

    def _promise(self, job: LiveJob, at: int) -> tuple[Document, list[str]]:
        state, spec = self._state, job.spec
        wait = state.promised.get(f"{spec.job}/{spec.stages[at].stage}")
        if wait is not None:
            numbers = {"reservation": wait.reservation, "from_ms": wait.from_ms, "until_ms": wait.until_ms}
            texts = [f"the lease of {wait.reservation} ends at {moment(wait.until_ms)}"]
            if wait.needs_ms is None:
                texts.append("revocable: auto lets it start before")
            elif wait.from_ms > state.time:
                texts.append(f"an estimate below {span(wait.from_ms - state.time)} lets it end before the lease")
            return numbers, texts
        row = state.reservations.get(spec.reservation or "")
        if row is None:
            return {}, []
        coming = [step.from_ms for step in row.steps if step.from_ms > state.time]
        numbers = {"reservation": row.reservation, "begins_ms": min(coming, default=None)}
        return numbers, [f"a lease of {row.reservation} begins at {moment(min(coming))}"] if coming else []


def _limit_of(row: Document) -> tuple[str, str] | None:
    """Which limit of a queue a reason is about; None: of none."""
    queue = row["numbers"].get("queue")
    return (row["reason"], queue) if row["reason"] in LIMITS and queue is not None else None


def _labels(labels: dict[str, str]) -> str:
    each = sorted(labels.items())
    return ", ".join("a container engine" if key == ENGINE_LABEL else f"{key}={value}" for key, value in each)


def _lack(nodes: int) -> str:
    return "lacks" if nodes == 1 else "lack"


def _takes(nodes: int) -> str:
    return "takes" if nodes == 1 else "take"
