"""infra/monitoring: what alerts and dashboard ask for, a running cell exports, and docs/monitoring.md explains."""

import json
import re
import shutil
import subprocess
from itertools import combinations

import promql_parser as promql
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from services.cli.secrets_folder import PEER_NAME, SERVERS
from tests.conftest import ROOT
from tests.gateway_cell import JOB, run_in_memory

FOLDER = ROOT / "infra/monitoring"
DASHBOARD = json.loads((FOLDER / "grafana/dashboards/largesse.json").read_text())
PROMETHEUS = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
RULES = [rule for group in yaml.safe_load((FOLDER / "rules.yml").read_text())["groups"] for rule in group["rules"]]
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
PAGE = (ROOT / "docs/monitoring.md").read_text()
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
VARIABLES = {"$__rate_interval": "5m", "$queue": ".*"}
"""What Grafana puts in before it asks Prometheus."""

OF_TARGETS = {"up"}
"""Metrics that Prometheus makes itself."""
LABELS_OF_TARGETS = {"job", "instance", "component"}
GUARD_S = 240


def expressions():
    for rule in RULES:
        yield pytest.param(rule["expr"], id=rule["alert"])
    for panel in PANELS:
        for target in panel["targets"]:
            expression = target["expr"]
            for name, value in VARIABLES.items():
                expression = expression.replace(name, value)
            yield pytest.param(expression, id=f"{panel['title']} {target['refId']}")


@pytest.fixture(scope="module")
def exported():
    """Metric -> names of its labels (None where it has had no sample), of a cell with all its services."""

    async def story(cell):
        await cell.post(JOB | {"stages": [JOB["stages"][0], JOB["stages"][0] | {"stage": "later", "after": ["s"]}]})
        await cell.http.put("/v1/config", json={"queues": {"name": "root", "children": [{"name": "ads"}]}})
        await cell.http.post("/v1/jobs", json=JOB | {"job": "x", "queue": "nowhere"})
        return (await cell.get("/metrics")).text

    found = {}
    for family in text_string_to_metric_families(run_in_memory(story)):
        suffixes = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count"), "info": ("_info",)}
        for suffix in suffixes.get(family.type, ("",)):
            found.setdefault(family.name + suffix, None)
        for sample in family.samples:
            found[sample.name] = (found.get(sample.name) or set()) | set(sample.labels)
    return {name: labels for name, labels in found.items() if not name.endswith("_created")}


def parts(node):
    """An expression and all that it is made of."""
    yield node
    for name in ("expr", "lhs", "rhs", "param", "vector_selector"):
        inner = getattr(node, name, None)
        if isinstance(inner, promql.Expr) or (name == "vector_selector" and inner is not None):
            yield from parts(inner)
    for inner in getattr(node, "args", None) or ():
        yield from parts(inner)


@pytest.mark.parametrize("expression", list(expressions()))
def test_every_metric_and_label_that_is_asked_for_is_exported(exported, expression):
    tree = promql.parse(expression)
    asked = [part for part in parts(tree) if isinstance(part, promql.VectorSelector)]

    assert asked
    labels = set(LABELS_OF_TARGETS)
    for selector in asked:
        assert selector.name in exported.keys() | OF_TARGETS, selector.name
        known = exported.get(selector.name)
        wanted = {matcher.name for matcher in selector.matchers.matchers}
        if known is not None:
            assert wanted <= known | LABELS_OF_TARGETS, selector.name
        labels |= known or set(re.findall(r"\w+", expression))
    for part in parts(tree):
        if isinstance(part, promql.AggregateExpr) and part.modifier is not None:
            assert set(part.modifier.labels) <= labels, expression


def test_the_walk_over_an_expression_finds_all_its_metrics():
    text = 'histogram_quantile(0.9, sum by (le) (rate(a{x="1"}[5m]))) + scalar(max(b)) > on (x) (c or absent(d)) * 2'
    asked = [part.name for part in parts(promql.parse(text)) if isinstance(part, promql.VectorSelector)]

    assert sorted(asked) == ["a", "b", "c", "d"]


def test_every_alert_says_how_urgent_it_is_and_where_to_read_what_to_do():
    headings = {line.removeprefix("### ").strip() for line in PAGE.splitlines() if line.startswith("### ")}

    assert len({rule["alert"] for rule in RULES}) == len(RULES)
    for rule in RULES:
        name = rule["alert"]
        assert rule["labels"]["severity"] in ("page", "ticket"), name
        assert re.fullmatch(r"\d+[smhd]", rule.get("for", "0s")), name
        assert {"summary", "description"} < set(rule["annotations"]), name
        assert rule["annotations"]["runbook"] == f"docs/monitoring.md#{name.lower()}", name
        section = PAGE.partition(f"### {name}\n")[2].partition("###")[0]
        assert section.strip().startswith(f"`{rule['labels']['severity']}`."), name
    assert headings == {rule["alert"] for rule in RULES}


def test_every_metric_is_explained_and_none_that_is_not_there(exported):
    rows = [line.split("|") for line in PAGE.splitlines() if line.startswith("| `largesse_")]
    explained = {name for row in rows for name in re.findall(r"`(largesse_\w+)`", row[1])}
    ours = {name for name in exported if name.startswith("largesse_")}
    families = {re.sub(r"_(bucket|sum|count)$", "", name) for name in ours}

    assert explained == families


def test_labels_are_those_that_the_page_names(exported):
    for line in PAGE.splitlines():
        if line.startswith("| `largesse_"):
            _, metrics, labels, *_ = line.split("|")
            named = set(re.findall(r"`(\w+)`", labels))
            for name in re.findall(r"`(largesse_\w+)`", metrics):
                assert (exported.get(name) or set()) <= named, name


