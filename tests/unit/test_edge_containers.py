"""Stages whose tasks run in containers, from what people write to the nodes that they may run on."""

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import strategies as st

from largesse.lifecycle.dag import graph_of, lean
from largesse.lifecycle.empty_nodes import stage_problem
from schemas import Container, JobSpec, Mount, Stage
from schemas.edge.base import Malformed
from schemas.edge.containers import ContainerInput, MountInput, container_of
from schemas.edge.job_document import job_document
from schemas.edge.read import read_input
from schemas.jobs import ENGINE_LABEL
from services.gateway.why.waits import _labels
from services.replay.redaction import Names, walk
from tests.strategies import for_all


@dataclass
class Node:
    capacity: dict[str, int]
    labels: dict[str, str] = field(default_factory=dict)
    devices: list = field(default_factory=list)


def stage(container, **fields):
    return {"stage": "s", "tasks": 1, "demand": {"cpu": "1"}, "command": ["true"], "container": container, **fields}


def read(container, **fields):
    return read_input("jobs", {"stages": [stage(container, **fields)]}, "ann").stages[0]


def refused(container, **fields):
    with pytest.raises(Malformed) as fault:
        read(container, **fields)
    return str(fault.value).removeprefix("stages[0].")


def test_a_container_is_read_with_every_default_filled_in():
    assert read({"image": "debian"}).container == Container("debian")
    full = {
        "image": "registry.example:5000/team/app:1.2@sha256:" + "0" * 64,
        "mounts": [{"source": "/data//in/", "target": "/in", "read_only": False}, {"source": "/etc/hosts"}],
        "user": "1000:1000",
        "network": "none",
        "read_only_root": True,
        "shm_mib": 64,
        "pull": "never",
    }
    mounts = [Mount("/data/in", "/in", False), Mount("/etc/hosts", "/etc/hosts", True)]
    assert read(full).container == Container(full["image"], mounts, "1000:1000", "none", True, 64, "never")


def test_a_stage_with_a_container_asks_for_a_node_with_an_engine():
    assert read({"image": "debian"}, labels={"zone": "a"}).labels == {ENGINE_LABEL: "true", "zone": "a"}
    assert read(None, labels={"zone": "a"}).labels == {"zone": "a"}


@pytest.mark.parametrize(
    ("container", "fields", "problem"),
    [
        ({}, {}, "container.image: is missing"),
        ("debian", {}, "container: has to be an object"),
        ({"image": "Debian"}, {}, "container.image: has to be an image, like"),
        ({"image": "debian", "img": 1}, {}, "container.img: unknown field"),
        ({"image": "debian", "network": "hosts"}, {}, "container.network: has to be one of"),
        ({"image": "debian", "user": "a b"}, {}, "container.user: has to be a user"),
        ({"image": "debian", "shm_mib": 0}, {}, "container.shm_mib:"),
        ({"image": "debian"}, {"cwd": "sub"}, "cwd: has to begin with / in a container"),
        ({"image": "debian"}, {"labels": {ENGINE_LABEL: "no"}}, f"labels.{ENGINE_LABEL}: is"),
        ({"image": "debian"}, {"command": None, "duration_ms": 5}, 'container: needs "command"'),
        ({"image": "d", "mounts": [{"source": "data"}]}, {}, "container.mounts[0].source: has to begin with /"),
        ({"image": "d", "mounts": [{"source": "/a/../b"}]}, {}, "container.mounts[0].source: may not go up"),
        ({"image": "d", "mounts": [{"source": "/a", "target": "/"}]}, {}, 'container.mounts[0].target: "/" is'),
        ({"image": "d", "mounts": [{"source": "/a", "target": "/largesse/x"}]}, {}, "container.mounts[0].target:"),
        ({"image": "d", "mounts": [{"source": "/a"}, {"source": "/b", "target": "/a/"}]}, {}, "container.mounts[1].ta"),
    ],
)
def test_what_is_wrong_with_a_container_is_said_with_its_field(container, fields, problem):
    assert refused(container, **fields).startswith(problem)


@for_all(st.lists(st.sampled_from(["a", ".", "", "b c", "d."]), min_size=1, max_size=6))
def test_a_path_of_a_mount_comes_to_the_same_place_in_one_form(parts):
    path = "/" + "/".join(parts)
    kept = [part for part in parts if part not in ("", ".")]
    said = [MountInput(source=path, target="/t")]
    (mount,) = container_of(ContainerInput(image="debian", mounts=said), ["true"], None).mounts
    assert mount.source == "/" + "/".join(kept)


def test_a_spec_with_a_container_as_a_document_reads_back_to_the_same():
    container = Container("debian", [Mount("/a", "/b", False)], "7", "host", True, 9, "always")
    each = Stage("s", 1, {"cpu": 1}, labels={ENGINE_LABEL: "true", "zone": "a"}, command=["true"], container=container)
    spec = JobSpec("j", "ads", [each])

    document = job_document(spec)

    assert document["stages"][0]["labels"] == {"zone": "a"}
    assert read_input("jobs", document, "") == spec


def test_no_core_reads_a_container_and_no_spec_loses_it():
    spec = JobSpec("j", "ads", [Stage("s", 1, {"cpu": 1}, command=["true"], container=Container("debian"))])
    bare = replace(spec, stages=[replace(spec.stages[0], command=["false"], container=None)])

    assert graph_of(spec) is graph_of(bare)
    assert graph_of(spec).stages[0].container is None
    equal = replace(spec, stages=[replace(spec.stages[0], demand={"cpu": 1})])
    assert lean(equal, graph_of(equal)) == spec


def test_a_redacted_container_says_neither_image_nor_paths():
    heard = []
    container = Container("secret-image", [Mount("/secret", "/path")], "ann")
    walk(container, heard.append)
    assert heard == ["ann"]
    names = Names(["ann"], b"s")
    image = names.body(container)
    assert "secret" not in repr(image)
    assert image.network == "bridge"


def test_a_cell_without_an_engine_refuses_a_container_and_says_so():
    each = Stage("s", 1, {"cpu": 1}, labels={ENGINE_LABEL: "true"}, command=["true"], container=Container("debian"))
    plain = Node({"cpu": 5})
    able = Node({"cpu": 5}, {ENGINE_LABEL: "true"})

    reason, field, text = stage_problem({"n": plain}, each)

    assert (reason, field) == ("exceeds_capacity", "labels")
    assert text == f"no node has a container engine (label {ENGINE_LABEL})"
    assert stage_problem({"n": plain, "m": able}, each) is None


def test_what_explains_waiting_names_the_engine_and_not_its_label():
    assert _labels({ENGINE_LABEL: "true", "zone": "a"}) == "a container engine, zone=a"
