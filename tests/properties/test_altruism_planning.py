"""Plans of one job in a fixed share: checked against a planner that knows single tasks and moves by the millisecond."""

from collections import Counter
from dataclasses import replace

from hypothesis import given as for_all
from hypothesis import strategies as st

from schemas import LateStart
from services.altruism.core.late_starts import due_by, late_of, next_moment, next_need
from services.altruism.planning.dagps import pack_around
from services.altruism.planning.forward import pack
from services.altruism.planning.orders import Scores
from services.altruism.planning.plan import Plan, plan
from services.altruism.planning.sweep import NEVER, meeting_ms
from services.altruism.planning.work import Running, Work, how_many_fit, widened

ORDERS = st.sampled_from(["tetris", "critical_path", "breadth_first"])
ALL_ORDERS = st.sampled_from(["tetris", "critical_path", "breadth_first", "dagps"])


@st.composite
def works(draw):
    """Work of a job: a random graph of stages, some of them running or over, and a share."""
    kinds = draw(st.integers(1, 3))
    stages = draw(st.integers(1, 6))
    amounts = st.lists(st.integers(0, 6), min_size=kinds, max_size=kinds).filter(any)
    children = [
        sorted(draw(st.sets(st.integers(at + 1, stages - 1), max_size=3))) if at + 1 < stages else []
        for at in range(stages)
    ]
    demand = [draw(amounts) for _ in range(stages)]
    lasts = [draw(st.integers(1, 9)) for _ in range(stages)]
    waiting = [draw(st.one_of(st.integers(1, 5), st.integers(1, 80))) for _ in range(stages)]
    running = [[] for _ in range(stages)]
    over = set()
    for at in range(stages):
        if all(parent in over for parent in range(at) if at in children[parent]):
            state = draw(st.sampled_from(["waits", "waits", "runs", "mixed", "over"]))
            if state != "waits":
                waiting[at] = waiting[at] if state == "mixed" else 0
            if state in ("runs", "mixed"):
                running[at] = [
                    Running(draw(st.integers(1, 3)), draw(st.integers(1, 9))) for _ in range(draw(st.integers(1, 2)))
                ]
            if state == "over":
                over.add(at)
    share = draw(st.lists(st.integers(0, 12), min_size=kinds, max_size=kinds))
    return Work(demand, lasts, waiting, running, children), share


def held_at(work, starts, at_ms):
    """What is held at a moment by tasks that start as planned, and by those that run."""
    held = [0] * len(work.demand[0])
    for at, start_ms, count in starts:
        if start_ms <= at_ms < start_ms + work.lasts_ms[at]:
            held = [have + count * amount for have, amount in zip(held, work.demand[at], strict=True)]
    for at, groups in enumerate(work.running):
        for group in groups:
            if at_ms < group.remaining_ms:
                held = [have + group.count * amount for have, amount in zip(held, work.demand[at], strict=True)]
    return held


def check_is_schedule(work, share, starts, end_ms):
    """Everything that waits starts once, inside the share, behind its parents, and all is over by `end_ms`."""
    for at, count in enumerate(work.waiting):
        assert sum(number for stage, _, number in starts if stage == at) == count
    firsts, lasts = (
        {},
        {at: max(group.remaining_ms for group in groups) for at, groups in enumerate(work.running) if groups},
    )
    for at, start_ms, _ in starts:
        firsts[at] = min(firsts.get(at, start_ms), start_ms)
        lasts[at] = max(lasts.get(at, 0), start_ms + work.lasts_ms[at])
    for at, children in enumerate(work.children):
        for child in children:
            assert firsts.get(child, end_ms) >= lasts.get(at, 0), f"{child} starts before {at} has ended"
    assert max(lasts.values(), default=0) <= end_ms
    assert min(firsts.values(), default=0) >= 0
    for at_ms in sorted({start_ms for _, start_ms, _ in starts}):
        for kind, held in enumerate(held_at(work, starts, at_ms)):
            ran = held_at(work, [], at_ms)[kind]
            assert held <= max(share[kind], ran), f"too much is held at {at_ms} ms"


def one_by_one(work, share, order):
    """When which tasks start, and when all is over: the same rule for single tasks, a millisecond after the other."""
    starts = Counter()
    scores = Scores(order, work, share)
    running = [
        (group.remaining_ms, at)
        for at, groups in enumerate(work.running)
        for group in groups
        for _ in range(group.count)
    ]
    waiting = list(work.waiting)
    now_ms, last_ms = 0, 0
    while running or any(waiting):
        running = [(end_ms, at) for end_ms, at in running if end_ms > now_ms]
        free = list(share)
        for _, at in running:
            free = [have - amount for have, amount in zip(free, work.demand[at], strict=True)]
        open_stages = {at for at, count in enumerate(waiting) if count} | {at for _, at in running}
        ready = [
            at
            for at, count in enumerate(waiting)
            if count and not any(at in work.children[parent] for parent in open_stages)
        ]
        while ready:
            fitting = [at for at in ready if waiting[at] and how_many_fit(work.demand[at], free, 1)]
            if not fitting:
                break
            best = max(fitting, key=lambda at: (scores.of(at, free), -at))
            while waiting[best] and how_many_fit(work.demand[best], free, 1):
                waiting[best] -= 1
                starts[best, now_ms] += 1
                running.append((now_ms + work.lasts_ms[best], best))
                free = [have - amount for have, amount in zip(free, work.demand[best], strict=True)]
        last_ms = max([end_ms for end_ms, _ in running], default=last_ms)
        now_ms += 1
        running = [(end_ms, at) for end_ms, at in running if end_ms > now_ms]
    return starts, last_ms


