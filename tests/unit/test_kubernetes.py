"""infra/kubernetes: what its kustomizations make is valid, agrees with Compose and the code, and leaves little open."""

import copy
import gzip
import json
import re
import shutil
import subprocess
from functools import cache

import pytest
import yaml
from jsonschema import Draft202012Validator

from largesse.bus.kafka.rights import Rule, rules
from largesse.bus.kafka.topic_settings import TOPICS, Found, faults, partitions_of
from largesse.known_variables import READ
from schemas.principals import BY_PRINCIPAL
from services.cli.strimzi_resources import FILES, FOLDER
from tests.conftest import ROOT
from tests.kubernetes.reader import built, containers_of, documents_of, files_named, in_order, merged
from tests.kubernetes.vendor import PATH, VERSIONS

PLACE = ROOT / "infra/kubernetes"
OVERLAY = PLACE / "overlays/strimzi"
COMPONENTS = ("agent", "bridge", "router")
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
SECURE = yaml.safe_load((ROOT / "docker-compose.secure.yml").read_text())["services"]
NOT_OURS = {"kafka", "mosquitto", "prometheus", "grafana"}
OF_DOCKER = {"archive", "passwords", "edge-a", "edge-b"}
"""What stands for machines elsewhere, in a cell on one machine."""
SCHEMAS = json.loads(gzip.decompress(PATH.read_bytes()))
PAGE = (ROOT / "docs/kubernetes.md").read_text()
PLAIN = {"LARGESSE_CA_FILE", "LARGESSE_TLS_CERT_FILE", "LARGESSE_TLS_KEY_FILE"} | {
    f"LARGESSE_PEER_{name}" for name in ("CERT_FILE", "KEY_FILE", "CA_FILE", "NAME")
}
"""What the secure file of Compose has beyond these manifests: TLS on ports between pods, which policies close here."""
KINDS = {"topic": "topic", "group": "group", "transactionalId": "transactional id"}
KUBECTL = shutil.which("kubectl")
needs_kubectl = pytest.mark.skipif(KUBECTL is None, reason="no kubectl here, which has kustomize")


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    """A folder whose kustomization is the overlay with all components."""
    folder = tmp_path_factory.mktemp("site") / "infra/kubernetes"
    shutil.copytree(PLACE, folder)
    site = folder / "overlays/everything"
    site.mkdir()
    said = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "namespace": "largesse",
        "resources": ["../strimzi"],
        "components": ["../../components/bridge", "../../components/router"],
    }
    (site / "kustomization.yaml").write_text(yaml.safe_dump(said))
    return site


@cache
def resources(place):
    return {(each["kind"], each["metadata"]["name"]): each for each in built(place)}


@pytest.fixture(scope="module")
def whole(everything):
    return resources(everything)


def pods(found):
    """name -> what makes pods of it."""
    return {name: each for (_, name), each in found.items() if containers_of(each)}


def container(each):
    (only,) = containers_of(each)
    return only


def pod(each):
    return each["spec"]["template"]["spec"]


def faults_of(document):
    """What published schemas say against a document; each kind has to be in one of them at least."""
    name = f"{document['apiVersion']} {document['kind']}"
    tables = [table for table in SCHEMAS.values() if name in table]
    assert tables, f"no schema of {name}"
    for table in tables:
        for error in Draft202012Validator({**table[name], "$defs": table.get("$defs", {})}).iter_errors(document):
            yield f"{name} {document['metadata']['name']}: {list(error.path)}: {error.message[:200]}"


def test_what_is_built_is_valid_by_the_published_schemas(whole):
    assert [fault for each in whole.values() for fault in faults_of(each)] == []
    assert [fault for each in built(PLACE / "base") for fault in faults_of(each)] == []


@pytest.mark.parametrize(
    ("key", "path", "value"),
    [
        pytest.param(("Deployment", "admission"), ["spec", "replicaz"], 2, id="a typing error"),
        pytest.param(("Deployment", "admission"), ["spec", "replicas"], "two", id="no number"),
        pytest.param(("Service", "gateway"), ["spec", "sessionAffinity"], {}, id="a map for a text"),
        pytest.param(("Kafka", "largesse"), ["spec", "kafka", "listener"], [], id="a field that Strimzi would drop"),
        pytest.param(("KafkaUser", "gateway"), ["spec", "authentication", "type"], "scram", id="no kind of Strimzi's"),
    ],
)
def test_the_schemas_refuse_what_is_wrong(key, path, value, whole):
    document = copy.deepcopy(whole[key])
    *way, last = path
    inner = document
    for step in way:
        inner = inner[step]
    inner[last] = value

    assert list(faults_of(document)) != []


