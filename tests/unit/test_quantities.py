"""Quantities as people write them become whole base units; vectors and devices are compared without rounding."""

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import strategies as st

from largesse.bodies import read_yaml
from schemas.edge.read import read_input
from schemas.edge.strict_json import loads
from schemas.quantities import (
    QUANTITY_MAX,
    SHARE_UNITS,
    add_amounts,
    dominant_share,
    fits_in,
    on_devices,
    parse_quantity,
    quantity_text,
    rounded_text,
    vector_text,
)
from tests.strategies import for_all


@pytest.mark.parametrize(
    ("resource", "value", "up", "down"),
    [
        pytest.param("cpu", "2", 2000, 2000, id="cores"),
        pytest.param("cpu", "500m", 500, 500, id="millicores"),
        pytest.param("cpu", "0.1", 100, 100, id="a tenth of a core, exactly"),
        pytest.param("cpu", "0.0001", 1, 0, id="less than a millicore"),
        pytest.param("cpu", 2, 2000, 2000, id="a bare number is cores too"),
        pytest.param("cpu", Decimal("0.5"), 500, 500, id="half a core"),
        pytest.param("cpu", Decimal("1E+1"), 10_000, 10_000, id="a number with an exponent"),
        pytest.param("cpu", Decimal("0.1"), 100, 100, id="a bare tenth, exactly"),
        pytest.param("gpu", 1, 1000, 1000, id="a bare GPU"),
        pytest.param("gpu", "0.5", 500, 500, id="half a GPU"),
        pytest.param("memory", "2Gi", 2048, 2048, id="binary bytes"),
        pytest.param("memory", "1G", 954, 953, id="decimal bytes are not whole MiB"),
        pytest.param("memory", "1048576", 1, 1, id="bytes"),
        pytest.param("memory", "500m", 1, 0, id="half a byte"),
        pytest.param("memory", 1 << 30, 1024, 1024, id="bare memory is bytes"),
        pytest.param("memory", 1_000_000, 1, 0, id="the least bare memory"),
        pytest.param("memory", 0, 0, 0, id="no memory"),
        pytest.param("memory", "0", 0, 0, id="no memory, as a text"),
        pytest.param("disk", "1Ti", 1 << 20, 1 << 20, id="disk as memory"),
        pytest.param("network", "10G", 10_000, 10_000, id="bits a second"),
        pytest.param("network", 10**10, 10_000, 10_000, id="bare bits a second"),
        pytest.param("network", "10Gi", 10_738, 10_737, id="binary bits a second"),
        pytest.param("disk_io", "64M", 64, 64, id="disk speed as network"),
        pytest.param("disk_io", "1k", 1, 0, id="a thousandth of a Mbit"),
        pytest.param("licence", "3", 3, 3, id="a custom resource is counted"),
        pytest.param("licence", 3, 3, 3, id="a bare count"),
        pytest.param("licence", Decimal("3.0"), 3, 3, id="a whole number with a point"),
        pytest.param("licence", "5k", 5000, 5000, id="thousands of it"),
        pytest.param("cpu", 0, 0, 0, id="nothing"),
        pytest.param("cpu", f"{QUANTITY_MAX}m", QUANTITY_MAX, QUANTITY_MAX, id="the most there is"),
    ],
)
def test_a_quantity_in_base_units(resource, value, up, down):
    assert parse_quantity(resource, value, round_up=True) == up
    assert parse_quantity(resource, value, round_up=False) == down


