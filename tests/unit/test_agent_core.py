"""What the log says must run on a node, and what must stop: stories over the agent's core alone."""

from dataclasses import replace
from itertools import count

import pytest

from largesse.lifecycle import node_work as core
from largesse.lifecycle.node_work import Begun, Over, Start, Stop
from largesse.log.snapshots import dump, load
from schemas import (
    ConfigChanged,
    DeviceShare,
    Grant,
    JobAdmitted,
    JobCancelled,
    JobEnd,
    JobEnded,
    JobSpec,
    KnownAttempt,
    NodeLost,
    NodeRegistered,
    Policy,
    Record,
    Revocation,
    RoundClosed,
    Stage,
    TaskEnd,
    TaskFailed,
    TaskFailure,
    TaskFinished,
    TaskRange,
    TaskStarted,
    TimeReached,
)
from schemas.jobs import Counted
from services.agent.cgroups import Limits
from services.agent.settings import NodeSettings
from services.agent.starting import limits_of

MAP = Stage("map", 10, {"cpu": 1_000}, command=["true"])
GANG = Stage("gang", 4, {"cpu": 1_000}, command=["true"], gang=True)


def admitted(job="j", *stages):
    return JobAdmitted(JobSpec(job, "default", list(stages or (MAP, GANG))), 0)


def granted(first, count=1, *, stage="map", attempt=1, node="n", epoch="e1", job="j", devices=()):
    return Grant(job, stage, first, count, attempt, node, epoch, devices=list(devices))


def closed(*grants, revoked=()):
    return RoundClosed(list(grants), [], list(revoked), None, [])


def tasks(first, count=1, *, stage="map", attempt=1, node="n", epoch="e1", job="j"):
    return TaskRange(job, stage, first, count, attempt, node, epoch)


def finished(first, count=1, **where):
    at = tasks(first, count, **where)
    return TaskFinished([TaskEnd(at.job, at.stage, first, count, at.attempt, at.node, at.epoch, [1])])


def failed(first, count=1, **where):
    at = tasks(first, count, **where)
    return TaskFailed([TaskFailure(at.job, at.stage, first, count, at.attempt, at.node, at.epoch, "exit_code")])


def known(first, count=1, *, stage="map", attempt=1, state="running", job="j"):
    return KnownAttempt(job, stage, first, count, attempt, state, reason="exit_code" if state == "failed" else None)


def registered(epoch="e1", *attempts, node="n", lost=()):
    return NodeRegistered(node, epoch, {"cpu": 8_000}, attempts=list(attempts), lost=list(lost))


class Story:
    """An agent of node n that registers itself as e1, and the log as it comes to it."""

    def __init__(self, *bodies, epoch="e1"):
        self.state = core.start("n", epoch)
        self.seq = count(1)
        self.then(*bodies)

    def then(self, *bodies):
        for body in bodies:
            seq = next(self.seq)
            core.fold(self.state, Record(type(body).__name__, 1, "default", seq, 0, seq, f"default/{seq}", "", body))
        return self

    @property
    def work(self):
        """Its node\'s part of the cell."""
        return self.state.nodes["n"]

    def takes(self):
        """What there is to do since the last time, in words."""
        return [word_of(action) for action in core.take(self.state, "n")]


def word_of(action):
    match action:
        case Start(key):
            return f"start {key}"
        case Stop(key, _, reason):
            return f"stop {key} {reason}"
        case Begun(key):
            return f"begun {key}"
        case Over(key):
            return f"over {key}"


def running(*grants, **more):
    """A story in which these grants were taken up."""
    story = Story(registered(), admitted(), closed(*grants), **more)
    story.takes()
    return story


def test_a_grant_for_the_node_is_started_once():
    story = Story(registered(), admitted(), closed(granted(2, 2)))

    assert story.takes() == ["start j/map/2/1", "start j/map/3/1"]
    assert story.takes() == []


def test_a_start_says_stage_devices_and_which_admission_of_the_name_it_is():
    story = Story(registered(), admitted())
    story.then(closed(granted(0, 2, devices=[[DeviceShare(1, 500)], [DeviceShare(3, 1_000)]])))

    starts = [action for action in core.take(story.state, "n") if isinstance(action, Start)]

    assert [start.stage for start in starts] == [MAP, MAP]
    assert [start.held.devices for start in starts] == [[DeviceShare(1, 500)], [DeviceShare(3, 1_000)]]
    assert [start.held.run for start in starts] == [2, 2]


def test_grants_for_other_nodes_are_not_ours():
    assert Story(registered(), admitted(), closed(granted(0, node="m"))).takes() == []


def test_a_grant_under_an_older_epoch_is_not_started():
    assert Story(registered("e0"), admitted(), closed(granted(0, epoch="e0"))).takes() == []


def test_what_the_log_has_of_an_attempt_is_said():
    story = running(granted(0, 2))

    story.then(TaskStarted([tasks(0, 2)]))
    assert story.takes() == ["begun j/map/0/1", "begun j/map/1/1"]
    story.then(finished(0), failed(1))
    assert story.takes() == ["over j/map/0/1", "over j/map/1/1"]
    assert story.work.held == {}
    assert story.work.held_of == {}


