"""Jobs that users hold, release, move and rank anew at random moments: none is lost, none runs twice, and a held one
starts nothing. Every law of the cores holds as it does without changes.
"""

from random import Random

from schemas import JobAdmitted, JobChanged, JobEnded, JobTurns, RoundClosed, RoundOpened, TaskFailed, TaskFinished
from services.gateway import view
from services.gateway.documents.jobs import job_document
from services.gateway.view.jobs import waiting_of
from tests.cells import SlowCell
from tests.properties.histories import Play, replay, seeded_histories
from tests.properties.test_cores import (
    SHARDS,
    TREES,
    Quick,
    a_board_that_is_built_anew_after_every_round_changes_no_byte,
    a_restart_at_any_point_changes_no_byte,
    caches_change_cost_and_never_bytes,
    every_job_ends_and_leaves_nothing_behind,
    room_is_never_given_twice_and_work_never_waits_beside_it,
    the_count_of_shards_changes_no_grant,
)
from tests.strategies import for_all


def changed_often(history, without=()):
    """A history with changes of jobs in it, as many as there are other steps."""
    play, chance = Play(SlowCell(SHARDS), TREES[history.seed % len(TREES)]), Random(history.seed)
    for step in history.steps:
        if step[0] not in without:
            play.step(*step)
        if chance.random() < 0.6:
            play.step("change", chance.randint(0, 1_000), chance.randint(0, 1_000))
        if chance.random() < 0.2:
            play.step("rerun", chance.randint(0, 1_000), chance.randint(0, 1_000))
    play.wind_up()
    return play


@for_all(seeded_histories())
def test_every_law_holds_where_jobs_are_changed(history):
    play = changed_often(history)
    every_job_ends_and_leaves_nothing_behind(play.cell)
    no_core_keeps_anything_of_changes(play.cell)
    held_jobs_start_nothing(play.cell.records)
    the_view_follows(play.cell.records)
    caches_change_cost_and_never_bytes(play)
    a_restart_at_any_point_changes_no_byte(play, history.seed)
    a_board_that_is_built_anew_after_every_round_changes_no_byte(play)
    room_is_never_given_twice_and_work_never_waits_beside_it(play)
    the_count_of_shards_changes_no_grant(play)


@for_all(seeded_histories())
def test_the_engine_of_simulations_writes_the_same_log_with_changes(history):
    slow = changed_often(history, without=("open", "abandon"))

    assert replay(slow.calls, Quick()).cell.digest == slow.cell.digest


def no_core_keeps_anything_of_changes(cell):
    for name, state in cell.states.items():
        assert not getattr(state, "on_hold", {}), name
        assert not getattr(state, "held_back", {}), name
    assert not cell.admission.changed


def held_jobs_start_nothing(records):
    """By the records alone."""
    held, opened, moved = set(), 0, {}
    for record in records:
        body = record.body
        if isinstance(body, JobAdmitted):
            held.discard(body.spec.job)
        elif isinstance(body, JobChanged):
            if body.hold is not None:
                (held.add if body.hold else held.discard)(body.job)
            if body.queue is not None:
                moved[body.job] = record.seq
        elif isinstance(body, RoundOpened):
            opened = record.seq
        elif isinstance(body, RoundClosed):
            assert not held & {grant.job for grant in body.grants}
            assert all(moved.get(grant.job, 0) < opened for grant in body.grants)


def the_view_follows(records):
    """What the gateway shows of jobs, against the last word on each."""
    seen, said = view.start(), {}
    for record in records:
        body = record.body
        if type(body) in view.FOLDS:
            view.fold(seen, record)
        if isinstance(body, JobAdmitted):
            said[body.spec.job] = [body.spec.priority, body.spec.queue, body.spec.hold]
        elif isinstance(body, JobChanged):
            for at, value in enumerate((body.priority, body.queue, body.hold)):
                said[body.job][at] = said[body.job][at] if value is None else value
        if isinstance(body, JobChanged | JobTurns | TaskFailed | TaskFinished | RoundClosed):
            for name, job in seen.jobs.items():
                shown = job_document(seen, name)
                assert [shown["priority"], shown["queue"], shown["held"] is not None] == said[name]
                reasons = {why["reason"] for stage in shown["stages"] for why in stage["why"]}
                waits = [at for at in range(len(job.asked)) if waiting_of(job, at) and not job.progress.parents[at]]
                assert ("held" in reasons) == (said[name][2] and bool(waits))
                assert not said[name][2] or not any(job.asked)
        elif isinstance(body, JobEnded):
            for end in body.jobs:
                shown = job_document(seen, end.job)
                assert [shown["priority"], shown["queue"]] == said[end.job][:2]
