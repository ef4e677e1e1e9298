"""A sign of life takes the place of a report only where the report would have changed nothing: whatever a node offers,
under whatever epoch, and whatever became of it.
"""

import asyncio

from hypothesis import strategies as st

from largesse.bus.memory import MemoryBus
from largesse.lifecycle import node_work
from schemas.edge.nodes import read_node
from tests.desk import Desk
from tests.strategies import for_all

OFFERS = (
    {"capacity": {"cpu": "4"}},
    {"capacity": {"cpu": "4", "memory": "1Gi"}},
    {"capacity": {"cpu": "4000m"}, "labels": {"zone": "a"}},
    {"capacity": {"cpu": "4"}, "unschedulable": "its disk is full"},
    {"capacity": {"cpu": "4", "gpu": "2"}},
    {"capacity": {"cpu": "4", "gpu": "2"}, "devices": {"gpu": [{"index": 0}, {"index": 1}]}},
    {"capacity": {"cpu": "4", "gpu": "2"}, "devices": {"gpu": [{"index": 1}, {"index": 2}]}},
    {"capacity": {"cpu": "-4"}},
)
said = st.tuples(
    st.sampled_from(["register", "report", "report", "leave"]), st.sampled_from(["e1", "e2"]), st.sampled_from(OFFERS)
)


@for_all(st.lists(said, max_size=8))
def test_a_report_of_which_a_sign_of_life_is_left_would_have_changed_nothing(history):
    async def story():
        desk = Desk(MemoryBus())
        await desk.turn()
        for form, epoch, offer in history:
            about = {"node": "n", "epoch": epoch}
            await desk.take("nodes", {form: about if form == "leave" else {**about, **offer}})
        state = node_work.start_for_all()
        for each in await desk.records():
            node_work.fold(state, each.record)
        lessened = 0
        for epoch in ("e1", "e2"):
            for offer in OFFERS[:-1]:
                document = {"report": {"node": "n", "epoch": epoch, **offer}}
                if node_work.has(state, read_node(document, "agent:n")):
                    lessened += 1
                    assert await desk.take("nodes", document) == []
        registered = any(of.standing == "registered" for work in state.nodes.values() for of in work.epochs.values())
        assert lessened >= registered, "what the log has of a node that lives needs no report"

    asyncio.run(story())
