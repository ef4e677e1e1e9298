"""What becomes of one input: the log record it turns into, or none if it changes nothing.

`judge` is a pure function of the running fold, the input as it was read at the edge, and log time. A refusal is a
record.
"""

from collections import Counter
from dataclasses import replace

from largesse.lifecycle.queue_rules import queue_problem
from largesse.lifecycle.task_keys import task_key
from schemas import (
    AttemptsKnown,
    ConfigChanged,
    InputRefused,
    InputRepeated,
    JobAdmitted,
    JobCancelled,
    JobChanged,
    JobRejected,
    JobRerun,
    JobSpec,
    NodeDrained,
    NodeLost,
    NodeRegistered,
    NodeRemoved,
    NodeReported,
    PlanProposed,
    Policy,
    ReservationDeleted,
    ReservationRequested,
    ReservationUpdated,
    RoundAbandoned,
    SeriesEnded,
    SeriesRequested,
    SpareAttempt,
    TaskFailed,
    TaskFinished,
    TaskRange,
    TaskStarted,
    TokenMade,
    TokenRevoked,
)
from schemas.edge.jobs import RoutedJob
from schemas.edge.nodes import NodeLeft
from schemas.edge.read import ConfigPatch
from schemas.jobs import Rejection
from schemas.knobs import knob_conflict, with_knobs
from schemas.nodes import KnownAttempt, devices_of, out_of
from schemas.queue_tree import stranded, tree_conflict, with_default
from schemas.registry import LogBody
from services.admission.core.access import judge_revoked, judge_token
from services.admission.core.after_jobs import dependency_problem, held_spec
from services.admission.core.changes import is_same, judge_change, why_begun
from services.admission.core.classes import judged_class
from services.admission.core.copies import spare_among
from services.admission.core.job_limits import (
    ceiling_problem,
    gang_problem,
    jobs_problem,
    size_problem,
    tasks_problem,
)
from services.admission.core.keys import digest_of, is_free, seen_key, tasks_held_by
from services.admission.core.peaks import counted_of
from services.admission.core.reruns import kept_stages, rerun_problem
from services.admission.core.reservations import (
    judge_deletion,
    judge_proposal,
    judge_request,
    judge_update,
    reservation_problem,
    reserved_queues,
)
from services.admission.core.series import judge_end, judge_series
from services.admission.core.state import LIVE_JOBS_MAX, State
from services.admission.core.task_reports import judge_report, known_parts


def judge(state: State, body: object, author: str, time: int) -> LogBody | None:
    """The body of the log record that an input becomes at log time `time` (ms), or None if it changes nothing."""
    match body:  # What comes most often stands first.
        case TaskStarted() | TaskFinished() | TaskFailed():
            return judge_report(state, body, author)
        case JobSpec():
            return _job(state, body, author, time)
        case RoutedJob():
            return _routed(state, body, author, time)
        case JobRerun():
            return _rerun(state, body, author, time)
        case NodeRegistered():
            return _register(state, body, author)
        case NodeReported():
            return _report(state, body, author)
        case AttemptsKnown():
            return _know(state, body, author)
        case ReservationRequested():
            return judge_request(state, body, author)
        case ReservationUpdated():
            return judge_update(state, body, author)
        case ReservationDeleted():
            return judge_deletion(state, body, author)
        case SeriesRequested():
            return judge_series(state, body, author)
        case SeriesEnded():
            return judge_end(state, body, author)
        case PlanProposed():
            return judge_proposal(state, body, author)
        case JobCancelled():
            return _cancel(state, body, author)
        case JobChanged():
            return judge_change(state, body, author)
        case NodeDrained():
            return _drain(state, body, author)
        case NodeLeft():
            return _leave(state, body, author)
        case NodeRemoved():
            return _remove(state, body, author)
        case ConfigPatch():
            return _config(state, body, author)
        case TokenMade():
            return judge_token(state, body, author, time)
        case TokenRevoked():
            return judge_revoked(state, body, author)
    raise AssertionError(f"no input is a {type(body)}")


def _refused(topic: str, reason: str, field: str, author: str) -> InputRefused:
    return InputRefused(topic, reason, field, 0, "", author)


# ---------------------------------------------------------------- jobs
def _job(
    state: State, spec: JobSpec, author: str, time: int
) -> JobAdmitted | JobRejected | InputRepeated | InputRefused:
    known = state.jobs.get(spec.job)
    ended = state.ended.get(spec.job)
    if ended is not None and is_free(state, ended, time):
        ended = None
    if known is not None or ended is not None:
        if known is not None:
            same = is_same(state, spec.job, known, spec)
        else:
            same = ended is not None and ended.digest == digest_of(spec)
        if same:
            return InputRepeated(spec.job, author, outcome=None if ended is None else ended.outcome)
        return _rejected(spec, "name_taken", "job", f'"{spec.job}" names another job; choose a new name', author)
    if problem := _problem(state, spec):
        reason, field, detail = problem
        return _rejected(spec, reason, field, detail, author)
    if after := dependency_problem(state, spec, time):
        return _refused("jobs", after[1], after[0], author)
    return _admitted(state, spec, author)


