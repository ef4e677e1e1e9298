"""Counters of a keeper and its cells as one text that Prometheus reads."""

import asyncio
import socket

from prometheus_client.parser import text_string_to_metric_families

from largesse.process.cell_reports import ASK, CellReport, answer_reports, merged
from largesse.telemetry import exposition

OWN = "# HELP up Is it up\n# TYPE up gauge\nup 1.0\n"
CELL = '# HELP up Is it up\n# TYPE up gauge\nup 0.0\n# HELP n_total All\n# TYPE n_total counter\nn_total{x="a{"} 2.0\n'


def test_cells_get_a_label_and_every_family_stays_in_one_piece():
    text = merged(OWN, {"b": CELL, "a": CELL})

    assert text.splitlines() == [
        *("# HELP up Is it up", "# TYPE up gauge", "up 1.0", 'up{cell="a"} 0.0', 'up{cell="b"} 0.0'),
        *("# HELP n_total All", "# TYPE n_total counter"),
        *('n_total{cell="a",x="a{"} 2.0', 'n_total{cell="b",x="a{"} 2.0'),
    ]


def test_what_this_process_says_is_read_back_whole():
    own = exposition()[1].decode()

    families = list(text_string_to_metric_families(merged(own, {"c": own})))

    assert len({family.name for family in families}) == len(families)
    for family in families:
        if not family.name.startswith(
            ("largesse_cells_failed", "largesse_router_sent")
        ):  # They have the label themselves.
            assert 2 * sum(sample.labels.get("cell") == "c" for sample in family.samples) == len(family.samples)


def test_a_cell_answers_its_keeper_as_often_as_it_asks_and_an_answer_that_is_gone_is_none():
    async def story():
        ours, theirs = socket.socketpair()
        report = CellReport(ours)
        answering = asyncio.create_task(answer_reports(theirs))
        for _ in range(2):
            late, metrics = await report.ask()
            assert late == []
            assert "largesse_build_info" in metrics
        answering.cancel()
        await asyncio.wait([answering])
        report.close()
        assert ASK == b"?"

    asyncio.run(story())


def test_a_cell_that_has_ended_gives_no_answer():
    async def story():
        ours, theirs = socket.socketpair()
        theirs.close()
        report = CellReport(ours)
        assert await report.ask() is None
        report.close()

    asyncio.run(story())
