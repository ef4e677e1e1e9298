"""Attempts as a table has them are those that the log tells of, whatever happens: against a reading of the records that
shares no line with it. Histories as in test_cores.py, with copies of slow tasks.
"""

from random import Random

from schemas import NodeLost, NodeRegistered, RoundClosed, TaskFailed, TaskFinished, TaskStarted
from services.gateway.attempts import AttemptTable
from tests.cells import SlowCell
from tests.properties.histories import Play, seeded_histories
from tests.strategies import for_all

KNOBS = {"speculation_permille": 1_000, "speculation_finished_min": 2, "speculation_copies_max": 3}
TREES = ("wide", "none", "deep", "capped")


def plainly(records, has):
    """By job, stage, index and attempt: node, when it was granted, started and ended, and how."""
    found = {}
    for record in records:
        body = record.body
        spare = {(each.job, each.stage, each.index, each.attempt) for each in getattr(body, "spare", [])}
        said = []
        match body:
            case RoundClosed(grants=grants):
                for grant in grants:
                    for index in range(grant.first, grant.first + grant.count):
                        if has(grant.job, grant.node):
                            found[grant.job, grant.stage, index, grant.attempt] = [
                                grant.node,
                                record.time,
                                None,
                                None,
                                "",
                            ]
            case TaskStarted(items=items):
                said = [(item, "running") for item in items]
            case TaskFinished(items=items):
                said = [(item, "succeeded") for item in items]
            case TaskFailed(items=items):
                said = [(item, item.reason) for item in items]
            case NodeLost(lost=lost):
                said = [(item, "lost") for item in lost]
            case NodeRegistered(lost=lost, attempts=attempts):
                said = [(item, "lost") for item in lost]
                said += [(item, item.reason if item.state == "failed" else item.state) for item in attempts]
        for item, how in said:
            for index in range(item.first, item.first + item.count):
                key = item.job, item.stage, index, item.attempt
                if key not in found:
                    continue
                row = found[key]
                if how == "running":
                    row[2] = record.time if row[2] is None else row[2]
                else:
                    superseded = key in spare and how == "succeeded"
                    row[3], row[4] = record.time, "superseded" if superseded else how
    return found


def table_of(records, has, upto):
    table = AttemptTable(has, 0, whole=True)
    for record in records:
        table.learn(record)
    return {key: [row.node, row.granted_ms, row.started_ms, row.ended_ms, row.outcome] for key, row in table.at(upto)}


@for_all(seeded_histories(60))
def test_attempts_are_those_that_the_log_tells_of(history):
    play, chance = Play(SlowCell(4), TREES[history.seed % len(TREES)], **KNOBS), Random(history.seed)
    for step in history.steps:
        play.step(*step)
    play.wind_up()
    records = play.cell.records
    jobs = sorted(play.specs)
    assert len(plainly(records, lambda job, node: True)) == sum(grant.count for grant in play.cell.granted)
    wanted = [lambda job, node: True]
    wanted += [lambda job, _, name=name: job == name for name in jobs[:3]]
    wanted += [lambda _, node, name=name: node == name for name in ("plain", "gpus")]
    for has in wanted:
        cut = chance.randint(0, len(records))
        assert table_of(records, has, len(records)) == plainly(records, has)
        assert table_of(records, has, cut) == plainly(records[:cut], has)
