"""The table of rights on Kafka against what the code of each service does."""

import pytest

from largesse.bus.kafka.rights import Rule, compared, group_of, groups, reads, rules, writes
from largesse.bus.kafka.topic_settings import MEMBERSHIP, TOPICS
from schemas.principals import BY_PRINCIPAL, PRINCIPALS
from schemas.topics import CELLS, DECISIONS, INPUTS, LOG, ROUTER_JOBS, SNAPSHOTS
from services.altruism import core as altruism
from services.estimator import core as estimator
from services.fairness import core as fairness
from services.leftover import core as leftover
from services.planner import core as planner

CORES = (altruism, estimator, fairness, leftover, planner)


def test_everybody_in_the_table_of_topics_is_a_principal():
    named = {party for topic in TOPICS.values() for party in (*topic.readers, *topic.writers)}

    assert named == {principal.party for principal in PRINCIPALS}


@pytest.mark.parametrize("core", CORES, ids=lambda core: core.NAME)
def test_a_core_reads_what_its_shell_folds_and_writes_its_decision_and_snapshots(core):
    own = BY_PRINCIPAL[core.NAME]
    beside = ("reservations",) if core is planner else ()  # Series and better plans are asked for like anything else.

    assert set(reads(own)) == {LOG, SNAPSHOTS, CELLS, MEMBERSHIP.name, core.TOPIC, *core.UPSTREAM, *core.READS}
    assert set(writes(own)) == {SNAPSHOTS, core.TOPIC, *beside}
    assert groups(own) == [group_of(core.NAME, "")]


def test_the_log_is_written_by_the_sequencer_and_each_decision_by_one_service():
    assert [each.name for each in PRINCIPALS if LOG in writes(each)] == ["admission"]
    for topic in DECISIONS:
        assert len([each for each in PRINCIPALS if topic in writes(each)]) == 1


@pytest.mark.parametrize("name", ["gateway", "agent", "bridge", "router", "client", "reader", "operator"])
def test_who_is_no_part_of_a_round_writes_neither_log_nor_decisions(name):
    assert not {LOG, *DECISIONS} & set(writes(BY_PRINCIPAL[name]))


def test_who_only_reads_writes_nothing_and_clients_read_nothing():
    assert writes(BY_PRINCIPAL["reader"]) == []
    assert reads(BY_PRINCIPAL["client"]) == []
    assert set(writes(BY_PRINCIPAL["client"])) < {*INPUTS, ROUTER_JOBS}


def test_tokens_are_made_by_the_gateway_and_operators_alone():
    assert [each.name for each in PRINCIPALS if "access" in writes(each)] == ["gateway", "operator"]


def test_what_is_missing_and_what_is_beyond_the_table():
    (first, *rest), more = rules(), Rule("gateway", "topic", "grants", "Write")
    foreign = Rule("somebody", "topic", "grants", "Write")

    assert compared([*rest, more, foreign]) == ([first], [more])
    assert compared(rules()) == ([], [])
