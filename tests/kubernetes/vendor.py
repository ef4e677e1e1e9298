"""`python -m tests.kubernetes.vendor PACKAGE STRIMZI`: writes schemas.json.gz, which infra/kubernetes is valid by.

PACKAGE: the folder of the Python package `kubernetes-validate`, which has the schemas of each release of Kubernetes.
STRIMZI: a folder with Strimzi's `install/cluster-operator`. Of both only the kinds that are used here are taken,
without their descriptions. An unknown field is refused.
"""

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import yaml

VERSIONS = ("1.32.0", "1.37.0")
"""The oldest and the newest Kubernetes that manifests are held against."""
STRIMZI = "1.0.1"
KINDS = (
    *(
        "configmap-v1",
        "daemonset-apps-v1",
        "deployment-apps-v1",
        "horizontalpodautoscaler-autoscaling-v2",
        "job-batch-v1",
    ),
    *(
        "namespace-v1",
        "networkpolicy-networking-v1",
        "poddisruptionbudget-policy-v1",
        "service-v1",
        "serviceaccount-v1",
    ),
)
CRDS = ("040-Crd-kafka", "043-Crd-kafkatopic", "044-Crd-kafkauser", "045-Crd-kafkanodepool")
PATH = Path(__file__).parent / "schemas.json.gz"
_DEFINITIONS = "_definitions.json"


def bare(schema: Any) -> Any:
    """Without what only people read. A property may be called like a keyword."""
    if isinstance(schema, list):
        return [bare(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {}
    for key, value in schema.items():
        if key in ("properties", "$defs"):
            kept[key] = {name: bare(each) for name, each in value.items()}
        elif key == "$ref":
            kept[key] = value[value.index("#") :]
        elif key not in ("description", "format") and not key.startswith("x-kubernetes-"):
            kept[key] = bare(value)
    return kept


def references(schema: Any) -> set[str]:
    """Names of the definitions that a schema refers to."""
    if isinstance(schema, list):
        return set().union(*map(references, schema), set())
    if not isinstance(schema, dict):
        return set()
    own = {schema["$ref"].removeprefix("#/$defs/")} if isinstance(schema.get("$ref"), str) else set()
    return own.union(*map(references, schema.values()), set())


def of_kubernetes(folder: Path, version: str) -> dict[str, Any]:
    """`apiVersion kind` -> schema; `$defs`: what they share."""
    place = folder / "kubernetes-json-schema" / f"v{version}-local-strict"
    definitions = bare(json.loads((place / _DEFINITIONS).read_text())["$defs"])
    found: dict[str, Any] = {}
    for name in KINDS:
        schema = bare(json.loads((place / f"{name}.json").read_text()))
        given = schema["properties"]
        found[f"{given['apiVersion']['enum'][0]} {given['kind']['enum'][0]}"] = schema
    shared: dict[str, Any] = {}
    waiting = references(found)
    while waiting:
        shared |= {name: definitions[name] for name in waiting}
        waiting = references(list(shared.values())) - set(shared)
    return {**found, "$defs": shared}


def strict(schema: Any) -> Any:
    """A schema of a custom resource, which refuses what the API server would drop."""
    if not isinstance(schema, dict):
        return schema
    kept = {key: value for key, value in bare(schema).items() if key not in ("properties", "items")}
    if isinstance(schema.get("additionalProperties"), dict):
        kept["additionalProperties"] = strict(schema["additionalProperties"])
    if "items" in schema:
        kept["items"] = strict(schema["items"])
    if "properties" in schema:
        kept["properties"] = {name: strict(each) for name, each in schema["properties"].items()}
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            kept.setdefault("additionalProperties", False)
    return kept


def of_strimzi(folder: Path) -> dict[str, Any]:
    """`apiVersion kind` -> schema."""
    found = {}
    for name in CRDS:
        spec = yaml.safe_load((folder / f"{name}.yaml").read_text())["spec"]
        for version in spec["versions"]:
            schema = strict(version["schema"]["openAPIV3Schema"])
            schema["properties"]["metadata"] = {"type": "object"}
            found[f"{spec['group']}/{version['name']} {spec['names']['kind']}"] = schema
    return found


def main(package: str, strimzi: str) -> None:
    """Writes the file."""
    found = {version: of_kubernetes(Path(package), version) for version in VERSIONS}
    text = json.dumps({**found, f"strimzi {STRIMZI}": of_strimzi(Path(strimzi))}, sort_keys=True, separators=(",", ":"))
    PATH.write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    main(*sys.argv[1:])