def test_the_schemas_are_of_the_oldest_and_the_newest_kubernetes_and_of_the_strimzi_that_the_overlay_names():
    (strimzi,) = re.findall(r"Strimzi (\d+\.\d+\.\d+)", (OVERLAY / "kafka.yaml").read_text())

    assert sorted(SCHEMAS) == sorted([*VERSIONS, f"strimzi {strimzi}"])
    assert f"Strimzi {strimzi}" in PAGE


@needs_kubectl
@pytest.mark.parametrize("place", ["base", "overlays/strimzi", "everything"])
def test_kubectl_builds_the_same(place, everything):
    folder = everything if place == "everything" else PLACE / place
    done = subprocess.run([KUBECTL, "kustomize", str(folder)], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr

    found = {(each["kind"], each["metadata"]["name"]): each for each in yaml.safe_load_all(done.stdout)}
    assert sorted(found) == sorted(resources(folder))
    for key, each in found.items():
        assert in_order(each) == in_order(resources(folder)[key]), key


def test_a_patch_changes_single_elements_of_lists_and_takes_away_what_is_null():
    old = {"containers": [{"name": "a", "args": ["x", "y"], "image": "i"}], "kept": 1, "gone": 2}
    new = {"containers": [{"name": "a", "args": ["z"]}, {"name": "b"}], "gone": None}

    assert merged(old, new) == {"containers": [{"name": "a", "args": ["z"], "image": "i"}, {"name": "b"}], "kept": 1}


def test_every_file_is_listed_by_the_kustomization_beside_it():
    folders = [path.parent for path in PLACE.rglob("kustomization.yaml")]
    named = {path for folder in folders for path in files_named(folder)}

    for path in PLACE.rglob("*"):
        if path.is_file() and path.name != "kustomization.yaml":
            assert path.resolve() in named, path
    assert {path for path in named if not path.exists()} == set()
    assert {folder.name for folder in folders} == {"base", "strimzi", "process", *COMPONENTS}


def test_every_service_of_compose_is_there_and_runs_the_same(whole):
    ours = set(COMPOSE) - NOT_OURS - OF_DOCKER
    found = pods(resources(PLACE / "base")) | pods(whole)

    assert set(found) == ours | {"token"}
    for name, each in found.items():
        only = container(each)
        words = [*only.get("command", []), *only["args"]]
        compose = COMPOSE.get(name, {}) | SECURE.get(name, {})
        assert words == [*compose.get("entrypoint", []), *unescaped(compose["command"])], name
        assert only["image"] == "largesse:latest" == COMPOSE.get(name, SECURE.get(name))["image"]
        assert each["kind"] == ("DaemonSet" if name == "agent" else "Deployment" if name in services(found) else "Job")


def unescaped(command):
    return [word.replace("$$", "$").replace("https://gateway", "http://gateway") for word in command]


def services(found):
    """Names of what runs for good."""
    return {name for name, each in found.items() if container(each)["args"][0].startswith("services.")}


def test_each_service_is_scaled_by_itself_and_has_a_standby(whole):
    for name in services(pods(whole)) - {"agent"}:
        each = whole["Deployment", name]
        scaled = whole.get(("HorizontalPodAutoscaler", name))
        least = scaled["spec"]["minReplicas"] if scaled else each["spec"]["replicas"]
        assert least >= 2, name
        assert ("replicas" in each["spec"]) != (scaled is not None), "the autoscaler's number, or ours"
        assert whole["PodDisruptionBudget", name]["spec"]["selector"] == each["spec"]["selector"]
        assert whole["PodDisruptionBudget", name]["spec"]["maxUnavailable"] == 1
        spread = pod(each)["topologySpreadConstraints"]
        assert [one["topologyKey"] for one in spread] == ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]
        assert all(one["labelSelector"] == each["spec"]["selector"] for one in spread)
        assert each["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    assert [name for kind, name in whole if kind == "HorizontalPodAutoscaler"] == ["gateway"]


def test_selectors_choose_their_own_pods_and_no_others(whole):
    chosen = {}
    for name, each in pods(whole).items():
        labels = each["spec"]["template"]["metadata"]["labels"]
        assert labels == {"app.kubernetes.io/name": name, "app.kubernetes.io/part-of": "largesse"}
        if each["kind"] != "Job":
            assert each["spec"]["selector"] == {"matchLabels": labels}
        chosen[name] = labels
    for (kind, name), each in whole.items():
        if kind == "Service":
            owner = name.removesuffix("-metrics")
            assert each["spec"]["selector"] == chosen[owner]
            ports = {port["name"] for port in container(pods(whole)[owner])["ports"]}
            assert {port["targetPort"] for port in each["spec"]["ports"]} <= ports


def image_environment():
    """Variables that the image itself sets."""
    return dict(re.findall(r"^(?:ENV )? *(LARGESSE_[A-Z_]+)=(\S+)", (ROOT / "Dockerfile").read_text(), re.MULTILINE))


def environment(each, settings):
    said = {one["name"]: one.get("value", "") for one in container(each)["env"]}
    return image_environment() | settings | said


def test_variables_are_read_by_something_and_are_those_of_compose(whole):
    for place in (resources(PLACE / "base"), whole):
        settings = place["ConfigMap", "largesse"]["data"]
        for name, each in pods(place).items():
            given = environment(each, settings)
            assert {key.removeprefix("LARGESSE_") for key in given if key.startswith("LARGESSE_")} <= READ, name
            compose = {
                **COMPOSE.get(name, {}).get("environment", {}),
                **SECURE.get(name, {}).get("environment", {}),
            }
            elsewhere = {"LARGESSE_TOKEN", "TMPDIR", *PLAIN}  # The token is a file here, and nodes share no folder.
            assert set(compose) - set(given) <= elsewhere, name
            for key in (
                "LARGESSE_KAFKA_USER",
                "LARGESSE_HTTP",
                "LARGESSE_OPEN",
                "LARGESSE_BRIDGES",
                "LARGESSE_TASK_USER",
            ):
                if key in compose:
                    meant = re.sub(r"\$\{LARGESSE_[A-Z_]+:-(.*)\}", r"\1", compose[key]).removeprefix("https://")
                    assert given[key] == meant, (name, key)


def test_each_comes_as_its_own_principal_and_sees_its_own_password_alone(whole):
    base = resources(PLACE / "base")
    for name, each in (pods(base) | pods(whole)).items():
        user = environment(each, {}).get("LARGESSE_KAFKA_USER")
        (secrets,) = [volume["projected"] for volume in pod(each)["volumes"] if volume["name"] == "secrets"]
        sources = {source["secret"]["name"] for source in secrets["sources"]}
        assert user == {"topics": "admin", "token": "operator", "config": None}.get(name, name)
        assert {one for one in sources if one.startswith("kafka-")} == ({f"kafka-{user}"} if user else set())
        assert user is None or user in {*BY_PRINCIPAL, "admin"}
        assert secrets["defaultMode"] & 0o007 == 0, "a secret that everybody may read is refused"
        files = {item["path"] for source in secrets["sources"] for item in source["secret"]["items"]}
        needed = environment(each, base["ConfigMap", "largesse"]["data"]) if user else environment(each, {})
        named = {value for key, value in needed.items() if key.endswith("_FILE")}
        assert named <= {f"/run/largesse/{file}" for file in files}, name


def test_no_secret_is_in_the_folder():
    for path in PLACE.rglob("*.yaml"):
        assert all(each.get("kind") != "Secret" for each in documents_of(path)), path
        assert not re.search(r"BEGIN .*KEY|password: \S|token: \S", path.read_text()), path


def test_probes_ask_what_each_process_answers(whole):
    port = int(image_environment()["LARGESSE_METRICS_PORT"])
    for name in services(pods(whole)):
        only = container(pods(whole)[name])
        ports = {each["name"]: each["containerPort"] for each in only["ports"]}
        assert ports == {"metrics": port} | ({"http": 8642} if name == "gateway" else {})
        asked = {probe: only[f"{probe}Probe"]["httpGet"] for probe in ("startup", "liveness", "readiness")}
        ready = "http" if name == "gateway" else "metrics"
        assert asked == {
            "startup": {"path": "/livez", "port": "metrics"},
            "liveness": {"path": "/livez", "port": "metrics"},
            "readiness": {"path": "/readyz", "port": ready},
        }, name


def test_nothing_has_rights_that_it_does_not_need(whole):
    """The standard `restricted` of Kubernetes; of agents `baseline`, as the label of the namespace says."""
    may_be_added = {"CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID"}
    for name, each in (pods(resources(PLACE / "base")) | pods(whole)).items():
        spec, rights = pod(each), container(each)["securityContext"]
        assert spec["automountServiceAccountToken"] is False
        assert spec["enableServiceLinks"] is False
        assert spec["shareProcessNamespace"] is True
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
        assert all("hostPath" not in volume for volume in spec["volumes"])
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert rights["allowPrivilegeEscalation"] is False
        assert rights["readOnlyRootFilesystem"] is True
        assert rights["capabilities"]["drop"] == ["ALL"]
        added = set(rights["capabilities"].get("add", []))
        if name == "agent":
            assert added == may_be_added == set(SECURE["agent"]["cap_add"])
        else:
            assert not added
            assert spec["securityContext"]["runAsNonRoot"] is True
            assert spec["securityContext"]["runAsUser"] == 10001 == spec["securityContext"]["fsGroup"]
        assert {"cpu", "memory"} <= set(container(each)["resources"]["requests"])
        assert "memory" in container(each)["resources"]["limits"]
    assert "--uid 10001" in (ROOT / "Dockerfile").read_text()


def test_an_agent_offers_less_than_its_pod_may_use(whole):
    each = whole["DaemonSet", "agent"]
    offer = json.loads(environment(each, {})["LARGESSE_NODE_OFFER"])["capacity"]
    limits = container(each)["resources"]["limits"]

    assert container(each)["resources"]["requests"]["cpu"] == offer["cpu"] == limits["cpu"]
    assert limits["memory"].endswith("Mi")
    assert int(limits["memory"].removesuffix("Mi")) > 1024 * int(offer["memory"].removesuffix("Gi"))


def reach(whole):
    """(from, to, port) of all that policies allow among our own pods; None: from or to anywhere."""
    names = list(pods(whole))
    found = {"Ingress": set(), "Egress": set()}
    for (kind, _), each in whole.items():
        if kind != "NetworkPolicy":
            continue
        own = [name for name in names if chosen(each["spec"]["podSelector"], name)]
        for direction, key, way in (("Ingress", "ingress", "from"), ("Egress", "egress", "to")):
            for rule in each["spec"].get(key, []):
                others = [
                    name for peer in rule.get(way, []) for name in names if chosen(peer.get("podSelector"), name)
                ] or ([] if way in rule else [None])
                found[direction] |= {
                    (*((other, name) if direction == "Ingress" else (name, other)), port["port"])
                    for name in own
                    for other in others
                    for port in rule["ports"]
                }
    return found


def chosen(selector, name):
    if selector is None:
        return False
    labels = {"app.kubernetes.io/name": name, "app.kubernetes.io/part-of": "largesse"}
    given = selector.get("matchLabels", {}).items()
    listed = selector.get("matchExpressions", [])
    return all(labels.get(key) == value for key, value in given) and all(
        each["operator"] == "In" and labels[each["key"]] in each["values"] for each in listed
    )


def test_the_network_lets_through_what_one_asks_of_another_at_both_ends(whole):
    allowed = reach(whole)
    asked = {
        *((source, target, "metrics") for source in ("gateway", "agent", "bridge") for target in ("agent", "bridge")),
        ("config", "gateway", "http"),
        ("agent", "agent", 21000),
    } - {("bridge", "bridge", "metrics")}
    ends_out = {way for way in allowed["Egress"] if way[1] is not None}
    ends_in = {way for way in allowed["Ingress"] if way[0] is not None}

    assert ends_out == asked
    assert ends_in == asked - {("config", "gateway", "http")}  # Whoever has a token may ask the gateway.
    assert {way[1:] for way in allowed["Ingress"] if way[0] is None} == {("gateway", "http")}
    assert {(way[0], way[2]) for way in allowed["Egress"] if way[1] is None} - {
        (name, port) for name in pods(whole) for port in (53, 9093)
    } == {("bridge", 8883)}


def test_others_are_asked_by_names_that_they_answer_to(whole):
    settings = whole["ConfigMap", "largesse"]["data"]
    listed = settings["LARGESSE_HTTP_HOSTS"].split(",")
    services_of = {name for kind, name in whole if kind == "Service"}
    bus = settings["LARGESSE_BUS"]

    assert sorted(listed) == sorted(services_of)
    assert bus == f"kafkas://{whole['Kafka', 'largesse']['metadata']['name']}-kafka-bootstrap:9093"
    assert environment(whole["Deployment", "gateway"], {})["LARGESSE_BRIDGES"] == "bridge:9464"


def test_the_first_config_is_that_of_compose():
    given = resources(PLACE / "base")["ConfigMap", "largesse-config"]["data"]["config.yaml"]

    assert yaml.safe_load(given) == yaml.safe_load((ROOT / "infra/config.yaml").read_text())


@pytest.mark.parametrize("name", FILES)
def test_the_resources_of_strimzi_are_current(name):
    assert (FOLDER / name).read_text(encoding="utf-8") == FILES[name](), "run `make docs`"


def test_strimzi_makes_every_topic_as_services_want_it_and_gives_each_principal_its_rights(whole):
    made = {name: each["spec"] for (kind, name), each in whole.items() if kind == "KafkaTopic"}
    allowed = {
        Rule(
            name,
            KINDS[acl["resource"]["type"]],
            acl["resource"]["name"],
            operation,
            acl["resource"]["patternType"] == "prefix",
        )
        for (kind, name), each in whole.items()
        if kind == "KafkaUser"
        for acl in each["spec"]["authorization"]["acls"]
        for operation in acl["operations"]
    }

    assert set(made) == set(TOPICS)
    for name, topic in made.items():
        found = Found(topic["partitions"], topic["replicas"], topic["config"], topic["config"])
        assert faults(name, TOPICS[name], found, 0) == []
        assert (topic["partitions"], topic["replicas"]) == (partitions_of(name, 1), 3)
        assert topic["config"]["min.insync.replicas"] == "2"
    assert sorted(allowed) == rules()


def test_there_are_three_brokers_that_lose_nothing_by_mistake(whole):
    pool, kafka = whole["KafkaNodePool", "broker"]["spec"], whole["Kafka", "largesse"]["spec"]
    (listener,) = kafka["kafka"]["listeners"]

    assert (pool["replicas"], pool["roles"]) == (3, ["controller", "broker"])
    assert [volume["deleteClaim"] for volume in pool["storage"]["volumes"]] == [False]
    assert (listener["tls"], listener["authentication"]) == (True, {"type": "scram-sha-512"})
    assert kafka["kafka"]["authorization"] == {"type": "simple"}
    assert kafka["kafka"]["config"]["delete.topic.enable"] is False
    assert kafka["kafka"]["config"]["auto.create.topics.enable"] is False
    assert kafka["kafka"]["config"]["min.insync.replicas"] == 2
    assert kafka["entityOperator"]["userOperator"] == {"secretPrefix": "kafka-"}
    assert ("Job", "topics") not in whole
    # Of the same line as the broker of the tests.
    tested = COMPOSE["kafka"]["image"].partition(":")[2]
    assert kafka["kafka"]["version"].rpartition(".")[0] == tested.rpartition(".")[0]


SITES = re.findall(r"^```yml\n(apiVersion: kustomize.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("text", SITES, ids=range(len(SITES)))
def test_a_kustomization_of_the_page_builds(text, tmp_path):
    shutil.copytree(PLACE, tmp_path / "infra/kubernetes")
    site = tmp_path / "infra/kubernetes/overlays/site"
    site.mkdir()
    (site / "kustomization.yaml").write_text(text)

    made = built(site)

    assert [fault for each in made for fault in faults_of(each)] == []
    assert {container(each)["image"] for each in made if containers_of(each)} == {"registry.example.com/largesse:0.1.0"}
    if KUBECTL is not None:
        subprocess.run([KUBECTL, "kustomize", str(site)], capture_output=True, check=True, timeout=120)


def test_the_page_names_every_service_secret_and_folder(whole):
    for name in services(pods(whole)):
        assert f"`{name}`" in PAGE
    for folder in ("base", "overlays/strimzi", *(f"components/{name}" for name in COMPONENTS)):
        assert folder in PAGE
    for secret in ("kafka-NAME", "largesse-cluster-ca-cert", "largesse-tokens", "mqtt-bridge"):
        assert secret in PAGE
    assert len(SITES) >= 2
