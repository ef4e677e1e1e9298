"""What an agent holds true of its node is what the sequencer holds true of it, after every record of any history; and
who follows all nodes at once holds true of each what an agent does.
"""

from dataclasses import asdict

from hypothesis import strategies as st

from largesse.lifecycle import node_work as core
from largesse.lifecycle.job_life import is_broken
from largesse.lifecycle.node_work import HeldAttempt, Over, Start, Stop, attempt_key
from largesse.log.snapshots import dump, load
from services.admission import core as admission
from tests.cells import SlowCell
from tests.properties import node_work_alone as alone
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
            holds = state.nodes[node].held.items()
            assert {key: (held.epoch, held.begun) for key, held in holds} == held_on(sequencer, node)
            for _, held in holds:
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
            for action in core.take(state, node):
                match action:
                    case Start(key, held):
                        assert runs.setdefault(key, held) is held, f"{key} is started twice"
                        assert held.epoch == epoch
                    case Stop(key):
                        assert key in state.nodes[node].held
                    case Over(key):
                        runs.pop(key, None)
        assert {key for key in runs if key not in state.nodes[node].held} == set()


def said_of(work):
    return {key: asdict(held) for key, held in work.held.items()}, work.held_of


def action_of(action):
    return type(action).__name__, asdict(action)


@for_all(histories(), tree_names)
def test_who_follows_all_nodes_holds_of_each_what_its_agent_holds(history, tree_name):
    """The reference folds for one node at a time, as agents once did."""
    records = played(history, tree_name)
    epochs = {(r.body.node, r.body.epoch) for r in records if r.type == "NodeRegistered"}
    agents = {place: alone.start(*place) for place in sorted(epochs)}
    cell = core.start_for_all()
    for record in records:
        core.fold(cell, record)
        for state in agents.values():
            alone.fold(state, record)
        if record.type == "NodeForgotten":  # And so are its epochs, but for those to come.
            past = [at for at, state in agents.items() if at[0] == record.body.node and state.standing != "new"]
            for at in past:
                del agents[at]
        for (node, epoch), state in agents.items():
            if (work := cell.nodes.get(node)) is None:
                assert not state.held
                continue
            assert said_of(work) == said_of(state)
            known = work.epochs.get(epoch, core.NOT_YET)
            assert (known.standing, known.rival, known.unschedulable) == (
                (state.standing, state.rival, state.unschedulable)
            )
            assert work.runs.keys() <= state.jobs.keys()
            for held in work.held.values():
                if held.job in state.jobs and state.jobs[held.job].run == held.run:
                    assert work.runs[held.job] == held.run
        if agents:
            (state, *_) = agents.values()
            assert (cell.hosts, cell.addresses, cell.node_lease_ms) == (
                (state.hosts, state.addresses, state.node_lease_ms)
            )
        core_jobs = {name: (job.run, job.over, job.handed) for name, job in cell.jobs.items()}
        for state in agents.values():
            assert core_jobs == {name: (job.run, job.over, job.handed) for name, job in state.jobs.items()}


@for_all(histories(), tree_names)
def test_an_agent_is_told_to_do_what_it_was_when_it_followed_its_node_alone(history, tree_name):
    records = played(history, tree_name)
    epochs = {record.body.node: record.body.epoch for record in records if record.type == "NodeRegistered"}
    for node, epoch in epochs.items():
        one, other = core.start(node, epoch), alone.start(node, epoch)
        for record in records:
            core.fold(one, record)
            alone.fold(other, record)
            assert list(map(action_of, core.take(one, node))) == list(map(action_of, alone.take(other)))


@for_all(histories(), tree_names, st.floats(0, 1))
def test_an_agent_that_begins_with_the_state_of_all_nodes_does_what_one_does_that_read_all(history, tree_name, part):
    """As a new one has to where the log's beginning is gone."""
    records = played(history, tree_name)
    cut = int(part * len(records))
    cell = core.start_for_all()
    for record in records[:cut]:
        core.fold(cell, record)
    known = {(r.body.node, r.body.epoch) for r in records[:cut] if r.type == "NodeRegistered"}
    later = {(r.body.node, r.body.epoch) for r in records[cut:] if r.type == "NodeRegistered"} - known
    for node, epoch in sorted(later):
        one, other = core.start(node, epoch), core.for_one(load(core.State, dump(cell)), node, epoch)
        for record in records[:cut]:
            core.fold(one, record)
            core.take(one, node)
        for each in (one, other):
            core.look_again(each.nodes[node])
        for record in [None, *records[cut:]]:
            if record is not None:
                core.fold(one, record)
                core.fold(other, record)
            assert list(map(action_of, core.take(other, node))) == list(map(action_of, core.take(one, node)))
            assert said_of(other.nodes[node]) == said_of(one.nodes[node])
            assert other.nodes[node].runs == one.nodes[node].runs


@for_all(histories(), tree_names)
def test_a_node_of_which_nothing_is_new_was_not_stirred_for_nothing_missed(history, tree_name):
    """What somebody who speaks to nodes would tell one changes only where the fold says that it may have."""
    cell, told = core.start_for_all(), {}
    for record in played(history, tree_name):
        core.fold(cell, record)
        for node, work in cell.nodes.items():
            now = (said_of(work)[0], {e: asdict(known) for e, known in work.epochs.items()}, dict(work.runs))
            if node not in cell.stirred:
                assert now == told[node]
            told[node] = now
        cell.stirred.clear()
