"""Nodes on which attempts fail one after another, whosever they are: nothing says what is wrong there, so they are not
closed, but placed last for a while (services/leftover/placement/cell_nodes.py).

Counted are failures that may be the task's own (COUNTED) and came in a row, without a success on the node in between,
each within FAILING_MS of the next. A node is *failing* once FAILING_AT jobs have failed there, or so many attempts of
jobs whose tasks have succeeded elsewhere meanwhile: a command that fails everywhere says nothing of a node. It is so
until FAILING_MS after the last failure; until an attempt succeeds there; or until its agent starts again.
"""

from dataclasses import dataclass, field
from typing import Final

from mypy_extensions import mypyc_attr

from largesse.lifecycle.job_life import COUNTED
from schemas.tasks import TaskEnd, TaskFailure

FAILING_AT: Final = 3
FAILING_MS: Final = 600_000
JOBS_MAX: Final = 16
"""The jobs that are kept by node as having failed there: those that failed last."""


@dataclass(slots=True)
class JobFailures:
    """Failed attempts of one job on a node. `elsewhere`: a task of it has succeeded on another node since."""

    attempts: int = 0
    last_ms: int = 0
    elsewhere: bool = False


@mypyc_attr(allow_interpreted_subclasses=True)
@dataclass(slots=True)
class NodeFailures:
    """What has failed on a node in a row, by job, the last at the end. `until_ms`: until then it is failing; 0: it is
    not.
    """

    jobs: dict[str, JobFailures] = field(default_factory=dict)
    until_ms: int = 0


# `failures`: by node; none of a node on which nothing has failed since the last success.
def note_failure(failures: dict[str, NodeFailures], failed: TaskFailure, now: int) -> bool:
    """Attempts have failed. Returns whether the node has begun to be failing."""
    if failed.reason not in COUNTED:
        return False
    node = failures.setdefault(failed.node, NodeFailures())
    before = node.until_ms > 0
    for name in [name for name, known in node.jobs.items() if known.last_ms + FAILING_MS <= now]:
        del node.jobs[name]
    known = node.jobs.pop(failed.job, None)
    if known is None:
        known = JobFailures()
    known.attempts += failed.count
    known.last_ms = now
    node.jobs[failed.job] = known
    if len(node.jobs) > JOBS_MAX:
        del node.jobs[next(iter(node.jobs))]
    return _judge(node) and not before


def note_success(failures: dict[str, NodeFailures], ended: TaskEnd) -> list[str]:
    """Attempts have succeeded. Returns the nodes that have begun or ceased to be failing by that."""
    changed: list[str] = []
    own = failures.pop(ended.node, None)
    if own is not None and own.until_ms:
        changed.append(ended.node)
    for name, node in failures.items():
        known = node.jobs.get(ended.job)
        if known is not None and not known.elsewhere:
            known.elsewhere = True
            if not node.until_ms and _judge(node):
                changed.append(name)
    return changed


def expire(failures: dict[str, NodeFailures], now: int) -> list[str]:
    """At an opening: returns the nodes that cease to be failing, or are forgotten since nothing failed there lately."""
    over = [name for name, node in failures.items() if _last_ms(node) + FAILING_MS <= now]
    return [name for name in over if failures.pop(name).until_ms]


def _last_ms(node: NodeFailures) -> int:
    return max([known.last_ms for known in node.jobs.values()], default=0)


def _judge(node: NodeFailures) -> bool:
    """Whether the node is failing now, until when is noted."""
    known = node.jobs.values()
    elsewhere = sum([each.attempts for each in known if each.elsewhere])
    if node.until_ms or len(known) >= FAILING_AT or elsewhere >= FAILING_AT:
        node.until_ms = _last_ms(node) + FAILING_MS
        return True
    return False
