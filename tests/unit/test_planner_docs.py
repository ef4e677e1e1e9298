"""The example of docs/reservations.md does what the page says."""

import re

from services.planner.offline.solve import parsed, solve
from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "reservations.md").read_text()


def test_the_example_is_answered_as_the_page_says():
    problem = re.search(r"<<'END'\n(.*?)\nEND\n", PAGE, re.DOTALL)
    assert problem is not None

    answer = solve(parsed(problem[1]))

    report, training, imported = answer["results"]
    assert [report["accepted"], training["accepted"], imported["accepted"]] == [True, True, False]
    assert [lease["n"] for lease in report["leases"]] == [8, 10]
    assert training["moved"] == ["report"]
    assert imported["offer"]["from"] == training["leases"][0]["from"]
