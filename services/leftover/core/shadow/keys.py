"""The order in which jobs of a queue are served under `largesse`: by the product of remaining work and the square of
the time until the job is due, which is somewhat before its end in the shadow cluster.

The end in the shadow alone (FSP) prevents starvation but ignores how little is left of a job in the real cluster;
remaining work alone (SRTF) ignores how long a job has waited. The product reaches the mean completion time of SRTF with
no more losers than FSP (measurements: docs/performance.md). If all jobs were due when they end in the shadow, it would
spend too much on the few largest, which are slow in any case; so these are due later than the others.

The remaining time shrinks while nothing happens, so a key is recomputed when a quarter of the job's remaining work is
done, when a quarter of its remaining time has passed, or when its end in the shadow moves by as much. The number of
recomputations grows with the logarithm of the time, not with the number of rounds. A key *rests* while its job asks for
nothing, and once the job is due: then it is recomputed when something happens to the job.
"""

from bisect import bisect_left, insort
from typing import Final

from services.leftover.core.asks import does_ask
from services.leftover.core.job import Job
from services.leftover.core.shadow.state import Claim, Renewals, Shadow, Work
from services.leftover.placement.board import Board

STALE: Final = 1 << 60
"""Above any moment of log time; part of the end of a job that has not been seen to end since the shadow's last move."""

LAST: Final = 1 << 60
"""Above any key: of jobs for which the shadow has no place."""

LEFT_MS_MIN: Final = 1_000
"""A job that is overdue, or about to be due, counts as one that is due after this time: among such jobs the work that
is left decides."""

LARGE_ONE_IN: Final = 20
"""A job is large if at most one in so many of those that came last has more work. These are not among the 95 % of which
the 95th percentile of completion is the slowest, so they are the ones that can wait."""

SOONER_PERMILLE: Final = 120
"""A job is due before it ends in the shadow, by this part of its time there."""

SOONER_LARGE_PERMILLE: Final = 50
"""The same for a large job."""

SIZES_MAX: Final = 1_000
"""Jobs that joined the shadow last of which it is known how much work they had by then."""

RENEWED_PART: Final = 4
"""A key is computed again when this part of the work, or of the time, that was left is over, or when the job's end in
the shadow has moved by as much of the time until then."""

RENEWED_STEP_MS: Final = 250
"""The moments at which keys are computed again, as time has passed, are multiples of this: many keys share one."""

RENEWED_A_ROUND: Final = 256
"""Most keys that are computed again in one round for work or time that is over. Others follow in the next."""

RESTS: Final = -1
"""In place of when a key is computed again: once something happens to its job."""

AT_ONCE: Final = 0
"""The same: when the next round opens."""

DIGITS: Final = 32
"""Binary digits of a product that count in a key. Above them stands how many follow."""