@pytest.mark.parametrize(
    "text",
    [
        "",
        " 1",
        "1 ",
        "two",
        "1e3",
        "+1",
        "1.",
        ".5",
        "1,5",
        "2ki",
        "2mi",
        "2K",
        "2kB",
        "٣",
    ],
)
def test_what_is_no_quantity_is_refused_with_an_example(text):
    with pytest.raises(ValueError, match='write a number with an optional suffix, like "500m"'):
        parse_quantity("memory", text, round_up=True)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("1.0000000001", "^has too many digits: at most 18 before the point and 9 behind it"),
        ("1" * 19, "^is too large"),
    ],
)
def test_a_number_that_is_too_long_is_told_so(text, reason):
    with pytest.raises(ValueError, match=reason):
        parse_quantity("memory", text, round_up=True)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("1GB", "1G"),
        ("100MiB", "100Mi"),
        ("2kB", "2k"),
        ("2K", "2k"),
        ("2ki", "2Ki"),
        ("1.5gb", "1.5G"),
        ("1 Gi", "1Gi"),
        ("7 ", None),
        ("512b", None),
        ("2000000b", "2000000"),
        ("3tib", "3Ti"),
        ("2000000 bytes", "2000000"),
        ("2 cores", None),
        ("1e3", None),
        ("two", None),
        ("", None),
        ("-1GB", None),
    ],
)
def test_a_suffix_of_another_custom_is_refused_with_the_one_that_is_taken(text, meant):
    with pytest.raises(ValueError, match="suffixes: m, k, M, G, T, P, Ki, Mi, Gi, Ti, Pi") as refused:
        parse_quantity("memory", text, round_up=True)

    suggestion = str(refused.value).partition("; did you mean ")[2]
    assert suggestion == (f'"{meant}"?' if meant else "")
    if meant:
        parse_quantity("memory", meant, round_up=True)


@pytest.mark.parametrize(
    ("resource", "value", "said"),
    [
        ("cpu", -1, "may not be negative, is -1"),
        ("cpu", QUANTITY_MAX + 1, "is too large: the most is 9007199254740991m"),
        ("cpu", "9007199254741", "is too large: the most is 9007199254740991m"),
        ("licence", "10P", "is too large: the most is 9007199254740991"),
    ],
)
def test_a_quantity_beyond_the_limits_is_refused(resource, value, said):
    with pytest.raises(ValueError, match=said):
        parse_quantity(resource, value, round_up=True)


def test_the_largest_quantities_are_taken():
    assert parse_quantity("licence", "9P", round_up=True) == 9 * 10**15
    assert parse_quantity("licence", str(QUANTITY_MAX), round_up=True) == QUANTITY_MAX


@for_all(
    st.sampled_from(["cpu", "memory", "network", "licence"]),
    st.integers(0, 5_000),
    st.integers(0, 999),
    st.sampled_from(["m", "k", "Ki", "M", "Mi", "G"]),
)
def test_demands_round_up_and_capacities_down_to_the_next_unit(resource, whole, thousandths, suffix):
    # What is counted is counted in whole numbers.
    text = f"{whole}{suffix}" if resource == "licence" and suffix != "m" else f"{whole}.{thousandths:03}{suffix}"
    if resource == "licence" and suffix == "m":
        text = f"{whole}000m"

    demand = parse_quantity(resource, text, round_up=True)
    capacity = parse_quantity(resource, text, round_up=False)

    assert capacity <= demand <= capacity + 1


@pytest.mark.parametrize(
    ("written", "cpu"),
    [("0.5", 500), ("0.1", 100), ("1", 1000), ("1.0", 1000), ("1e1", 10_000), ('"0.3"', 300), ("0.0001", 1)],
)
def test_a_decimal_of_a_document_is_exact(written, cpu):
    stage = f'{{"stage": "s", "tasks": 1, "duration_ms": 1, "demand": {{"cpu": {written}}}}}'
    for spec in (f'{{"stages": [{stage}]}}'.encode(), f"stages: [{stage}]".encode()):
        document = loads(spec) if spec.startswith(b"{") else read_yaml(spec)
        assert read_input("jobs", document, "").stages[0].demand == {"cpu": cpu}


