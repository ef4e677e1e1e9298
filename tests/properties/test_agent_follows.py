"""What an agent holds true of its node is what the sequencer holds true of it, after every record of any history."""

from hypothesis import strategies as st

from largesse.lifecycle import node_work as core
from largesse.lifecycle.job_life import is_broken
from largesse.lifecycle.node_work import HeldAttempt, Over, Start, Stop, attempt_key
from services.admission import core as admission
from tests.cells import SlowCell
from tests.properties.histories import NODES, Play, histories
from tests.strategies import for_all

SHARDS = 4  # As many as a history may ask for.
tree_names = st.sampled_from(["wide", "none"])


def played(history, tree_name):
    play = Play(SlowCell(SHARDS), tree_name)
    for step in history:
        play.step(*step)
    play.wind_up()
    return play.cell.records


def held_on(sequencer, node):
    """What the sequencer's core says a node holds: attempt -> its epoch, and whether it has begun."""
    found = {}
    if node in sequencer.nodes:
        for key, hold in sequencer.nodes[node].holds.items():
            job, stage, index = key.split("/")
            found[attempt_key(job, stage, int(index), hold.attempt)] = (hold.epoch, hold.started)
    return found


def must_stop(sequencer, held):
    """Whether an attempt's job is over, or its gang's attempt is broken."""
    job = sequencer.jobs.get(held.job)
    if job is None or job.over:
        return True
    at = job.graph.position[held.stage]
    return job.graph.stages[at].gang and is_broken(job.tries, at, held.attempt)


@for_all(histories(), tree_names)
def test_an_agent_holds_what_the_sequencer_holds_for_its_node(history, tree_name):
    sequencer = admission.start()
    agents = {node: core.start(node, "none yet") for node in NODES}
    for record in played(history, tree_name):
        if type(record.body) in admission.FOLDS:
            admission.fold(sequencer, record)
        for node, state in agents.items():
            core.fold(state, record)
            assert {key: (held.epoch, held.begun) for key, held in state.held.items()} == held_on(sequencer, node)
            for held in state.held.values():
                # A job that is out of retries is over before JobEnded says so to others.
                # What a drain's deadline revokes is the agent's alone to know until it has ended.
                if held.stop == "revoked":
                    continue
                if held.stop is not None or type(record.body).__name__ == "JobEnded":
                    assert (held.stop is not None) == must_stop(sequencer, held)


@for_all(histories(), tree_names)
def test_what_an_agent_takes_on_it_is_told_to_end_or_sees_ended(history, tree_name):
    records = played(history, tree_name)
    epochs = {record.body.node: record.body.epoch for record in records if record.type == "NodeRegistered"}
    for node, epoch in epochs.items():
        state = core.start(node, epoch)
        runs: dict[str, HeldAttempt] = {}
        for record in records:
            core.fold(state, record)
            for action in core.take(state):
                match action:
                    case Start(key, held):
                        assert runs.setdefault(key, held) is held, f"{key} is started twice"
                        assert held.epoch == epoch
                    case Stop(key):
                        assert key in state.held
                    case Over(key):
                        runs.pop(key, None)
        assert {key for key in runs if key not in state.held} == set()