def claim(shadow: Shadow, job: Job, time: int, board: Board | None) -> None:
    """Computes what a live job of the shadow is served by."""
    seq = job.admitted
    work, end_ms = shadow.works[seq], end_of(shadow, seq)
    left_ms = _due_by(shadow, work, end_ms) - time
    renew_ms = RESTS
    if left_ms > LEFT_MS_MIN:
        renew_ms = (time + left_ms // RENEWED_PART) // RENEWED_STEP_MS * RENEWED_STEP_MS + RENEWED_STEP_MS
    else:
        left_ms = LEFT_MS_MIN
    left = work_left(shadow, job)
    key = _rounded(left * (left_ms * left_ms))
    known = shadow.claims.get(seq)
    if known is None:
        known = shadow.claims[seq] = Claim(-1, 0, 0, RESTS)
    is_shown, is_listed = known.key == key, known.renew_ms == renew_ms
    known.key, known.work, known.end_ms, known.renew_ms, known.stirred = key, left, end_ms, renew_ms, False
    known.job = job
    if not is_listed and renew_ms != RESTS:
        shadow.renewals.add(renew_ms, seq)
    if not is_shown and board is not None:
        board.jobs.show_key(seq, key)


def claim_moved(shadow: Shadow, seq: int, jobs: dict[str, Job], time: int, board: Board | None) -> None:
    """Another end in the shadow is known of a job. If it asks for nothing, its key is computed once it may again."""
    known = shadow.claims[seq]
    before_ms = known.end_ms
    moved_ms = abs(end_of(shadow, seq) - before_ms)
    if not moved_ms or (known.renew_ms > AT_ONCE and moved_ms * RENEWED_PART < before_ms - time):
        return  # What is left to add up is added up when the key is computed next.
    job = known.job or jobs[shadow.works[seq].name]
    if does_ask(job) or known.stirred:
        claim(shadow, job, time, board)
    elif known.renew_ms != AT_ONCE:
        known.renew_ms = RESTS


def renew(shadow: Shadow, jobs: dict[str, Job], time: int, board: Board | None) -> None:
    """Computes keys again for which too much time has passed, those first for which it passed first. Those of jobs that
    ask for nothing rest."""
    left, renewals = RENEWED_A_ROUND, shadow.renewals
    if renewals.listed > 2 * len(shadow.claims) + RENEWED_A_ROUND:
        renewals = shadow.renewals = Renewals()
        for seq, known in shadow.claims.items():
            if known.renew_ms != RESTS:
                renewals.add(known.renew_ms, seq)
    while left and renewals.moments and renewals.moments[0] <= time:
        when, looked_at = renewals.moments[0], 0
        for seq in renewals.jobs[when]:
            if not left:
                break
            looked_at += 1
            claimed = shadow.claims.get(seq)
            if claimed is None or claimed.renew_ms != when:
                continue
            job = claimed.job or jobs[shadow.works[seq].name]
            if not does_ask(job) and not claimed.stirred:
                claimed.renew_ms = RESTS
                continue
            claim(shadow, job, time, board)
            left -= 1
        renewals.drop_first(looked_at)


def work_left(shadow: Shadow, job: Job) -> int:
    """What has not ended of a job in the real cluster, in share units x ms."""
    work, left = shadow.works[job.admitted], 0
    for at, tasks in enumerate(job.progress.left):
        left += tasks * work.shares[at] * work.lasts_ms[at]
    return left


def end_of(shadow: Shadow, seq: int) -> int:
    """When a job ends in the shadow. One that was seen to end before the last move ends after all that has been looked
    at since."""
    end_ms = shadow.ends[seq]
    if not end_ms & STALE:
        return end_ms
    return max(end_ms ^ STALE, shadow.base.now_ms if shadow.ahead is None else shadow.ahead.now_ms)


def note_size(shadow: Shadow, work: Work) -> None:
    """A job has joined the shadow. If the cell has no capacity yet, its size is known once it has."""
    if work.size:
        return
    for at, tasks in enumerate(work.tasks):
        work.size += tasks * work.shares[at] * work.lasts_ms[at]
    if not work.size:
        return
    shadow.sizes.append(work.size)
    insort(shadow.sorted_sizes, work.size)
    if len(shadow.sizes) > SIZES_MAX:
        oldest = shadow.sizes.pop(0)
        del shadow.sorted_sizes[bisect_left(shadow.sorted_sizes, oldest)]


def due_of(shadow: Shadow, seq: int) -> int:
    """When a job is due: before it ends in the shadow, by a part of its time there that is less for a large one."""
    return _due_by(shadow, shadow.works[seq], end_of(shadow, seq))


def _due_by(shadow: Shadow, work: Work, end_ms: int) -> int:
    """The same by that end."""
    sooner = SOONER_LARGE_PERMILLE if is_large(shadow, work.size) else SOONER_PERMILLE
    return end_ms - max(0, end_ms - work.joined_ms) * sooner // 1_000


def is_large(shadow: Shadow, size: int) -> bool:
    """Whether a job of this size is one of the largest of those that came last. Of like jobs all are."""
    sizes = shadow.sorted_sizes
    most = (
        len(sizes) + LARGE_ONE_IN // 2 - 1
    ) // LARGE_ONE_IN  # That fewer jobs than this have more work makes it large.
    return most > 0 and size >= sizes[-most]


def _rounded(product: int) -> int:
    """The same order with as many binary digits as count, so that keys are small numbers: the first ones of the
    product, below how many follow."""
    shift = product.bit_length() - DIGITS
    return product if shift <= 0 else shift << DIGITS | product >> shift
