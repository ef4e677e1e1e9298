"""Which results a node may ask a bridge for, and how fast a bridge passes them on."""

from hypothesis import given
from hypothesis import strategies as st

from largesse.lifecycle.handed import Handed
from largesse.lifecycle.node_work import HeldAttempt, Job, NodeWork, State, attempt_key, start_for_all
from largesse.task_results import WantedResults
from schemas import JobSpec, Stage
from services.bridge import handed as handed_on
from services.bridge.handed import HandedOn
from services.bridge.pace import MS_A_SECOND, MS_MAX, Pace, cost_ms

STAGES = ("make", "mix", "use")
SPEC = JobSpec("j", "", [Stage("make", 9, {}), Stage("mix", 9, {}), Stage("use", 1, {}, inputs=["make", "mix"])])
RUN = 7


def cell(*handed: Handed, holds: str = "use", stop=None, run: int = RUN) -> State:
    state = start_for_all()
    job = Job(SPEC, RUN, handed={"make": [], "mix": []})
    for tasks in handed:
        job.handed[tasks.stage].append(tasks)
    state.jobs["j"] = job
    held = HeldAttempt("j", holds, 0, 1, run, "e", stop=stop)
    key = attempt_key("j", holds, 0, 1)
    state.nodes["n"] = NodeWork("n", "e", held={key: held}, held_of={"j": {key: True}})
    state.nodes["m"] = NodeWork("m", "e")
    return state


def wanted(stage="make", index=0, attempt=1, admitted=RUN, **more):
    return WantedResults("j", stage, index, attempt, admitted, **more)


HANDED = Handed("make", 0, 3, 1, "m")


def test_a_node_may_ask_for_what_was_handed_on_to_an_attempt_that_it_holds():
    known, state = HandedOn(), cell(HANDED, Handed("mix", 0, 1, 2, "m", run=3))

    assert known.is_for(state, "n", "m", wanted(index=2, file="f", offset=5))
    assert known.is_for(state, "n", "m", wanted("mix", attempt=2, admitted=3)), "of an earlier run"


def test_a_node_may_ask_for_nothing_else():
    known, state = HandedOn(), cell(HANDED)

    for other in (
        wanted(index=3),
        wanted(attempt=2),
        wanted(attempt=None),
        wanted(admitted=8),
        wanted(admitted=None),
        wanted("mix"),
        wanted("use"),
        WantedResults("other", "make", 0, 1, RUN),
    ):
        assert not known.is_for(state, "n", "m", other), other
    assert not known.is_for(state, "n", "k", wanted()), "another node has it"
    assert not known.is_for(state, "m", "m", wanted()), "it holds nothing"
    assert not known.is_for(state, "stranger", "m", wanted())
    for held in (cell(HANDED, holds="make"), cell(HANDED, stop="killed"), cell(HANDED, run=6)):
        assert not HandedOn().is_for(held, "n", "m", wanted())


tasks_handed = st.builds(
    Handed,
    st.sampled_from(["make", "mix"]),
    st.integers(0, 4),
    st.integers(0, 3),
    st.integers(1, 2),
    st.sampled_from("mk"),
    st.sampled_from([0, 3]),
)
questions = st.tuples(
    st.sampled_from("mk"),
    st.builds(
        WantedResults,
        st.just("j"),
        st.sampled_from(STAGES),
        st.integers(0, 8),
        st.integers(1, 2),
        st.sampled_from([RUN, 3]),
    ),
)


@given(st.lists(st.one_of(tasks_handed, questions), max_size=30), st.integers(1, 2))
def test_what_is_remembered_of_a_stage_says_what_its_whole_list_does(story, most):
    known, state = HandedOn(), cell()
    before, handed_on.STAGES_MAX = handed_on.STAGES_MAX, most
    try:
        for step in story:
            if isinstance(step, Handed):
                state.jobs["j"].handed[step.stage].append(step)
                continue
            of, asked = step
            last = [
                tasks.node
                for tasks in state.jobs["j"].handed.get(asked.stage, [])
                if tasks.first <= asked.index < tasks.first + tasks.count
                and (tasks.attempt, tasks.run or RUN) == (asked.attempt, asked.admitted)
            ][-1:]
            assert known.is_for(state, "n", of, asked) == (last == [of])
            assert len(known._places) <= most
    finally:
        handed_on.STAGES_MAX = before


def test_a_bridge_passes_on_at_once_what_it_saved_up_and_then_half_of_each_second():
    pace, passed, now_ms = Pace(0), 0.0, 0
    while now_ms < 60_000:
        if wait_ms := pace.wait_ms(now_ms):
            now_ms += round(wait_ms) + 1
            continue
        cost = cost_ms(175_000)
        pace.charge(cost, now_ms)
        passed += cost
    assert 60 * MS_A_SECOND * 0.95 <= passed <= 60 * MS_A_SECOND + MS_MAX + cost


def test_a_pause_saves_up_no_more_than_so_much():
    pace = Pace(0)
    pace.charge(MS_MAX, 10**9)
    assert pace.wait_ms(10**9) == 0
    pace.charge(1, 10**9)
    assert pace.wait_ms(10**9) == 1_000 / MS_A_SECOND
