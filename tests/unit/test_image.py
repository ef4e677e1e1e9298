"""The image of docker-compose.yml has what the services need: it carries a part of the lock, and no more than that."""

import ast
import os
import re
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
import yaml

from tests.conftest import ROOT

PINNED = (
    r"largesse:latest|(apache/kafka|eclipse-mosquitto|grafana/grafana):\d+\.\d+\.\d+|prom/prometheus:v\d+\.\d+\.\d+"
)
OURS = {"schemas", "largesse", "services"}
EXTRA = {"cloudpickle", "docker", "highspy", "requests"}
"""Of the extras `executor`, for programs elsewhere, `planner`, and `containers`, of nodes with an engine: missed with a
message that says so.
"""

LATER = {"compression"}
"""What the standard library has from Python 3.14 on, and a package brings until then."""


def locked(path: Path) -> dict[str, set[str]]:
    """Name -> the versions that a lock holds."""
    found: dict[str, set[str]] = {}
    for name, version in re.findall(r"^([a-z0-9-]+)==([^ ;]+)", path.read_text(), re.MULTILINE):
        found.setdefault(name, set()).add(version)
    return found


def imported() -> set[str]:
    """Top-level modules from elsewhere that any service imports, wherever in a file."""
    names = set()
    for path in (path for folder in sorted(OURS) for path in (ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names.add(node.module.partition(".")[0])
    return names - OURS - EXTRA - set(sys.stdlib_module_names) - LATER - {"_typeshed"}


@pytest.mark.slow
def test_the_image_has_every_package_that_a_service_imports():
    has = locked(ROOT / "infra/requirements.lock")
    owners = packages_distributions()
    missing = {
        name
        for name in imported()
        if not any(re.sub(r"[-_.]+", "-", owner.lower()) in has for owner in owners.get(name, [name]))
    }

    assert missing == set()


def test_the_image_has_the_versions_that_were_tested():
    whole = locked(ROOT / "requirements.lock")

    for name, versions in locked(ROOT / "infra/requirements.lock").items():
        assert versions <= whole.get(name, set()), name


def test_the_images_are_pinned_and_nobody_outside_reaches_the_cell():
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]

    for name, service in compose.items():
        assert re.fullmatch(PINNED, service["image"]), name
        assert "build" not in service or name == "topics"
        pulled = dict.fromkeys(("kafka", "mosquitto", "prometheus", "grafana")) | {"topics": "missing"}
        assert service.get("pull_policy") == pulled.get(name, "never")
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", [])), name
        assert service.get("healthcheck") or name != "kafka"
    assert compose["gateway"]["ports"] == ["127.0.0.1:${LARGESSE_HTTP_PORT:-8642}:8642"]


def test_the_passwords_of_the_edge_are_made_once_and_each_lies_apart(tmp_path):
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    (script,) = compose["passwords"]["command"]
    (tmp_path / "largesse").write_text(f'#!/bin/sh\nexec {sys.executable} -m services.cli.main "$@"\n')
    (tmp_path / "largesse").chmod(0o755)
    mounted = tmp_path / "mqtt"
    for volume in compose["passwords"]["volumes"]:
        (mounted / volume.partition(":/mqtt/")[2]).mkdir(parents=True)

    def made():
        words = [*compose["passwords"]["entrypoint"], script.replace("/mqtt", str(mounted))]
        path = f"{tmp_path}:{os.environ['PATH']}"
        subprocess.run(words, env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}, check=True, timeout=120)
        return {str(file.relative_to(mounted)): file.read_text() for file in mounted.rglob("*") if file.is_file()}

    first = made()

    assert sorted(first) == ["bridge/secret", "broker/complete", "broker/passwd", "edge-a/secret", "edge-b/secret"]
    assert [line.partition(":")[0] for line in first["broker/passwd"].splitlines()] == ["bridge", "edge-a", "edge-b"]
    assert made() == first


def test_what_lies_behind_the_broker_reaches_nothing_else():
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]

    assert [name for name, service in compose.items() if service.get("networks") == ["edge"]] == ["edge-a", "edge-b"]
    for name in ("edge-a", "edge-b"):
        assert compose[name]["environment"]["LARGESSE_BUS"] == f"mqtt://{name}@mosquitto:1883"
        assert compose[name]["environment"]["LARGESSE_NODE"] == name
        assert compose[name]["volumes"] == [f"mqtt-{name}:/run/mqtt:ro"]
    made = sorted(volume.partition(":")[0] for volume in compose["passwords"]["volumes"])
    given = [
        (volume, name)
        for volume in made
        for name, service in compose.items()
        if name != "passwords" and any(each.startswith(f"{volume}:") for each in service.get("volumes", []))
    ]
    assert given == [
        ("mqtt-bridge", "bridge"),
        ("mqtt-broker", "mosquitto"),
        ("mqtt-edge-a", "edge-a"),
        ("mqtt-edge-b", "edge-b"),
    ]
