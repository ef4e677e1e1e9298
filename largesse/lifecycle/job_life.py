"""The life of a live job's tasks: what a success or a failure changes, what is retried when, when a gang starts over.

The one state machine behind every core that follows jobs. Its state is `JobLife` (state.py), which the classes of jobs
of the cores extend; `succeed` and `fail` are its transitions, and what they return tells a core what follows for what
it keeps itself. Rules (docs/jobs.md; docs/lifecycle.md): a stage may run when its parents have ended; only `exit_code`,
`timeout`, `cannot_start` and `memory` count against `retries` and are followed by a back-off; LOST_ATTEMPTS_MAX `lost`
attempts in a row fail the task; a gang shares one attempt, which ends for all of it when one task ends without
success, and is retried as a whole once nothing of that attempt runs any more. A failure that a rule of the stage's
`retry` names counts against that rule alone. A task (a gang as a whole) whose tries
are used up has failed for good: a stage with more such tasks than its `max_failed` has failed, which ends the job, or
with `on_failure: continue` skips the stages after it while the others go on.
"""

from typing import Final, Literal

from largesse.lifecycle.dag import end_tasks, own, skip_after
from largesse.lifecycle.state import JobLife, Tries
from schemas.jobs import RetryRule
from schemas.policy import Policy
from schemas.retries import pause_ms, rule_at
from schemas.tasks import Failure

LOST_ATTEMPTS_MAX: Final = 10
"""So many attempts of one task that end `lost` in a row fail it: something about it kills nodes."""

COUNTED: tuple[Failure, ...] = ("exit_code", "timeout", "cannot_start", "memory")
"""Failures that count against a stage's retries."""

DOUBLINGS_MAX: Final = 32
"""A back-off is doubled so often at most: `retry_backoff_ms_max` cuts it off long before."""

AfterFailure = Literal["again", "given_up", "over"]
"""What follows a failure: its task (its gang) is retried; it has failed for good and the job goes on (`give_up`); the
job has failed."""


def succeed(job: JobLife, at: int, count: int, attempt: int) -> list[int] | None:
    """`count` tasks of stage `at` have succeeded in this attempt. Returns the positions of the stages that may run from
    now on; None where it counts for nothing, since another task of the gang has ended that attempt.
    """
    graph = job.graph
    if job.tries is not None and graph.stages[at].gang and is_broken(job.tries, at, attempt):
        return None
    progress = job.progress = own(graph, job.progress)
    if has_failed(job, at):
        progress.left[at] -= count
        return []
    return end_tasks(graph, progress, at, count)


def fail(job: JobLife, at: int, index: int, attempt: int, reason: Failure, exit_code: int | None) -> AfterFailure:
    """One attempt of task `index` of stage `at` has ended without success: whether the task is retried.

    The first failure in a gang's attempt ends it for all: what had succeeded in it counts no more. Later ones in the
    same attempt count for nothing.
    """
    tries = job.tries
    if tries is None:
        tries = job.tries = Tries()
    stage = job.graph.stages[at]
    if stage.gang:
        if not end_gang_attempt(tries.broken, str(at), attempt):
            return "again"
        tries.broken_by[str(at)] = reason
        progress = job.progress = own(job.graph, job.progress)
        progress.left[at] = stage.tasks
    key = f"{at}/{0 if stage.gang else index}"
    if stage.retry and (after := _by_rule(job, tries, at, key, reason, exit_code)) is not None:
        return after
    if reason in COUNTED:
        tries.lost.pop(key, None)
        failed = tries.failed[key] = tries.failed.get(key, 0) + 1
        return _for_good(job, tries, at, key) if failed > stage.retries else "again"
    if reason == "lost":
        lost = tries.lost[key] = tries.lost.get(key, 0) + 1
        return _for_good(job, tries, at, key) if lost >= LOST_ATTEMPTS_MAX else "again"
    return "again"


def _by_rule(
    job: JobLife, tries: Tries, at: int, key: str, reason: Failure, exit_code: int | None
) -> AfterFailure | None:
    """What follows a failure by the first rule that names it; None: by no rule."""
    rules = job.graph.stages[at].retry
    rule = rule_at(rules, reason, exit_code)
    if rule is None:
        tries.rule.pop(key, None)
        return None
    tries.rule[key] = rule
    tries.lost.pop(key, None)
    counted = f"{key}/{rule}"
    failed = tries.ruled[counted] = tries.ruled.get(counted, 0) + 1
    return _for_good(job, tries, at, key) if failed > rules[rule].limit else "again"


