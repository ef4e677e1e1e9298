"""Chance in importers: named, repeatable, and the same bytes on every interpreter."""

import inspect
from fractions import Fraction
from hashlib import sha256
from itertools import pairwise
from statistics import NormalDist

import pytest

from services.simulator.workloads.draws import arrivals_ms, below, drawn_names, normal_micro, stretched_ms
from services.simulator.workloads.importers import IMPORTERS, encode_line, summary_of


def digest(values):
    return sha256(repr(values).encode()).hexdigest()[:16]


def test_the_same_options_give_the_same_bytes_on_every_interpreter():
    assert digest(normal_micro()) == "9969ff46b7e1bfb8"
    assert digest(stretched_ms(20_000, 5_000, 300, 7, "job1|map")) == "92b16cf7ed1d0489"
    assert digest(list(arrivals_ms(20_000, 1_000, 7, "tpch.gap"))) == "943c0e5ab06020e8"
    assert digest([below(110, 7, "tpch.query", str(i)) for i in range(100)]) == "26fca2c9c5e80dcb"


def test_normal_deviates_lie_too_far_from_a_rounding_step_for_a_platform_to_matter():
    strata = len(normal_micro())
    exact = [NormalDist().inv_cdf((2 * i + 1) / (2 * strata)) * 10**6 for i in range(strata)]

    assert min(abs(z - int(z) - (0.5 if z >= 0 else -0.5)) for z in exact) > 1e-6
    assert all(a < b for a, b in pairwise(normal_micro()))


def test_stragglers_are_as_wide_as_they_should_be():
    durations = sorted(stretched_ms(1_000_000, 40_000, 300, 1, "a"))

    for percent, z in ((50, 0.0), (84, 1.0), (97.7, 2.0)):
        assert durations[int(40_000 * percent / 100)] == pytest.approx(1_000_000 * 2.718281828 ** (0.3 * z), rel=0.03)


def test_arrivals_without_a_gap_come_at_once():
    assert list(arrivals_ms(0, 3, 1, "x")) == [0, 0, 0]


def test_drawn_names_keep_their_order_and_are_all_where_there_are_few():
    names = [f"n{i}" for i in range(20)]

    assert drawn_names(names, 30, 1, "x") == names
    assert drawn_names(names, 5, 1, "x") == sorted(drawn_names(names, 5, 1, "x"), key=names.index)
    assert len({tuple(drawn_names(names, 5, seed, "x")) for seed in range(20)}) > 10


@pytest.mark.parametrize("name", sorted(IMPORTERS))
def test_an_importers_options_are_what_its_function_takes(name):
    importer = IMPORTERS[name]
    keywords = [p for p in inspect.signature(importer.convert).parameters.values() if p.kind is p.KEYWORD_ONLY]
    assert keywords.pop().name == "leave"

    assert [(option.name, option.default) for option in importer.OPTIONS] == [(p.name, p.default) for p in keywords]
    assert all(isinstance(option.default, option.parse) and option.help for option in importer.OPTIONS)
    assert all(option.default in option.choices for option in importer.OPTIONS if option.choices)
    assert len(summary_of(name)) > 20


def test_a_line_is_written_in_one_way():
    assert encode_line({"job": "é", "submit_ms": 0, "stages": []}) == '{"job":"\\u00e9","submit_ms":0,"stages":[]}'


def test_a_fraction_on_a_command_line_is_read_exactly():
    (stretch,) = (option for option in IMPORTERS["tpch"].OPTIONS if option.name == "stretch")

    assert stretch.parse("37.3") == Fraction(373, 10)
