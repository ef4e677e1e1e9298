"""What `kubectl kustomize FOLDER` makes of a folder, as far as infra/kubernetes uses it: any other field is refused.

A small, slow reference: a test compares it with kubectl where that is installed, and goes by it everywhere.
"""

import copy
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

Document = dict[str, Any]
Documents = list[Document]

FIELDS = {"apiVersion", "kind", "resources", "components", "patches", "labels", "namespace", "images", "replicas"}
KEYS = {"containers": "name", "env": "name", "volumes": "name", "volumeMounts": "mountPath", "ports": "containerPort"}
"""Lists of which a patch changes single elements, and by which field those are told apart."""


def documents_of(path: Path) -> Documents:
    """The documents of a file."""
    return [document for document in yaml.safe_load_all(path.read_text(encoding="utf-8")) if document is not None]


def built(folder: Path) -> Documents:
    """All resources of a kustomization."""
    return _applied(folder, "Kustomization", [])


def files_named(folder: Path) -> Iterator[Path]:
    """Every file and folder that a kustomization names."""
    said = yaml.safe_load((folder / "kustomization.yaml").read_text())
    for name in (*said.get("resources", []), *said.get("components", [])):
        yield (folder / name).resolve()
    for patch in said.get("patches", []):
        if "path" in patch:
            yield (folder / patch["path"]).resolve()


def _applied(folder: Path, kind: str, so_far: Documents) -> Documents:
    said = yaml.safe_load((folder / "kustomization.yaml").read_text(encoding="utf-8"))
    assert set(said) <= FIELDS, (folder, set(said) - FIELDS)
    assert said["kind"] == kind, folder
    documents = list(so_far)
    for name in said.get("resources", []):
        documents += built(folder / name) if (folder / name).is_dir() else documents_of(folder / name)
    names = [(each["apiVersion"], each["kind"], each["metadata"]["name"]) for each in documents]
    assert len(names) == len(set(names)), sorted(name for name in names if names.count(name) > 1)
    for name in said.get("components", []):
        documents = _applied(folder / name, "Component", documents)
    for patch in said.get("patches", []):
        documents = _patched(documents, patch, folder)
    for document in documents:
        _transformed(document, said)
    return documents


def _patched(documents: Documents, patch: Document, folder: Path) -> Documents:
    assert set(patch) <= {"path", "patch", "target"}, patch
    text = patch["patch"] if "patch" in patch else (folder / patch["path"]).read_text(encoding="utf-8")
    (change,) = yaml.safe_load_all(text)
    target = patch.get("target") or {"kind": change["kind"], "name": change["metadata"]["name"]}
    assert set(target) <= {"kind", "name"}, target
    what = {key: value for key, value in change.items() if key not in ("apiVersion", "kind", "metadata")}
    if "labels" in change.get("metadata", {}):
        what["metadata"] = {"labels": change["metadata"]["labels"]}
    left, met = [], 0
    for document in documents:
        hit = re.fullmatch(target["kind"], document["kind"]) and re.fullmatch(
            target.get("name", ".*"), document["metadata"]["name"]
        )
        met += bool(hit)
        if not hit:
            left.append(document)
        elif what.get("$patch") != "delete":
            left.append(merged(document, what))
    assert met or "target" in patch, f"{folder}: nothing is {target}"
    return left


def merged(old: Any, new: Any, field: str = "") -> Any:
    """A strategic merge."""
    if isinstance(old, dict) and isinstance(new, dict):
        kept = {key: value for key, value in old.items() if not (key in new and new[key] is None)}
        return kept | {key: merged(old.get(key), each, key) for key, each in new.items() if each is not None}
    key = KEYS.get(field)
    if key is not None and isinstance(old, list) and isinstance(new, list):
        changed = {each[key]: each for each in old}
        for each in new:
            changed[each[key]] = merged(changed.get(each[key]), each)
        return list(changed.values())
    return copy.deepcopy(new)


def _transformed(document: Document, said: Document) -> None:
    about = document["metadata"]
    for label in said.get("labels", []):
        assert set(label) == {"pairs"}, label
        about["labels"] = about.get("labels", {}) | label["pairs"]
    if "namespace" in said and document["kind"] != "Namespace":
        about["namespace"] = said["namespace"]
    for each in said.get("replicas", []):
        if document["kind"] == "Deployment" and about["name"] == each["name"]:
            document["spec"]["replicas"] = each["count"]
    for image in said.get("images", []):
        for container in containers_of(document):
            name, _, tag = container["image"].partition(":")
            if name == image["name"]:
                container["image"] = f"{image.get('newName', name)}:{image.get('newTag', tag)}"


def containers_of(document: Document) -> Documents:
    """The containers of what makes pods; none of anything else."""
    if document["kind"] not in ("Deployment", "DaemonSet", "Job"):
        return []
    spec = document["spec"]["template"]["spec"]
    return [*spec.get("initContainers", []), *spec["containers"]]


def in_order(value: Any, field: str = "") -> Any:
    """Without the order of lists whose elements have keys."""
    if isinstance(value, dict):
        return {key: in_order(each, key) for key, each in value.items()}
    if isinstance(value, list):
        plain = [in_order(each) for each in value]
        key = KEYS.get(field)
        return sorted(plain, key=lambda each: str(each.get(key))) if key and field != "env" else plain
    return value