def _for_good(job: JobLife, tries: Tries, at: int, key: str) -> AfterFailure:
    """A task, or a gang, has used up its tries."""
    stage = job.graph.stages[at]
    failed = tries.given_up.get(str(at), 0) + (stage.tasks if stage.gang else 1)
    if failed > stage.max_failed and stage.on_failure == "fail":
        return "over"
    tries.given_up[str(at)] = failed
    tries.failed.pop(key, None)
    tries.lost.pop(key, None)
    if stage.retry:
        tries.rule.pop(key, None)
        for rule in range(len(stage.retry)):
            tries.ruled.pop(f"{key}/{rule}", None)
    return "given_up"


def give_up(job: JobLife, at: int) -> list[int]:
    """A task (a gang) of stage `at` has ended as `given_up`. Returns the positions of the stages that may run from now
    on.
    """
    stage = job.graph.stages[at]
    progress = job.progress = own(job.graph, job.progress)
    if not has_failed(job, at):
        return end_tasks(job.graph, progress, at, 1)
    progress.left[at] -= stage.tasks if stage.gang else 1
    skip_after(job.graph, progress, at)
    return []


def given_up(job: JobLife, at: int) -> int:
    """How many tasks of the stage have failed for good."""
    return 0 if job.tries is None else job.tries.given_up.get(str(at), 0)


def has_failed(job: JobLife, at: int) -> bool:
    """Whether more tasks of the stage have failed for good than may, in a job that goes on."""
    return job.tries is not None and job.tries.given_up.get(str(at), 0) > job.graph.stages[at].max_failed


def is_gang_given_up(job: JobLife, at: int) -> bool:
    """Whether the stage is a gang that has failed for good; tasks of it may still run."""
    return has_failed(job, at) and job.graph.stages[at].gang


def is_skipped(job: JobLife, at: int) -> bool:
    """Whether the stage never runs, since one that it comes after has failed."""
    return not job.progress.left[at] and job.progress.parents[at] > 0


def end_gang_attempt(broken: dict[str, int], gang: str, attempt: int) -> bool:
    """A task of a gang has ended without success in this attempt: whether it is the first to do so, which ends the
    attempt for all. `broken`: by gang, the last attempt that ended so; it is brought up to date.
    """
    if attempt <= broken.get(gang, 0):
        return False
    broken[gang] = attempt
    return True


def is_broken(tries: Tries | None, at: int, attempt: int) -> bool:
    """Whether a gang's attempt has ended already, so that what its other tasks report counts for nothing."""
    return tries is not None and attempt <= tries.broken.get(str(at), 0)


def failures_of(job: JobLife, at: int, index: int) -> int:
    """How many failures of the task (or its gang) have counted so far."""
    if job.tries is None:
        return 0
    return job.tries.failed.get(f"{at}/{0 if job.graph.stages[at].gang else index}", 0)


def backoff_ms(policy: Policy, job: JobLife, at: int, index: int, reason: Failure) -> int:
    """How long the task whose attempt has just ended for this reason waits before it is asked for again, in ms: after a
    failure that counts `retry_backoff_ms`, doubled with each one up to `retry_backoff_ms_max`; else 0. After one that
    a rule names, as that rule says.
    """
    if job.tries is not None and job.graph.stages[at].retry:
        ruled = rule_of(job, at, index)
        if ruled is not None:
            default_ms = policy.retry_backoff_ms if reason in COUNTED else 0
            return pause_ms(ruled[0], ruled[1], default_ms, policy.retry_backoff_ms_max)
    failures = failures_of(job, at, index) if reason in COUNTED else 0
    if not failures:
        return 0
    return min(policy.retry_backoff_ms_max, policy.retry_backoff_ms << min(failures - 1, DOUBLINGS_MAX))


def rule_of(job: JobLife, at: int, index: int) -> tuple[RetryRule, int] | None:
    """The rule that the latest failure of the task (or its gang) fell under, and how many did so far."""
    stage = job.graph.stages[at]
    key = f"{at}/{0 if stage.gang else index}"
    rule = None if job.tries is None else job.tries.rule.get(key)
    if job.tries is None or rule is None:
        return None
    return stage.retry[rule], job.tries.ruled[f"{key}/{rule}"]


def gang_backoff_ms(policy: Policy, job: JobLife, at: int) -> int:
    """The same for a gang whose attempt is broken, by what broke it. Counts from the end of the attempt's last task."""
    assert job.tries is not None, f"{job.graph.stages[at].stage}: no attempt of it has failed"
    return backoff_ms(policy, job, at, 0, job.tries.broken_by[str(at)])


def next_gang_attempt(job: JobLife, at: int) -> int:
    """The number of the attempt that follows a gang's broken one."""
    assert job.tries is not None, f"{job.graph.stages[at].stage}: no attempt of it has failed"
    return job.tries.broken[str(at)] + 1