@pytest.mark.parametrize(
    "ending",
    [
        pytest.param([JobCancelled("j")], id="a cancelled job"),
        pytest.param([JobEnded([JobEnd("j", "failed")])], id="an ended job"),
        pytest.param(
            [JobCancelled("j"), JobEnded([JobEnd("j", "cancelled")])], id="one that was cancelled and has ended"
        ),
    ],
)
def test_tasks_stop_with_their_job(ending):
    story = running(granted(0, 2))

    story.then(*ending)

    assert story.takes() == ["stop j/map/0/1 killed", "stop j/map/1/1 killed"]


def test_an_attempt_that_is_over_before_it_began_is_stopped_and_never_started():
    story = Story(registered(), admitted(), closed(granted(0)), JobCancelled("j"))

    assert story.takes() == ["stop j/map/0/1 killed"]


def test_other_jobs_run_on():
    story = Story(registered(), admitted("a"), admitted("b"), closed(granted(0, job="a"), granted(0, job="b")))
    story.takes()

    story.then(JobCancelled("a"))

    assert story.takes() == ["stop a/map/0/1 killed"]


def test_a_revoked_attempt_is_given_back():
    story = running(granted(0, 2))

    story.then(closed(revoked=[Revocation("j", "map", 1, 1, 1, "n", "e1")]))

    assert story.takes() == ["stop j/map/1/1 revoked"]


def test_what_ended_before_it_could_be_revoked_is_over():
    story = running(granted(0))

    story.then(finished(0), closed(revoked=[Revocation("j", "map", 0, 1, 1, "n", "e1")]))

    assert story.takes() == ["over j/map/0/1"]


def test_the_first_reason_to_stop_stands():
    story = running(granted(0))

    story.then(closed(revoked=[Revocation("j", "map", 0, 1, 1, "n", "e1")]), JobCancelled("j"))

    assert story.takes() == ["stop j/map/0/1 revoked"]


@pytest.mark.parametrize(
    "breaking",
    [
        pytest.param(failed(0, stage="gang"), id="one of them fails here"),
        pytest.param(failed(3, stage="gang", node="m", epoch="f1"), id="one of them fails on another node"),
        pytest.param(
            NodeLost("m", "f1", [tasks(3, stage="gang", node="m", epoch="f1")]), id="the node of one of them is lost"
        ),
        pytest.param(
            registered("f2", node="m", lost=[tasks(3, stage="gang", node="m", epoch="f1")]),
            id="another agent comes back without one of them",
        ),
        pytest.param(
            registered("f2", known(3, stage="gang", state="failed"), node="m"),
            id="another agent comes back and one of them has failed",
        ),
    ],
)
def test_a_gang_stops_when_one_of_its_tasks_ends_without_success(breaking):
    story = running(granted(0, 3, stage="gang"), granted(3, stage="gang", node="m", epoch="f1"), granted(0))

    story.then(breaking)

    here = [word for word in story.takes() if word.startswith("stop")]
    assert here == [f"stop j/gang/{i}/1 gang" for i in range(3) if f"j/gang/{i}/1" in story.work.held]
    assert len(here) >= 2


def test_the_next_attempt_of_a_gang_outlives_what_is_said_late_of_the_last():
    story = running(granted(0, stage="gang"), granted(1, stage="gang", node="m", epoch="f1"))
    story.then(failed(0, stage="gang"), failed(1, stage="gang", node="m", epoch="f1"))
    story.then(closed(granted(0, stage="gang", attempt=2)))
    story.takes()

    story.then(failed(1, stage="gang", node="m", epoch="f1"))

    assert story.takes() == []


def test_tasks_that_are_no_gang_do_not_stop_each_other():
    story = running(granted(0, 2))

    story.then(failed(0))

    assert story.takes() == ["over j/map/0/1"]


def test_a_lost_node_holds_nothing_any_more():
    story = running(granted(0, 2))

    story.then(NodeLost("n", "e1", [tasks(0, 2)]))

    assert story.takes() == ["over j/map/0/1", "over j/map/1/1"]
    assert story.work.standing == "lost"


def test_after_a_loss_the_node_comes_back_under_another_epoch():
    story = running(granted(0))
    story.then(NodeLost("n", "e1", [tasks(0)]))
    story.takes()

    core.renew(story.work, "e2")
    story.then(registered("e2"), closed(granted(0, attempt=2, epoch="e2")))

    assert story.takes() == ["start j/map/0/2"]
    assert story.work.standing == "registered"


def test_another_agents_registration_takes_the_node():
    story = running(granted(0))

    story.then(registered("f1", lost=[tasks(0)]))

    assert (story.work.standing, story.work.rival) == ("taken", "f1")
    assert story.takes() == ["over j/map/0/1"]