def _routed(state: State, body: RoutedJob, author: str, time: int) -> LogBody:
    """A router sends the job elsewhere once it has read that log time here is later, so it may not be admitted then."""
    if time > body.before_ms:
        detail = f"was sent to be admitted up to {body.before_ms} of log time, and it is {time}"
        return _refused("jobs", f'job "{body.spec.job}" {detail}', "before_ms", author)
    return _job(state, body.spec, author, time)


def _problem(state: State, spec: JobSpec) -> tuple[Rejection, str, str] | None:
    """Why a job is refused that is well formed."""
    if len(state.jobs) >= LIVE_JOBS_MAX:
        return "too_many_jobs", "job", f"the cell holds {LIVE_JOBS_MAX} jobs; wait for some to end"
    return (
        tasks_problem(state, spec)
        or queue_problem(state.leaves, state.submitters, spec.queue, spec.user)
        or jobs_problem(state, spec)
        or reservation_problem(state, spec)
        or size_problem(state, spec)
        or ceiling_problem(state, spec)
        or gang_problem(state, spec)
    )


def _admitted(state: State, spec: JobSpec, author: str) -> JobAdmitted:
    counted = counted_of(state, spec)
    admitted = JobAdmitted(spec, judged_class(state, spec), state.policy.class_reference, author, counted=counted)
    return held_spec(state, admitted) if spec.after_jobs else admitted


def _rerun(state: State, body: JobRerun, author: str, time: int) -> JobAdmitted | InputRefused:
    """A refusal keeps what is known of the run before."""
    if refused := rerun_problem(state, body, author, time):
        return refused
    if problem := _problem(state, body.spec):
        return _refused("jobs", problem[2], problem[1], author)
    if after := dependency_problem(state, body.spec, time):
        return _refused("jobs", after[1], after[0], author)
    admitted, ended = _admitted(state, body.spec, author), state.ended[body.spec.job]
    admitted.run, admitted.attempts, admitted.from_stage = ended.run + 1, ended.attempts, body.from_stage
    admitted.kept = kept_stages(ended, body)
    return admitted


def _rejected(spec: JobSpec, reason: Rejection, field: str, detail: str, author: str) -> JobRejected:
    return JobRejected(spec, reason, field, detail, author)


def _cancel(state: State, body: JobCancelled, author: str) -> JobCancelled | InputRefused | None:
    job = state.jobs.get(body.job)
    if job is not None and body.if_unstarted and not job.over:
        why_not = why_begun(state, body.job, job, body.admitted)
        if why_not:
            return _refused("jobs", f'job "{body.job}" {why_not}', "if_unstarted", author)
        return replace(body, admitted=job.seq)
    if not body.if_unstarted and (moved_to := _moved_to(state, body.job)):
        return _refused("jobs", f'job "{body.job}" moves to cell {moved_to}: cancel it there', "cancel", author)
    if job is not None:
        return None if job.over else body
    what = "has ended" if body.job in state.ended else "is not known here"
    return _refused("jobs", f'job "{body.job}" {what}', "cancel", author)


def _moved_to(state: State, name: str) -> str:
    ended = state.ended.get(name)
    return state.moved.get(name, ended.moved_to if ended is not None and name not in state.jobs else "")


# ---------------------------------------------------------------- nodes
def _register(state: State, body: NodeRegistered, author: str) -> NodeRegistered | NodeReported | InputRefused | None:
    node = state.nodes.get(body.node)
    if node is not None and node.epoch == body.epoch and not node.lost:
        report = NodeReported(
            body.node, body.epoch, body.capacity, body.labels, body.devices, author, unschedulable=body.unschedulable
        )
        return _report(state, report, author)
    named = body.attempts
    if body.parts and node is not None and not node.lost:
        before = state.known.get(body.node)
        come = before.parts if before is not None and before.epoch == body.epoch else 0
        if before is None or come != body.parts:
            what = f"{come} of the {body.parts} messages that name attempts before it have come; send all of them again"
            return _refused("nodes", what, "register.parts", author)
        named = before.attempts + named
    known: list[KnownAttempt] = []
    kept: dict[str, bool] = {}
    for attempt in named:
        known += known_parts(state, body.node, attempt, kept)
    lost: list[TaskRange] = []
    if node is not None and not node.lost:
        for held in tasks_held_by(state, body.node):
            if seen_key(state, task_key(held.job, held.stage, held.first), held.attempt) not in kept:
                lost.append(held)
    return replace(body, attempts=known, lost=lost, spare=_spare_of(state, known, lost))


def _spare_of(state: State, known: list[KnownAttempt], lost: list[TaskRange]) -> list[SpareAttempt]:
    """Of what a node held, the ends that do not end their tasks."""
    if not state.copied:
        return []
    ended = [each for each in known if each.state == "failed"]
    spare = spare_among(state, [*ended, *lost], succeeded=False)
    return spare + spare_among(state, [each for each in known if each.state == "succeeded"], succeeded=True)


