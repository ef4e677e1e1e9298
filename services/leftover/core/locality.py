"""Delay scheduling: tasks wait a bounded time for nodes with the labels that they prefer (Zaharia et al., EuroSys 2010,
section 3).

A task begins to wait in the first round in which it could have started elsewhere. Tasks of a stage are alike, so it
suffices to keep how many began to wait at which time: the longest-waiting start first, and as many tasks as have waited
for `locality_wait_ms` may go anywhere. (In the paper a job's wait starts over when one of its tasks starts on a
preferred node; then a task could wait without bound.) Jobs of accepted reservations do not wait: their room is promised
for a certain time.
"""

from schemas import Grant, HeldRoom, LocalityWait, Policy, Stage, StageAsk
from services.leftover.core.job import Job
from services.leftover.core.round import Round
from services.leftover.core.state import State
from services.leftover.placement.barred import elsewhere, rooms_on
from services.leftover.placement.board import Board
from services.leftover.placement.pending_reasons import reason_of, seeking_jobs
from services.leftover.placement.task_class import TaskClass


def wait_ms(policy: Policy, stage: Stage) -> int:
    """How long a task of a stage waits for the nodes that it prefers, in ms."""
    if not stage.prefer:
        return 0
    return policy.locality_wait_ms if stage.locality_wait_ms is None else stage.locality_wait_ms


def over(state: State, name: str, stage: Stage) -> int:
    """How many tasks of a job's stage have waited long enough by the last opening."""
    until_ms = state.opened_ms - wait_ms(state.policy, stage)
    return sum([tasks for since_ms, tasks in state.delays.get(name, {}).get(stage.stage, []) if since_ms <= until_ms])


def parts_of(stage: Stage, ask: StageAsk, free: dict[str, int]) -> list[tuple[int, int, bool]]:
    """An ask as (first, count, near): first those tasks that go anywhere, of which `free` has so many more by stage."""
    anywhere = min(free[stage.stage], ask.count)
    if stage.gang and anywhere:
        anywhere = ask.count
    free[stage.stage] = max(0, free[stage.stage] - anywhere)
    parts = [(ask.first, anywhere, False), (ask.first + anywhere, ask.count - anywhere, True)]
    return [part for part in parts if part[1]]


def next_over_ms(state: State, name: str, job: Job) -> int | None:
    """When the next of a job's waits is over that is not over at the last opening."""
    found: int | None = None
    for stage_name, entries in state.delays.get(name, {}).items():
        stage = job.graph.stages[job.graph.position[stage_name]]
        for since_ms, _ in entries:
            at_ms = since_ms + wait_ms(state.policy, stage)
            if at_ms > state.opened_ms and (found is None or at_ms < found):
                found = at_ms
    return found


# ---------------------------------------------------------------- a round
def note_delays(round_: Round) -> None:
    """Which tasks begin to wait for nodes that they prefer, by what the round has placed, and which room they leave
    free.
    """
    state, board = round_.state, round_.board
    begun: dict[tuple[str, str], int] = {}
    rooms: dict[int, HeldRoom] = {}
    for task in board.classes.near():
        if reason_of(board, task) == "locality":
            could = _could_start(round_, task, elsewhere(round_.table, task), rooms)
            for (name, stage), tasks in could.items():
                begun[name, stage] = tasks - _known(state, board, task, name, stage)
    if begun:
        for placed in round_.placements:  # They take off as many, once they are bound.
            if (placed.job, placed.stage) in begun:
                begun[placed.job, placed.stage] += placed.count
    begun = {key: tasks for key, tasks in begun.items() if tasks > 0}
    waits = [LocalityWait(job, stage, begun[job, stage]) for job, stage in sorted(begun)]
    round_.delayed = waits
    round_.held += _said_of(state, rooms)
    round_.wakes_ms.append(_wake_ms(state, waits, round_.now_ms))


def _could_start(
    round_: Round, task: TaskClass, nodes: list[int], rooms: dict[int, HeldRoom]
) -> dict[tuple[str, str], int]:
    """By job and stage, how many tasks of a class could start on some nodes. Notes what of these they leave free."""
    board, table, fitting = round_.board, round_.table, task.gang
    for number in nodes:
        count = rooms_on(table, task, number, task.waiting)
        fitting += 0 if task.gang else count
        if number not in rooms:
            room = {kind: amount * count for kind, amount in task.demand.items() if amount}
            like = (task.demand, task.labels, task.prefer, task.gang)
            rooms[number] = HeldRoom(table.node(number).name, "locality", room, *like, count)
            rooms[number].rules = task.bounds.said if task.bounds is not None else []
    could: dict[tuple[str, str], int] = {}
    for job in seeking_jobs(board, task):
        for span in job.spans:
            if span.task is task:
                key = job.name, span.stage
                could[key] = min(fitting, could.get(key, 0) + span.count)
    return could


def _known(state: State, board: Board, task: TaskClass, name: str, stage: str) -> int:
    """How many tasks of a stage are known to wait, without those that may go anywhere and find no room."""
    known = sum([tasks for _, tasks in state.delays.get(name, {}).get(stage, [])])
    return known - sum([s.count for s in board.jobs.spans_in(name) if s.stage == stage and s.task is not task])


def _said_of(state: State, rooms: dict[int, HeldRoom]) -> list[HeldRoom]:
    """Nodes whose room left free for waiting tasks has changed, sorted by name."""
    after = {held.node: held for held in rooms.values()}
    gone = {name: HeldRoom(name, "locality", {}) for name in state.awaited if name not in after}
    changed = {name: held for name, held in after.items() if state.awaited.get(name) != held}
    return [held for _, held in sorted({**gone, **changed}.items())]


def _wake_ms(state: State, begun: list[LocalityWait], now_ms: int) -> int | None:
    found: int | None = None
    for name in state.delays:
        at_ms = next_over_ms(state, name, state.jobs[name])
        if at_ms is not None and (found is None or at_ms < found):
            found = at_ms
    for wait in begun:
        graph = state.jobs[wait.job].graph
        at_ms = now_ms + wait_ms(state.policy, graph.stages[graph.position[wait.stage]])
        found = at_ms if found is None else min(found, at_ms)
    return found


# ---------------------------------------------------------------- folding
def begin(state: State, waits: list[LocalityWait], time: int) -> None:
    """Tasks begin to wait."""
    for wait in waits:
        if wait.job in state.on_hold:
            continue  # It is held since.
        job = state.jobs.get(wait.job)
        if job is not None and job.admitted < state.opened:  # Else another job had the name.
            entries = state.delays.setdefault(wait.job, {}).setdefault(wait.stage, [])
            entries.append([time, wait.tasks])
            _stir(state, wait.job)


def start(state: State, grant: Grant) -> None:
    """Tasks start: those that waited longest wait no more."""
    stages = state.delays.get(grant.job)
    if stages is None or grant.stage not in stages:
        return
    entries, left = stages[grant.stage], grant.count
    while entries and left:
        some = min(left, entries[0][1])
        left -= some
        entries[0][1] -= some
        if not entries[0][1]:
            entries.pop(0)
    if not entries:
        del stages[grant.stage]
        if not stages:
            del state.delays[grant.job]
    _stir(state, grant.job)


def forget(state: State, name: str) -> None:
    """The job is over."""
    state.delays.pop(name, None)
    if state.board is not None:
        state.board.delays.forget(name)


def _stir(state: State, name: str) -> None:
    """The next round tells the board again what the job waits for."""
    if state.board is not None:
        state.board.delays.end_at(name, 0)
