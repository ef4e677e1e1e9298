"""The decisions of the services have an index by room."""

import re
from pathlib import Path

TEXT = (Path(__file__).parents[2] / "services/DECISIONS.md").read_text()


def test_every_decision_stands_in_the_index_once_and_those_that_were_replaced_behind_the_others():
    current, _, superseded = TEXT.partition("\n# Superseded\n")
    index = [
        int(number) for row in re.findall(r"^\|.*\| ([0-9, ]+) \|$", current, re.MULTILINE) for number in row.split(",")
    ]
    numbers = [int(number) for number in re.findall(r"^## ([0-9]+)\. ", current, re.MULTILINE)]
    replaced = [int(number) for number in re.findall(r"^## ([0-9]+)\. ", superseded, re.MULTILINE)]

    assert len(set(numbers + replaced)) == len(numbers) + len(replaced)
    assert sorted(index) == sorted(numbers)
    assert replaced
