"""Of a log with reservations, nodes that fail and jobs that give to others, too, no change goes untold."""

from collections import Counter
from random import Random
from typing import get_args

import pytest

from schemas.presets import Preset
from services.gateway.changes import Changes
from services.replay.viewing import learn, viewing
from services.simulator.drawn import drawn_cluster
from services.simulator.drawn_reservations import KNOBS, drawn_arrivals
from services.simulator.outages import Outage
from tests.properties.test_change_stream import check, poll
from tests.simulation.test_what_if import recorded

JOBS = 10


def drawn(path, seed, preset):
    nodes = drawn_cluster(seed)
    spans = [Outage(node.name, 2_000 + 1_000 * at, 35_000) for at, node in enumerate(nodes.nodes[:3])]
    arrivals = sorted(drawn_arrivals(seed, preset), key=lambda arrival: arrival[0])[:JOBS]
    return recorded(path, arrivals, nodes, {"preset": preset, "seed": seed, **KNOBS}, spans)[0]


@pytest.mark.slow
@pytest.mark.rotating(3)
@pytest.mark.parametrize("preset", get_args(Preset))
def test_no_change_of_a_recorded_cell_goes_untold(tmp_path, preset):
    chance = Random(preset)
    source = drawn(tmp_path / "log", chance.randrange(100), preset)
    hosted = viewing(source.start)
    kept, polls = Changes(hosted.state), {0: poll(hosted.state)}
    told: Counter[str] = Counter()
    for step in source.steps():
        record = step.accepted.record
        learn(hosted, step)
        kept.take(record)
        if chance.random() < 0.5:
            continue
        polls[record.seq] = poll(hosted.state)
        first = chance.choice([*polls][-8:-1])
        found = kept.since(first)
        check(found, polls[first], polls[record.seq])
        for kind, (count, _) in found.names.items():
            told[kind] += count
    assert told["jobs"]
    assert told["nodes"]
