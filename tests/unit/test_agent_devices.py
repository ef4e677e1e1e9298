"""Which GPUs a node has: found by NVML, or declared in a file."""

import inspect

import pytest

from largesse.settings import Settings, SettingWrong
from schemas import Device
from schemas.edge.nodes import read_node
from schemas.nodes import devices_of
from services.agent.devices import found as finding
from services.agent.devices import nvml, sysfs
from services.agent.settings import read_node_settings
from tests.recorded_nvml import Recorded, a100_switched, hybrid


def found(recorded, root="/nowhere"):
    return [gpu.device for gpu in nvml.found(recorded, sysfs.Path(root))]


def test_gpus_joined_by_links_are_a_group_and_others_are_none():
    devices = found(hybrid())

    assert [(device.index, device.link) for device in devices] == [
        (0, "nvlink-0"), (1, "nvlink-0"), (2, "nvlink-2"), (3, "nvlink-2"), (4, "")
    ]  # fmt: skip
    assert devices[4] == Device(4, 1_000, "Tesla T4", 15_360, None, "", "GPU-0000000t-0000-0000-0000-000000000000", "")


def test_gpus_behind_switches_are_one_group_and_a_divided_one_is_its_parts():
    devices = found(a100_switched())

    assert [device.link for device in devices[:7]] == ["nvlink-0"] * 7
    assert [(device.index, device.milli, device.uuid, device.memory_mib) for device in devices[7:]] == [
        (800, 428, "MIG-a", 19_968), (801, 285, "MIG-b", 9_856), (802, 142, "MIG-c", 4_864), (803, 142, "MIG-d", 4_864)
    ]  # fmt: skip


def test_the_numa_node_is_the_one_that_the_kernel_names(tmp_path):
    for place, node in (("0000:15:00.0", "0"), ("0000:16:00.0", "1"), ("0000:17:00.0", "-1")):
        folder = tmp_path / "bus/pci/devices" / place
        folder.mkdir(parents=True)
        (folder / "numa_node").write_text(f"{node}\n")

    assert [device.numa for device in found(hybrid(), tmp_path)] == [0, 1, None, None, None]


def test_what_is_found_can_be_registered():
    gpus = [gpu.device for gpu in nvml.found(a100_switched())]
    listed = [{name: getattr(gpu, name) for name in Device.__slots__} for gpu in gpus]

    body = read_node({"report": {"node": "n", "epoch": "e", "capacity": {}, "devices": {"gpu": listed}}}, "")

    assert body.devices == gpus
    assert body.capacity == {"gpu": 7_000 + 428 + 285 + 142 + 142}


def test_a_gpu_that_is_lost_is_none_of_them():
    recorded = hybrid()
    recorded.cards[1].lost = True

    assert [device.index for device in found(recorded)] == [0, 1, 2, 3]


def test_without_a_driver_there_are_none_and_that_is_said(monkeypatch):
    def absent():
        raise nvml.NoLibrary("NVML: NVML Shared Library Not Found")

    monkeypatch.setattr(nvml, "library", absent)
    monkeypatch.setattr(sysfs, "seen", lambda: {"NVIDIA": 2})

    here = finding.find_devices()

    assert here.devices == []
    assert here.text.startswith("none found: NVML: NVML Shared Library Not Found; the kernel sees 2 of NVIDIA")


def test_the_kernel_sees_gpus_and_leaves_out_what_shows_a_picture(tmp_path):
    for card, vendor, kind in (
        ("card0", "0x1a03", "0x030000"),
        ("card1", "0x10de", "0x030200"),
        ("card1-DP-1", "", ""),
    ):
        folder = tmp_path / "class/drm" / card / "device"
        folder.mkdir(parents=True)
        (folder / "vendor").write_text(vendor + "\n")
        (folder / "class").write_text(kind + "\n")

    assert sysfs.seen(tmp_path) == {"NVIDIA": 1}


def test_the_library_has_what_is_asked_of_it():
    pynvml = pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    for name, function in inspect.getmembers(nvml.Library, inspect.isfunction):
        if name.startswith("nvml"):
            takes = list(inspect.signature(getattr(pynvml, name)).parameters)
            assert len(takes) >= len(inspect.signature(function).parameters) - 1, name
            assert hasattr(Recorded, name), name
    assert issubclass(pynvml.NVMLError, Exception)
    assert pynvml.NVML_NVLINK_DEVICE_TYPE_GPU == nvml.TO_GPU
    assert pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH == nvml.TO_SWITCH