def test_the_dashboard_shows_all_that_a_bridge_tells(exported):
    asked = {
        part.name
        for panel in PANELS
        for each in panel["targets"]
        for part in parts(promql.parse(each["expr"].replace("$__rate_interval", "5m").replace("$queue", ".*")))
        if isinstance(part, promql.VectorSelector)
    }
    told = {re.sub(r"_(bucket|sum|count)$", "", name) for name in exported if name.startswith("largesse_bridge_")}

    assert told == {re.sub(r"_(bucket|count)$", "", name) for name in asked if name.startswith("largesse_bridge_")}


def test_panels_have_names_and_places_of_their_own():
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    assert len({panel["title"] for panel in PANELS}) == len(PANELS)
    for one, other in combinations([panel["gridPos"] for panel in DASHBOARD["panels"]], 2):
        apart = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        assert apart or beside
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in DASHBOARD["panels"])


def test_grafana_finds_its_source_and_its_dashboard():
    provisioning = FOLDER / "grafana/provisioning"
    source = yaml.safe_load((provisioning / "datasources/prometheus.yml").read_text())["datasources"][0]
    provider = yaml.safe_load((provisioning / "dashboards/largesse.yml").read_text())["providers"][0]
    mounts = dict(volume.split(":")[:2] for volume in COMPOSE["services"]["grafana"]["volumes"])
    variables = {variable["name"]: variable for variable in DASHBOARD["templating"]["list"]}

    assert source["url"] == "http://prometheus:9090"
    assert mounts["./infra/monitoring/grafana/dashboards"] == provider["options"]["path"]
    assert mounts["./infra/monitoring/grafana/provisioning"] == "/etc/grafana/provisioning"
    home = COMPOSE["services"]["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert home == f"{provider['options']['path']}/largesse.json"
    assert variables["datasource"]["query"] == source["type"]
    used = {name for panel in PANELS for each in panel["targets"] for name in re.findall(r"\$(\w+)", each["expr"])}
    assert used - {"__rate_interval"} <= set(variables)


def test_prometheus_asks_every_service_where_it_has_its_metrics():
    port = int(re.search(r"LARGESSE_METRICS_PORT=(\d+)", (ROOT / "Dockerfile").read_text())[1])
    asked = {}
    for job in PROMETHEUS["scrape_configs"]:
        for where in job["dns_sd_configs"]:
            asked |= dict.fromkeys(where["names"], where["port"])
    services = {name for name, each in COMPOSE["services"].items() if each["image"] == "largesse:latest"}

    out_of_reach = {"edge-a", "edge-b"}  # Nodes that know nothing but a broker.
    kept = services - {"topics", "config", "passwords", "gateway", *out_of_reach}
    assert asked == dict.fromkeys(kept, port) | {"gateway": 8642}
    mounts = dict(volume.split(":")[:2] for volume in COMPOSE["services"]["prometheus"]["volumes"])
    assert PROMETHEUS["rule_files"] == [mounts["./infra/monitoring/rules.yml"]]


def test_where_everybody_proves_who_they_are_prometheus_asks_the_same_over_tls():
    secure = yaml.safe_load((FOLDER / "prometheus-secure.yml").read_text())
    overlay = yaml.safe_load((ROOT / "docker-compose.secure.yml").read_text())
    mounted = dict(volume.split(":")[:2] for volume in overlay["services"]["prometheus"]["volumes"])
    added = {"scheme", "tls_config", "authorization"}

    plain = [{key: value for key, value in job.items() if key not in added} for job in secure["scrape_configs"]]
    assert {**secure, "scrape_configs": plain} == PROMETHEUS
    assert all(job["scheme"] == "https" for job in secure["scrape_configs"])
    gateway, ports = secure["scrape_configs"]
    assert "DNS:" + gateway["tls_config"]["server_name"] in SERVERS["gateway"]
    assert ports["tls_config"]["server_name"] == PEER_NAME
    shown = overlay["services"]["secrets"]["command"][0]
    for path in {gateway["authorization"]["credentials_file"], *_files(gateway), *_files(ports)}:
        assert path.startswith("/run/largesse/")
        assert re.search(rf"show 65534 \S+ monitor/{path.rpartition('/')[2]}\n", shown), path
    assert mounted["secret-monitor"] == "/run/largesse"


def _files(job):
    return [value for key, value in job["tls_config"].items() if key.endswith("_file")]


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool")
@pytest.mark.parametrize(
    "arguments",
    [
        ["rules", "rules.yml"],
        ["config", "--syntax-only", "prometheus.yml"],
        ["config", "--syntax-only", "prometheus-secure.yml"],
    ],
)
def test_promtool_takes_rules_and_configuration(arguments):
    done = subprocess.run(
        ["promtool", "check", *arguments], cwd=FOLDER, capture_output=True, text=True, timeout=GUARD_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def has_compose():
    if shutil.which("docker") is None:
        return False
    asked = subprocess.run(["docker", "compose", "version"], capture_output=True, timeout=GUARD_S, check=False)
    return asked.returncode == 0


@pytest.mark.parametrize("profile", [None, "observability", "archive"])
def test_compose_takes_the_file_with_the_profile_and_without(profile):
    if not has_compose():
        pytest.skip("no docker compose")
    command = ["docker", "compose", *(["--profile", profile] if profile else []), "config", "--format", "json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=GUARD_S, check=False)
    assert done.returncode == 0, done.stderr
    own = {"prometheus", "grafana", "archive"} & set(json.loads(done.stdout)["services"])
    assert own == {None: set(), "observability": {"prometheus", "grafana"}, "archive": {"archive"}}[profile]