def starts_of(planned: Plan, work):
    """Wave by wave: (stage, moment, tasks)."""
    return [
        (at, late.at_ms + wave * work.lasts_ms[at], late.count)
        for at, stage in enumerate(planned.late)
        for late in stage
        for wave in range(late.waves)
    ]


def packed(packing, work):
    """The same of a packing."""
    return [
        (each.stage, each.start_ms + wave * work.lasts_ms[each.stage], each.count)
        for each in packing.batches
        for wave in range(each.waves)
    ]


@for_all(works(), ORDERS)
def test_the_forward_pass_packs_as_single_tasks_would_be(drawn, order):
    work, share = drawn
    wide = widened(share, work)
    packing = pack(work, wide, Scores(order, work, wide))

    check_is_schedule(work, wide, packed(packing, work), packing.makespan_ms)
    starts = Counter()
    for at, start_ms, count in packed(packing, work):
        starts[at, start_ms] += count
    assert (starts, packing.makespan_ms) == one_by_one(work, wide, order)


@for_all(works(), ALL_ORDERS)
def test_whoever_starts_each_task_at_its_latest_ends_as_early_as_whoever_starts_at_once(drawn, order):
    work, share = drawn
    planned = plan(work, share, order)

    check_is_schedule(work, widened(share, work), starts_of(planned, work), planned.makespan_ms)


@for_all(works())
def test_packing_around_troublesome_tasks_takes_no_longer_than_by_alignment_or_critical_path(drawn):
    work, share = drawn
    wide = widened(share, work)
    packing, _ = pack_around(work, wide)

    check_is_schedule(work, wide, packed(packing, work), packing.makespan_ms)
    for order in ("tetris", "critical_path"):
        assert packing.makespan_ms <= pack(work, wide, Scores(order, work, wide)).makespan_ms


@for_all(works(), ORDERS)
def test_the_turned_packing_is_taken_wherever_it_ends_in_time(drawn, order):
    work, share = drawn
    work = replace(work, running=[[] for _ in work.running])
    wide = widened(share, work)
    turned = replace(work, children=work.parents())
    took_ms = pack(turned, wide, Scores(order, turned, wide)).makespan_ms

    planned = plan(work, share, order)

    assert planned.turned == (took_ms <= planned.makespan_ms)


def test_what_a_packing_costs_follows_stages_and_not_tasks():
    """Two stages side by side, whose tasks end at different moments, then a third."""
    few, many = (
        pack(work, [9], Scores("tetris", work, [9]))
        for work in (
            Work([[2], [3], [1]], [700, 901, 300], [tasks, tasks, tasks], [[], [], []], [[2], [2], []])
            for tasks in (50, 5_000)
        )
    )

    assert many.makespan_ms > 90 * few.makespan_ms
    assert many.steps < 10 * few.steps
    assert len(many.batches) < 10 * len(few.batches)


@for_all(st.integers(0, 60), st.integers(1, 20), st.integers(0, 60), st.integers(1, 20))
def test_two_series_meet_at_the_first_moment_that_is_in_both(first_ms, every_ms, other_ms, other_every_ms):
    moments = set(range(first_ms, 1_000, every_ms)) & set(range(other_ms, 1_000, other_every_ms))

    assert meeting_ms(first_ms, every_ms, other_ms, other_every_ms) == min(moments, default=NEVER)


LATES = st.lists(
    st.builds(
        lambda at_ms, count, waves, every_ms: LateStart("s", at_ms, count, waves, every_ms if waves > 1 else 0),
        st.integers(0, 30),
        st.integers(1, 3),
        st.integers(1, 5),
        st.integers(1, 9),
    ),
    min_size=1,
    max_size=4,
)


@for_all(LATES, st.integers(0, 60), st.integers(-1, 80))
def test_waves_are_due_as_the_single_latest_starts_that_they_stand_for(said, started, now_ms):
    lates = [late_of(each) for each in said]
    moments = sorted(
        each.at_ms + wave * each.every_ms for each in said for wave in range(each.waves) for _ in range(each.count)
    )
    coming = [at_ms for at_ms in moments[started:] if at_ms > now_ms]

    assert due_by(lates, now_ms) == sum(at_ms <= now_ms for at_ms in moments)
    assert next_need(lates, started, now_ms) == min(coming, default=None)
    soon = [next_moment(late, now_ms) for late in lates]
    assert min([at_ms for at_ms in soon if at_ms is not None], default=None) == min(
        [at_ms for at_ms in moments if at_ms > now_ms], default=None
    )
