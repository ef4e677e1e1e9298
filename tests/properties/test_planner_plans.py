"""Whatever is asked for: an accepted plan meets its request, nothing is promised twice, and a no is true."""

from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st

from services.planner.planning.filling import fill_early, fill_late
from services.planner.planning.profile import Profile
from tests.plan_rig import STEP, accepted, ask, atom, faults, group, held, window

CAPACITY = {"x": 12, "y": 20}
STEPS = 40
AGENTS = st.sampled_from(["gree", "gree-l", "early", "default"])


@st.composite
def atoms(draw):
    gang = draw(st.integers(1, 4))
    units = gang * draw(st.integers(1, 3))
    lease = STEP * draw(st.integers(1, 5))
    work = draw(st.integers(1, units * STEP * 10))
    return atom(units, work, lease, gang, x=draw(st.integers(0, 3)), y=draw(st.integers(1, 4)))


OPS = st.sampled_from(["all", "any", "order", "order_no_gap"])


@st.composite
def requests(draw):
    inner = st.recursive(
        atoms(),
        lambda deeper: st.one_of(
            st.builds(lambda op, of: group(op, *of), OPS, st.lists(deeper, min_size=1, max_size=3)),
            st.builds(
                lambda begin, length, of: window(begin, begin + length, of),
                st.integers(0, 20 * STEP),
                st.integers(5 * STEP, STEPS * STEP),
                deeper,
            ),
        ),
        max_leaves=5,
    )
    begin = draw(st.integers(0, 20 * STEP))
    return window(begin, begin + draw(st.integers(STEP, 30 * STEP)), draw(inner))


@settings(max_examples=150)
@for_all(st.lists(requests(), min_size=1, max_size=6), AGENTS)
def test_accepted_plans_meet_their_requests_and_never_exceed_the_capacity(asked, agent):
    answer = ask(*asked, agent=agent, capacity=CAPACITY, horizon=STEPS * STEP)

    named = {f"r{i}": rdl for i, rdl in enumerate(asked)}
    assert faults(named, held(answer), CAPACITY, STEPS * STEP) == []
    for result in answer["results"]:
        assert result["accepted"] or result["reason"]


def test_an_offer_is_accepted_when_it_is_taken():
    offers = 0

    @settings(max_examples=40)
    @for_all(st.lists(requests(), min_size=1, max_size=3), st.integers(0, 15), st.integers(10, 25), AGENTS)
    def taken_offers_are_accepted(asked, begin, length, agent):
        nonlocal offers
        full = [{"from": begin * STEP, "to": (begin + length) * STEP, "usage": CAPACITY}]
        given = {
            "agent": agent,
            "capacity": CAPACITY,
            "horizon": STEPS * STEP,
            "existing": [{"id": "full", "user": "bob", "profile": full}],
        }
        for i, result in enumerate(ask(*asked, **given)["results"]):
            if "from" in result.get("offer", {}):
                offers += 1
                taken = window(result["offer"]["from"], result["offer"]["to"], asked[i]["of"])
                assert accepted(ask(*asked[:i], taken, **given))[-1]

    taken_offers_are_accepted()
    assert offers


@settings(max_examples=60)
@for_all(st.lists(requests(), min_size=1, max_size=4), requests(), st.sampled_from(["gree", "gree-l"]))
def test_a_reservation_that_is_deleted_leaves_no_trace(asked, passing, agent):
    comes = {"op": "submit", "id": "passing", "user": "bob", "rdl": passing}
    goes = {"op": "delete", "id": "passing", "user": "bob"}
    with_it = ask(comes, goes, *asked, agent=agent, capacity=CAPACITY, horizon=STEPS * STEP)["results"][2:]
    without = ask(*asked, agent=agent, capacity=CAPACITY, horizon=STEPS * STEP)["results"]
    assert [result["leases"] for result in with_it] == [result["leases"] for result in without]


@settings(max_examples=60)
@for_all(st.lists(requests(), min_size=1, max_size=3), requests(), requests(), st.sampled_from(["gree", "gree-l"]))
def test_an_update_to_the_old_terms_and_a_rejected_one_leave_no_trace(asked, first, other, agent):
    def operation(op, rdl):
        return {"op": op, "id": "mine", "user": "bob", "rdl": rdl}

    updated = ask(operation("submit", first), operation("update", other), agent=agent, capacity=CAPACITY)
    terms = other if accepted(updated)[1] else first
    again = ask(operation("submit", terms), *asked, agent=agent, capacity=CAPACITY)
    both = ask(operation("submit", first), operation("update", other), *asked, agent=agent, capacity=CAPACITY)
    assert [r["leases"] for r in both["results"][2:]] == [r["leases"] for r in again["results"][1:]]


spans = st.lists(
    st.tuples(st.integers(0, 30), st.integers(1, 10), st.integers(1, 5), st.integers(0, 5)), min_size=1, max_size=12
)


@for_all(spans)
def test_a_profile_is_what_adding_up_step_by_step_gives_and_empty_once_all_is_subtracted(added):
    profile, plain = Profile(2), [[0, 0] for _ in range(60)]
    for begin, length, x, y in added:
        profile.add(begin, begin + length, [x, y])
        for step in range(begin, begin + length):
            plain[step] = [plain[step][0] + x, plain[step][1] + y]

    assert [profile.at(step) for step in range(60)] == plain
    edges, amounts = profile.span(3, 50)
    by_step = [amounts[:, i].tolist() for i in range(len(edges) - 1) for _ in range(edges[i + 1] - edges[i])]
    assert by_step == plain[3:50]
    assert profile.most(3, 50) == [max(row[i] for row in plain[3:50]) for i in (0, 1)]

    for begin, length, x, y in added:
        profile.add(begin, begin + length, [x, y], -1)
    assert profile == Profile(2)
    assert len(profile) == 1


rooms = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 4)), min_size=1, max_size=8)


def most_work(room, lease):
    """The most gang-steps that leases of one length can come to, by trying every set of starts, gang by gang."""
    best = 0

    def down(step, left, work):
        nonlocal best
        best = max(best, work)
        for at in range(step, len(left) - lease + 1):
            if all(left[at : at + lease]):
                less = left[:at] + [have - 1 for have in left[at : at + lease]] + left[at + lease :]
                down(at, less, work + lease)

    down(0, room, 0)
    return best


@settings(max_examples=150)
@for_all(rooms, st.integers(1, 4), st.sampled_from([fill_early, fill_late]))
def test_filling_finds_room_wherever_leases_of_the_least_length_fit(runs, lease, fill):
    steps = [have for length, have in runs for _ in range(length)][:9]
    steps = [min(have, 2) for have in steps]
    edges = list(range(len(steps) + 1))
    most = most_work(steps, lease)
    if most:
        found = fill(edges, steps, lease, most)
        assert found is not None
        left = steps.copy()
        for each in found:
            assert each.end - each.begin >= lease
            for at in range(each.begin, each.end):
                left[at] -= each.gangs
        assert min(left) >= 0
        assert sum((each.end - each.begin) * each.gangs for each in found) >= most


@settings(max_examples=60)
@for_all(st.lists(requests(), min_size=1, max_size=5))
def test_a_no_of_the_default_is_a_no_of_every_form(asked):
    answers = {name: ask(asked[0], agent=name, capacity=CAPACITY) for name in ("gree", "gree-l", "early", "default")}
    assert accepted(answers["default"])[0] == any(accepted(each)[0] for each in answers.values())
