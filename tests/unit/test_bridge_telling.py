"""Which node a bridge tells next: each in turn, by one at a time, and nothing that came is forgotten."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from services.bridge.telling import Untold

NODES = ("a", "b", "c")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.sampled_from(NODES)),
        st.tuples(st.just("take"), st.none()),
        st.tuples(st.sampled_from(("told", "failed")), st.sampled_from(NODES)),
    ),
    max_size=40,
)


@given(STEPS)
def test_a_node_is_told_after_all_that_came_for_it_and_by_one_at_a_time(steps):
    async def story():
        untold, waiting, taken = Untold(), [], {}
        for what, node in steps:
            if what == "add":
                untold.add([node])
                if node in taken:
                    taken[node] = True
                elif node not in waiting:
                    waiting.append(node)
            elif what == "take" and waiting:
                assert await untold.take() == waiting[0]
                taken[waiting.pop(0)] = False
            elif what in ("told", "failed") and node in taken:
                untold.done(node, is_told=what == "told")
                if taken.pop(node) or what == "failed":
                    waiting.append(node)
        for node in waiting:
            assert await untold.take() == node
        late = asyncio.ensure_future(untold.take())
        await asyncio.sleep(0)
        assert not late.done()
        late.cancel()

    asyncio.run(story())


def test_who_is_given_up_while_waiting_takes_nothing_with_it():
    async def story():
        untold = Untold()
        first, second = asyncio.ensure_future(untold.take()), asyncio.ensure_future(untold.take())
        await asyncio.sleep(0)
        untold.add(["a"])
        first.cancel()
        assert await second == "a"
        assert first.cancelled()

    asyncio.run(story())