@pytest.mark.parametrize("resource", ["memory", "disk"])
@pytest.mark.parametrize("value", [512, 999_999, "512", Decimal("512"), "0.5"])
def test_a_few_bare_bytes_are_refused_with_what_was_meant(resource, value):
    with pytest.raises(ValueError, match=f'{value} is {value} bytes: write "{value}Mi" for {value} MiB'):
        parse_quantity(resource, value, round_up=True)


@pytest.mark.parametrize("resource", ["network", "disk_io"])
def test_a_few_bare_bits_are_refused_with_what_was_meant(resource):
    with pytest.raises(ValueError, match='100 is 100 bit/s: write "100M" for 100 Mbit/s, "100G" for 100 Gbit/s'):
        parse_quantity(resource, 100, round_up=False)


@pytest.mark.parametrize("value", ["2.5", Decimal("2.5"), "500m"])
def test_what_is_counted_is_counted_in_whole_numbers(value):
    assert parse_quantity("licence", "0.5k", round_up=True) == 500
    with pytest.raises(ValueError, match='"licence" is counted in whole numbers'):
        parse_quantity("licence", value, round_up=True)


@for_all(
    st.dictionaries(st.sampled_from("abc"), st.integers(0, 5)),
    st.dictionaries(st.sampled_from("abc"), st.integers(0, 5)),
)
def test_a_demand_fits_in_room_that_holds_it_in_every_resource(demand, room):
    assert fits_in(demand, room) == all(room.get(r, 0) - amount >= 0 for r, amount in demand.items())


def test_what_a_node_does_not_have_fits_only_as_nothing():
    assert fits_in({"gpu": 0}, {"cpu": 1})
    assert not fits_in({"gpu": 1}, {"cpu": 1})