def test_an_older_registration_that_comes_again_is_no_rival():
    """Its agent sent it twice, and has ended since, or will as soon as it reads of ours."""
    story = Story(registered("f1"), registered("e1"), epoch="e1")

    story.then(registered("f1"))

    assert (story.work.standing, story.work.rival) == ("taken", "")


def test_after_a_loss_only_a_new_registration_is_a_rival():
    story = Story(registered("f1"), registered("e1"), NodeLost("n", "e1", []), epoch="e1")

    assert story.then(registered("f1")).work.rival == ""
    assert story.then(registered("g1")).work.rival == "g1"


def test_a_rival_is_known_behind_an_old_registration_too():
    story = Story(registered("f1"), registered("e1"), registered("f1"), registered("g1"), epoch="e1")

    assert (story.work.standing, story.work.rival) == ("taken", "g1")


def test_only_the_latest_epochs_of_a_node_are_remembered():
    story = Story(*(registered(f"f{number}") for number in range(core.EPOCHS_MAX + 5)), epoch="e1")

    assert list(story.work.epochs) == [f"f{number}" for number in range(5, core.EPOCHS_MAX + 5)]


def test_older_epochs_in_the_log_are_no_rivals():
    story = Story(registered("e1"), registered("e2"), epoch="e3")

    assert story.work.standing == "new"
    assert story.then(registered("e3")).work.standing == "registered"


def test_the_loss_of_an_older_epoch_is_not_ours():
    story = Story(registered("e1"), NodeLost("n", "e1", []), epoch="e2")

    assert story.work.standing == "new"


def after_a_restart(*bodies):
    """An agent of epoch e2 that reads what happened under e1, and has not acted on it."""
    story = Story(registered(), admitted(), closed(granted(0, 3)), TaskStarted([tasks(0, 3)]), *bodies, epoch="e2")
    core.take(story.state, "n")
    core.look_again(story.work)
    return story


def test_a_registration_keeps_what_it_names_and_ends_the_rest():
    story = after_a_restart(finished(1))
    assert list(story.work.held) == ["j/map/0/1", "j/map/2/1"]
    story.takes()

    story.then(registered("e2", known(0), lost=[tasks(2)]))

    assert story.takes() == ["over j/map/2/1", "begun j/map/0/1"]
    assert story.work.held["j/map/0/1"].epoch == "e2"


def test_ends_that_a_registration_tells_are_over():
    story = after_a_restart()
    story.takes()

    story.then(registered("e2", known(0, state="succeeded"), known(1, state="failed"), known(2)))

    assert story.takes() == ["over j/map/0/1", "over j/map/1/1", "begun j/map/2/1"]


def test_what_was_to_stop_before_the_restart_is_to_stop_after_it():
    story = after_a_restart(JobCancelled("j"))

    assert story.takes() == [f"stop j/map/{i}/1 killed" for i in range(3)]
    story.then(registered("e2", known(0), lost=[tasks(1, 2)]))
    assert story.takes() == ["over j/map/1/1", "over j/map/2/1", "stop j/map/0/1 killed"]


def test_an_earlier_job_of_the_same_name_leaves_no_mark():
    story = Story(registered(), admitted(), closed(granted(0)), finished(0), JobEnded([JobEnd("j", "succeeded")]))

    story.then(admitted(), closed(granted(0)))

    assert story.takes() == ["start j/map/0/1"]
    assert story.work.held["j/map/0/1"].run == 6


def test_a_job_that_ended_is_forgotten_and_its_attempts_are_not():
    story = running(granted(0))

    story.then(JobEnded([JobEnd("j", "failed")]))

    assert story.state.jobs == {}
    assert list(story.work.held) == ["j/map/0/1"]


def test_the_lease_comes_from_the_log():
    assert Story().state.node_lease_ms == Policy().node_lease_ms
    assert Story(ConfigChanged(policy=Policy(node_lease_ms=900))).state.node_lease_ms == 900
    assert Story(ConfigChanged(policy=Policy(node_lease_ms=900)), ConfigChanged()).state.node_lease_ms == 900


def test_what_says_nothing_to_an_agent_is_passed_over():
    assert Story(TimeReached(5)).takes() == []


def test_a_state_comes_back_from_its_bytes():
    story = running(granted(0, 2, devices=[[DeviceShare(0, 250)], [DeviceShare(1, 250)]]))
    story.then(JobCancelled("j"))
    story.takes()

    assert load(core.State, dump(story.state)) == story.state


def test_an_attempt_begins_with_what_it_counts_for_beside_what_it_asks_for(tmp_path):
    """After a restart of the agent, too."""
    body = replace(admitted(), counted=[Counted("map", {"cpu": 600}, 3, {"cpu": 480})])
    story = Story(registered(), body)
    story.state = load(core.State, dump(story.state))
    story.then(closed(granted(0), granted(0, 4, stage="gang")))
    first, second, *_ = core.take(story.state, "n")
    settings = NodeSettings("n", tmp_path)

    assert limits_of(first, settings) == Limits("hard", 1_000, None, settings.task_pids, 600)
    assert limits_of(second, settings) == Limits("hard", 1_000, None, settings.task_pids, None)