def _know(state: State, body: AttemptsKnown, author: str) -> AttemptsKnown | InputRefused | None:
    """Attempts named before a registration. Ignored for a node that the log does not know, that is lost, or that is
    registered under this epoch.
    """
    node = state.nodes.get(body.node)
    if node is None or node.lost or node.epoch == body.epoch:
        return None
    before = state.known.get(body.node)
    come = before.parts if before is not None and before.epoch == body.epoch else 0
    if body.part not in (0, come):
        what = f"part {body.part} came, part {come} is next; send all of them again from part 0"
        return _refused("nodes", what, "known.part", author)
    kept: dict[str, bool] = {}
    known = [part for attempt in body.attempts for part in known_parts(state, body.node, attempt, kept)]
    total = sum(part.count for part in known)
    if body.part and before is not None:
        total += sum(part.count for part in before.attempts)
    if total > len(node.holds):
        what = f"names {total} attempts, but {len(node.holds)} are held there: some are named twice"
        return _refused("nodes", what, "known.attempts", author)
    return replace(body, attempts=known)


def _report(state: State, body: NodeReported, author: str) -> NodeReported | InputRefused | None:
    node = state.nodes.get(body.node)
    if node is None or node.lost or node.epoch != body.epoch:
        return _refused(
            "nodes", f'node "{body.node}" is not registered under epoch "{body.epoch}"; register it', "epoch", author
        )
    same = node.capacity == body.capacity and node.labels == body.labels and node.unschedulable == body.unschedulable
    same = same and node.out == out_of(body.devices)
    return None if same and node.devices == devices_of(body.capacity, body.devices) else body


def _drain(state: State, body: NodeDrained, author: str) -> NodeDrained | InputRefused | None:
    node = state.nodes.get(body.node)
    if node is None:
        return _refused("nodes", f'node "{body.node}" is not known here', "drain.node", author)
    same = (node.draining, node.drain_reason) == (body.draining, body.reason if body.draining else "")
    return None if same and body.within_ms is None and not node.drain_ends else body


def _remove(state: State, body: NodeRemoved, author: str) -> NodeRemoved | InputRefused | None:
    node = state.nodes.get(body.node)
    if node is None:
        return _refused("nodes", f'node "{body.node}" is not known here', "remove.node", author)
    if not node.lost:
        detail = f'node "{body.node}" is alive: end its agent first, and wait until the node is lost or has left'
        return _refused("nodes", detail, "remove.node", author)
    return None if body.node in state.removed else body


def _leave(state: State, body: NodeLeft, author: str) -> NodeLost | None:
    """Nothing runs there any more, so the lease need not run out first; an older epoch's message is ignored."""
    node = state.nodes.get(body.node)
    return lose(state, body.node, left=True) if node is not None and node.epoch == body.epoch else None


def lose(state: State, name: str, *, left: bool = False) -> NodeLost | None:
    """The record that a node's lease ran out, or that its agent `left`; None where it is lost already."""
    node = state.nodes[name]
    if node.lost:
        return None
    held = tasks_held_by(state, name)
    return NodeLost(name, node.epoch, held, left, _spare_of(state, [], held))


# ---------------------------------------------------------------- config
def _abandon(state: State, number: int, author: str) -> RoundAbandoned | InputRefused:
    """An operator gives up the open round, which some service cannot answer; what it was asked goes to the next."""
    if state.open is not None and state.open.round == number:
        return RoundAbandoned("operator", author)
    there = f"round {state.open.round} is" if state.open is not None else "none is"
    return _refused("config", f"round {number} is not open; {there}", "abandon_round", author)


def _config(state: State, patch: ConfigPatch, author: str) -> ConfigChanged | RoundAbandoned | InputRefused | None:
    assert patch.skip is None, "where inputs lie is the sequencer's to know (skips.py)"
    assert patch.checkpoint is None, "and so is the log's prefix (closings.py)"
    if patch.abandon_round is not None:
        return _abandon(state, patch.abandon_round, author)
    if patch.initial and state.configured:
        return None
    policy: Policy | None = with_knobs(state.policy, patch.values) if patch.values else None
    if policy is not None and (conflict := knob_conflict(policy, patch.values)):
        return _refused("config", conflict[1], f"set.{conflict[0]}", author)
    if policy == state.policy:
        policy = None
    queues = with_default(patch.queues) if patch.queues is not None else None
    if queues == state.queues:
        queues = None
    if policy is None and queues is None:
        return None
    then = policy or state.policy
    if (queues is not None or then.preset != state.policy.preset) and (
        conflict := tree_conflict(then, queues if queues is not None else state.queues)
    ):
        return _refused("config", conflict[1], "queues" if queues is not None else "set.preset", author)
    if queues is not None and (
        why := stranded(queues, Counter(job.spec.queue for job in state.jobs.values()), state.queues)
        or reserved_queues(state, queues)
    ):
        return _refused("config", why, "queues", author)
    return ConfigChanged(policy, queues, author)