# ---------------------------------------------------------------- declared
def declared(tmp_path, text, offer="{}"):
    (tmp_path / "gpus.yaml").write_text(text)
    environment = {"LARGESSE_NODE_DEVICES": str(tmp_path / "gpus.yaml"), "LARGESSE_NODE_OFFER": offer}
    return read_node_settings(Settings(), environment)


def test_a_file_lists_the_devices_of_a_node(tmp_path):
    text = """
gpu:
  - {index: 1, model: A100, memory_mib: 81920, numa: 0, link: a}
  - {index: 0, uuid: GPU-1b2c}
"""

    node = declared(tmp_path, text)

    assert node.devices == [Device(0, uuid="GPU-1b2c"), Device(1, 1_000, "A100", 81_920, 0, "a")]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param(
            "gpu:\n  - index: 0\n    modell: A100\n", "gpu[0].modell: unknown field; did you mean", id="a typo"
        ),
        pytest.param(
            "gpu:\n  - index: 0\n  - index: 0\n", "gpu[1].index: 0 is the index of another", id="an index twice"
        ),
        pytest.param(
            "gpu:\n- {index: 0, uuid: GPU-a}\n- {index: 1, uuid: GPU-a}\n", "gpu[1].uuid: GPU-a is", id="a UUID twice"
        ),
        pytest.param("gpu:\n- index: 0\n  numa: -1\n", "gpu[0].numa: ", id="no such NUMA node"),
        pytest.param("gpu:\n- index: 0\n  uuid: a,b\n", "gpu[0].uuid: ", id="a UUID with a comma"),
        pytest.param("gpu:\n- index: 0\n  out: broken\n", "gpu[0].out: is told as a device goes out", id="health"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_its_field_and_line(tmp_path, text, said):
    with pytest.raises(SettingWrong) as fault:
        declared(tmp_path, text)

    assert f"gpus.yaml: {said}" in str(fault.value)
    assert f"(line {len(text.splitlines())})" in str(fault.value)


def test_a_file_is_yaml_with_devices(tmp_path):
    with pytest.raises(SettingWrong, match="gpu: lists no device: write"):
        declared(tmp_path, "gpu: []\n")
    with pytest.raises(SettingWrong, match=r"is no YAML: .* at line 2"):
        declared(tmp_path, "gpu:\n\t- index: 0\n")
    with pytest.raises(SettingWrong, match="has to be auto, none or a file that can be read: No such file"):
        read_node_settings(Settings(), {"LARGESSE_NODE_DEVICES": str(tmp_path / "none.yaml")})


def test_gpus_are_named_in_one_place(tmp_path):
    with pytest.raises(SettingWrong, match="LARGESSE_NODE_OFFER names GPUs as well"):
        declared(tmp_path, "gpu: [{index: 0}]\n", '{"capacity": {"cpu": 1, "gpu": 1}}')


def test_devices_are_found_or_there_are_none():
    assert read_node_settings(Settings(), {"LARGESSE_NODE_DEVICES": "auto"}).find_devices
    assert not read_node_settings(Settings(), {"LARGESSE_NODE_DEVICES": "none"}).find_devices
    assert not read_node_settings(Settings(), {}).find_devices


# ---------------------------------------------------------------- out
def test_a_device_that_is_out_is_none_of_a_nodes_capacity():
    gpus = [{"index": 0}, {"index": 1, "out": "Xid 79: fell off the bus"}]
    report = {"node": "n", "epoch": "e", "capacity": {"cpu": 1}, "devices": {"gpu": gpus}}

    body = read_node({"report": report}, "")

    assert body.capacity == {"cpu": 1_000, "gpu": 1_000}
    assert devices_of(body.capacity, body.devices) == [Device(0)]
    assert body.devices[1].out == "Xid 79: fell off the bus"


def test_a_node_all_of_whose_devices_are_out_has_none():
    gpus = [{"index": 0, "out": "broken"}]

    body = read_node({"report": {"node": "n", "epoch": "e", "capacity": {}, "devices": {"gpu": gpus}}}, "")

    assert body.capacity == {}
    assert devices_of(body.capacity, body.devices) == []
