"""What tasks take in a what-if whose end the recording does not tell."""

from dataclasses import replace

from schemas import JobAdmitted, JobEnded, Record, RoundClosed, TaskFailed, TaskFinished
from schemas.jobs import JobEnd
from schemas.tasks import TaskEnd, TaskFailure
from services.replay.whatif.outcomes import Outcomes
from tests.builders import grant, job, stage

S = stage(tasks=4, command=["true"])
NEVER_RAN = 3


class Recording:
    """A log with one job of four tasks, record by record."""

    def __init__(self, estimate_ms=0):
        self.outcomes, self.seq = Outcomes(), 0
        self.stage = replace(S, durations_ms=[], estimate_ms=estimate_ms)
        self.put(0, JobAdmitted(job("j", self.stage), 0))
        self.outcomes.admitted("j", 1)

    def put(self, time, body):
        self.seq += 1
        self.outcomes.learn(Record(type(body).__name__, 1, "c", self.seq, 1, time, str(self.seq), "", body))
        return self

    def starts(self, time, *indexes, attempt=1):
        return self.put(
            time, RoundClosed([grant(f"j/{S.stage}", index, 1, attempt) for index in indexes], [], [], None, [])
        )

    def lasts(self, index):
        return self.outcomes.of("j", self.stage, index)[0]


def ended(index, run_ms, attempt=1):
    return TaskFinished([TaskEnd("j", S.stage, index, 1, attempt, "n1", "e1", [run_ms])])


def revoked(index, run_ms):
    return TaskFailed([TaskFailure("j", S.stage, index, 1, 1, "n1", "e1", "revoked", run_ms=[run_ms])])


def test_what_still_runs_where_the_log_ends_takes_twice_as_long_as_it_has():
    log = Recording().starts(0, 0).starts(40_000, 1)
    log.outcomes.ends(100_000)

    assert (log.lasts(0), log.lasts(1)) == (200_000, 200_000)  # The other one may take as long as the first.
    assert log.lasts(NEVER_RAN) == 200_000


def test_what_was_taken_back_is_not_over_when_it_was():
    log = Recording().starts(0, 0, 1).put(5_000, revoked(0, 5_000)).starts(5_000, 0, attempt=2)
    log.outcomes.ends(95_000)

    assert log.lasts(0) == 2 * 95_000


def test_an_estimate_counts_more_than_what_others_had_run_but_not_than_its_own():
    log = Recording(estimate_ms=30_000).starts(0, 0).starts(90_000, 1)
    log.outcomes.ends(100_000)

    assert [log.lasts(index) for index in (0, 1, NEVER_RAN)] == [200_000, 30_000, 30_000]


def test_others_of_the_stage_that_have_ended_count_more_than_an_estimate():
    log = Recording(estimate_ms=30_000).starts(0, 0, 1).put(7_000, ended(0, 7_000))
    log.outcomes.ends(10_000)

    assert [log.lasts(index) for index in (0, 1, NEVER_RAN)] == [7_000, 20_000, 7_000]


def test_a_job_that_was_ended_has_no_more_to_tell_where_the_log_ends():
    log = Recording().starts(0, 0).put(8_000, JobEnded([JobEnd("j", "cancelled")]))
    log.outcomes.ends(100_000)

    assert log.lasts(0) == 16_000