@pytest.mark.parametrize(
    ("use", "capacity", "share"),
    [
        pytest.param({"cpu": 1, "memory": 1}, {"cpu": 2, "memory": 4}, SHARE_UNITS // 2, id="the larger of two"),
        pytest.param({"cpu": 1}, {"cpu": 3}, SHARE_UNITS // 3, id="rounded down"),
        pytest.param({"gpu": 5}, {"cpu": 2, "gpu": 0}, 0, id="a resource that nobody has never counts"),
        pytest.param({"licence": 5}, {"cpu": 2}, 0, id="nor one that the cell does not know"),
        pytest.param({}, {"cpu": 2}, 0, id="no use, no share"),
    ],
)
def test_dominant_share(use, capacity, share):
    assert dominant_share(use, capacity) == share


@pytest.mark.parametrize(
    ("milli", "free", "taken"),
    [
        pytest.param(0, [1000], [], id="nothing"),
        pytest.param(1000, [500, 1000, 1000], [(1, 1000)], id="a whole device is an untouched one, the first"),
        pytest.param(500, [1000, 600, 500], [(2, 500)], id="a fraction lies where it fits most tightly"),
        pytest.param(500, [600, 600], [(0, 500)], id="the first of two alike"),
        pytest.param(1500, [1000, 700, 1000], [(0, 1000), (1, 500)], id="one and a half"),
        pytest.param(2000, [1000, 999, 1000], [(0, 1000), (2, 1000)], id="two whole ones"),
        pytest.param(600, [500, 500], None, id="a fraction does not lie on two devices"),
        pytest.param(1500, [1000, 400], None, id="nor is the rest of a whole one used twice"),
        pytest.param(2000, [1000, 999], None, id="an almost free device is no whole one"),
    ],
)
def test_devices_for_a_demand(milli, free, taken):
    before = list(free)

    assert on_devices(milli, free) == taken
    assert free == before


@for_all(st.integers(0, 4000), st.lists(st.integers(0, 1000), max_size=6))
def test_devices_that_are_given_hold_what_is_taken_of_them(milli, free):
    taken = on_devices(milli, free)

    if taken is not None:
        assert sum(amount for _, amount in taken) == milli
        assert len({position for position, _ in taken}) == len(taken)
        assert all(free[position] >= amount for position, amount in taken)
    else:
        # Exactly what cannot be done: too few whole ones, or none left for the fraction.
        whole, part = divmod(milli, 1000)
        untouched = sum(room >= 1000 for room in free)
        rest = sorted(free, reverse=True)[whole:]
        assert untouched < whole or (part and max(rest, default=0) < part)


def test_an_exact_value_is_kept_exactly():
    for thousandths in range(1000):
        assert parse_quantity("cpu", f"0.{thousandths:03}", round_up=True) == Fraction(thousandths)


@for_all(
    st.sampled_from(["cpu", "gpu", "memory", "disk", "network", "disk_io", "licence"]), st.integers(0, QUANTITY_MAX)
)
def test_an_amount_that_is_written_reads_back_as_the_same(resource, amount):
    text = quantity_text(resource, amount)

    assert parse_quantity(resource, text, round_up=False) == parse_quantity(resource, text, round_up=True) == amount


@pytest.mark.parametrize(
    ("resource", "amount", "text"),
    [
        ("cpu", 2_000, "2"),
        ("cpu", 2_500, "2500m"),
        ("memory", 3 << 20, "3Ti"),
        ("memory", 7_680, "7680Mi"),
        ("disk", 2_048, "2Gi"),
        ("disk", 0, "0Mi"),
        ("network", 10_000, "10G"),
        ("disk_io", 800, "800M"),
        ("licence", 7, "7"),
    ],
)
def test_an_amount_as_people_write_it(resource, amount, text):
    assert quantity_text(resource, amount) == text


@pytest.mark.parametrize(
    ("resource", "amount", "text"),
    [
        ("memory", 7_680, "7.5Gi"),
        ("memory", 1_025, "1Gi"),
        ("memory", 2_047, "1.99Gi"),
        ("disk", 129_009, "125.98Gi"),
        ("memory", 1_126, "1.09Gi"),
        ("memory", (1 << 20) - 1, "1023.99Gi"),
        ("memory", 3 << 19, "1.5Ti"),
        ("memory", 1_023, "1023Mi"),
        ("memory", 0, "0Mi"),
        ("cpu", 2_500, "2500m"),
        ("network", 10_500, "10500M"),
        ("licence", 7, "7"),
    ],
)
def test_an_amount_is_rounded_down_for_people_to_read(resource, amount, text):
    assert rounded_text(resource, amount) == text


@for_all(st.sampled_from(["cpu", "gpu", "memory", "disk", "network", "licence"]), st.integers(0, QUANTITY_MAX))
def test_what_is_rounded_is_never_more_and_off_by_less_than_a_hundredth(resource, amount):
    read = parse_quantity(resource, rounded_text(resource, amount), round_up=False)

    assert amount - max(amount // 100, 1) <= read <= amount


@pytest.mark.parametrize(
    ("times", "sums"),
    [
        pytest.param(3, {"cpu": 7_000, "gpu": 5, "memory": 300}, id="more"),
        pytest.param(-1, {"cpu": -1_000, "gpu": 5, "memory": -100}, id="fewer"),
        pytest.param(0, {"cpu": 1_000, "gpu": 5, "memory": 0}, id="a kind that is named stays"),
    ],
)
def test_amounts_are_added_so_many_times(times, sums):
    found = {"cpu": 1_000, "gpu": 5}

    add_amounts(found, {"cpu": 2_000, "memory": 100}, times)

    assert found == sums


def test_a_vector_is_told_in_its_order():
    assert vector_text({"memory": 7_680, "cpu": 2_000}) == "memory 7.5Gi, cpu 2"


@pytest.mark.parametrize("text", ["-1", "-64Mi", "-500m"])
def test_a_text_below_nothing_is_refused_as_a_number_is(text):
    with pytest.raises(ValueError, match=f'may not be negative, is "{text}"'):
        parse_quantity("memory", text, round_up=True)
