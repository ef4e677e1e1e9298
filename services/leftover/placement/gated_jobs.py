"""Waiting jobs of users of whom only so many tasks run at a time in a queue (user_limits.py).

What waits for a user's limit is in its bucket as any other, in order, but the bucket is not ready to be served, is none
of those that tell what its leaf asks for, and its tasks do not count as waiting: rounds do not look at it.
"""

from services.leftover.placement.entries import JobEntry
from services.leftover.placement.keys import CLASS_MASK, SEGMENT_BITS, job_class_of
from services.leftover.placement.leaf_queue import LeafEntry
from services.leftover.placement.task_class import TaskClass
from services.leftover.placement.task_span import TaskSpan
from services.leftover.placement.user_limits import Gate, GateKey, UserPlaces, free_places
from services.leftover.placement.waiting_jobs import WaitingJobs


class GatedJobs(WaitingJobs):
    """Waiting jobs, some of them under limits on their user's tasks."""

    def move_placed(self, leaf: LeafEntry, job: JobEntry, span: TaskSpan, count: int) -> None:
        """`count` tasks of a span have been placed: as for all jobs, and the user has so many places less."""
        super().move_placed(leaf, job, span, count)
        if job.places:
            self.count_users(job.places, count)

    def count_users(self, places: tuple[UserPlaces, ...], attempts: int) -> None:
        """So many attempts more of a user run under these limits (fewer, where negative): opens and shuts gates. Cost:
        the classes of tasks that wait there, where the first place comes free or the last is taken; else nothing, but
        where gangs wait.
        """
        for entry in places:
            before = entry.free
            entry.tasks += attempts
            if entry.gates and (entry.gangs or (before > 0) != (entry.free > 0)):
                for key in list(entry.gates):
                    self._turn(key, entry.gates[key])

    # ------------------------------------------------------------ what waits
    def _count_of(self, job: JobEntry, task: TaskClass, count: int) -> None:
        if not job.places:
            self._count_waiting(task, count)
            return
        key = job.leaf.name, job.segment << SEGMENT_BITS | task.index
        gate = self.gates.get(key)
        if gate is None:
            gate = self._new_gate(key, job, task)
        gate.tasks += count
        if not gate.shut:
            self._count_waiting(task, count)

    def _new_gate(self, key: GateKey, job: JobEntry, task: TaskClass) -> Gate:
        gate = self.gates[key] = Gate(task.gang or 1, job.places)
        gate.shut = free_places(gate.places, gate.width) < gate.width
        for entry in job.places:
            entry.gates[key] = gate
            entry.gangs += gate.width > 1
        return gate

    def _forget_gate(self, leaf: LeafEntry, bucket_id: int) -> None:
        gate = self.gates.pop((leaf.name, bucket_id), None) if self.gates else None
        if gate is not None:
            assert not gate.tasks, f"{leaf.name}: tasks wait in a bucket of no jobs"
            for entry in gate.places:
                del entry.gates[leaf.name, bucket_id]
                entry.gangs -= gate.width > 1

    # ------------------------------------------------------------ gates
    def _turn(self, key: GateKey, gate: Gate) -> None:
        shut = free_places(gate.places, gate.width) < gate.width
        if shut == gate.shut:
            return
        leaf, bucket_id = self.leaves[key[0]], key[1]
        task = self.classes[bucket_id & CLASS_MASK]
        self.recheck[task.index] = True
        if shut:
            self.leaf_queue.withdraw(leaf, job_class_of(bucket_id), bucket_id)
            self._count_waiting(task, -gate.tasks)
            self._close(leaf, [bucket_id])
            gate.shut = True
        else:
            self._open(leaf, bucket_id, task, gate)
        if leaf.stopped and (bucket_id >> SEGMENT_BITS) in leaf.stopped:
            self._uncap(leaf, bucket_id)  # It was the head, or may be.
        elif not shut:
            self._offer(leaf, bucket_id, leaf.buckets[bucket_id])
        self._note_turned(leaf)

    def _open(self, leaf: LeafEntry, bucket_id: int, task: TaskClass, gate: Gate) -> None:
        gate.shut = False
        if not task.waiting:
            self._candidates.unblock(task)  # While nobody waited, nodes that got room were not compared with it.
        self._count_waiting(task, gate.tasks)
        task.buckets[leaf.name, bucket_id] = True
        if self.pools.count > 1:
            self.pools.wait(bucket_id, task, 1)
        self.leaf_queue.open_buckets(leaf, {bucket_id: task})

    def _note_turned(self, leaf: LeafEntry) -> None:
        """Other jobs of a leaf than before wait for room."""
