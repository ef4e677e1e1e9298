"""Which devices of a node are out: by NVML, and by a file that has the last word."""

from pathlib import Path

import pytest

from schemas import Device
from services.agent.devices import nvml
from services.agent.devices.found import Found
from services.agent.devices.health import Fault, Health, read_health
from tests.recorded_nvml import Recorded, a100_switched, hybrid

FELL = Fault("Xid 79: fallen off the bus", ends=True)


def watch(recorded, file=None):
    found = Found(nvml.found(recorded), recorded)
    return Health(found.devices, found, file)


# ---------------------------------------------------------------- NVML
def test_gpus_that_are_well_are_in():
    recorded = hybrid()
    for card in recorded.cards:
        card.ecc_uncorrected, card.rows, card.celsius, card.slowdown = 0, (4, 0, 0, 0), 60, 90

    assert watch(recorded).look() == {}
    assert recorded.watched == recorded.cards


@pytest.mark.parametrize(
    ("broken", "fault"),
    [
        pytest.param(
            {"rows": (0, 1, 0, 1)}, Fault("a row of its memory could not be remapped", ends=True), id="failed"
        ),
        pytest.param(
            {"rows": (0, 1, 1, 0)}, Fault("memory is to be retired: it has to be reset", ends=False), id="row"
        ),
        pytest.param({"pages_pending": 1}, Fault("memory is to be retired: it has to be reset", ends=False), id="page"),
        pytest.param({"ecc_uncorrected": 2}, Fault("uncorrected ECC errors", ends=False), id="ECC"),
        pytest.param({"celsius": 90, "slowdown": 90}, Fault("too hot", ends=False), id="hot"),
        pytest.param({"celsius": 89, "slowdown": 90}, None, id="warm"),
        pytest.param({"lost": True}, Fault("fallen off the bus", ends=True), id="lost"),
    ],
)
def test_a_fault_takes_its_gpu_out_and_no_other(broken, fault):
    recorded = hybrid()
    health = watch(recorded)
    for name, value in broken.items():
        setattr(recorded.cards[2], name, value)

    assert health.look() == ({} if fault is None else {2: fault})


def test_a_gpu_comes_back_once_it_is_some_degrees_cooler():
    recorded = Recorded(hybrid().cards[0])
    card, health = recorded.cards[0], watch(recorded)
    card.slowdown = 90

    def is_out(celsius):
        card.celsius = celsius
        return bool(health.look())

    assert [is_out(celsius) for celsius in (89, 90, 86, 84, 89)] == [False, True, True, False, False]


@pytest.mark.parametrize(
    ("xids", "fault"),
    [
        pytest.param([31, 13, 43, 45], None, id="a program's own faults"),
        pytest.param([79], FELL, id="fallen off the bus"),
        pytest.param([63], Fault("Xid 63: a page or row of memory is to be retired", ends=False), id="to be retired"),
        pytest.param([63, 79, 94], FELL, id="the worst counts"),
        pytest.param([140], Fault("Xid 140", ends=True), id="one without a name here"),
    ],
)
def test_an_xid_counts_until_the_agent_starts_again(xids, fault):
    recorded = hybrid()
    health = watch(recorded)
    recorded.events.extend((recorded.cards[1], xid) for xid in xids)

    faults = [health.look(), health.look()]

    assert faults == [{} if fault is None else {1: fault}] * 2
    assert not recorded.events
    assert watch(recorded).look() == {}


def test_all_parts_of_a_divided_gpu_share_its_faults():
    recorded = a100_switched()
    health = watch(recorded)
    recorded.events.append((recorded.cards[7], 95))

    assert list(health.look()) == [800, 801, 802, 803]


# ---------------------------------------------------------------- the file
GPUS = [Device(0, uuid="GPU-a"), Device(1), Device(2)]


def test_a_file_says_how_devices_are():
    text = "# by hand\n\nGPU-a broken Xid 48\n 1\tdrain  looked at\x07 on Monday \n2 ok\n"

    said, wrong = read_health(text, GPUS)

    assert said == {0: Fault("Xid 48", ends=True), 1: Fault("looked at on Monday", ends=False), 2: None}
    assert wrong == ""


def test_the_last_line_of_a_device_counts_and_one_without_words_has_some():
    assert read_health("0 broken\n0 ok\n1 drain\n", GPUS)[0] == {0: None, 1: Fault("an operator says so", ends=False)}


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        pytest.param("7 broken", "line 2: no device here is called 7", id="no such device"),
        pytest.param("0 bad", "line 2: write DEVICE ok|drain|broken WHY", id="no such state"),
        pytest.param("0", "line 2: write DEVICE ok|drain|broken WHY", id="no state"),
    ],
)
def test_a_line_that_cannot_be_read_is_named_and_the_others_count(line, wrong):
    said, found = read_health(f"1 drain x\n{line}\n2 drain y\n", GPUS)

    assert found == wrong
    assert set(said) == {1, 2}


def test_the_file_has_the_last_word_and_takes_devices_out_and_in(tmp_path):
    file, recorded = tmp_path / "health", hybrid()
    health = watch(recorded, file)
    recorded.events.append((recorded.cards[1], 79))

    assert health.look() == {1: FELL}
    file.write_text("1 ok reset\n4 drain fan\n")
    assert health.look() == {4: Fault("fan", ends=False)}
    file.unlink()
    assert health.look() == {1: FELL}


def test_what_is_wrong_with_the_file_is_said_once_each_time(tmp_path):
    file = tmp_path / "health"
    health = Health(GPUS, file=file)
    remarks = []
    for text in ("x ok", "x ok", "0 ok", "x ok"):
        file.write_text(text)
        health.look()
        remarks.append(list(health.remarks))
        health.remarks = []

    said = [f"{file}: line 1: no device here is called x"]
    assert remarks == [said, [], [], said]


def test_without_nvml_and_file_nothing_is_asked():
    assert not Health(GPUS).is_asked
    assert Health(GPUS, file=Path("x")).is_asked
    assert not Health([], file=Path("x")).is_asked
