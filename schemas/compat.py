"""Two JSON Schemas -> the list of breaks between them. Pure.

A break is what an old reader of new documents, or a new reader of old ones, stumbles over: a field removed or of
another type, a field required from now on, more or fewer values of an enum, a limit that has become tighter. A new
optional field, another description, another default or a wider limit is none.
"""

from dataclasses import dataclass, field
from typing import Any

Schema = dict[str, Any]

_TIGHTER_WHEN_HIGHER = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_TIGHTER_WHEN_LOWER = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
_TIGHTER_WHEN_OTHER = ("pattern", "format", "multipleOf", "uniqueItems", "propertyNames")


def breaks_between(old: Schema, new: Schema) -> list[str]:
    """What breaks, each as `path: what`, in the order of the old schema. `[]` stands for any item, `{}` for any value.

    Both are whole documents: their `$ref`s lead to their own `$defs`.
    """
    comparison = _Comparison(old, new)
    _compare(comparison, "", old, new)
    return comparison.found


@dataclass(slots=True)
class _Comparison:
    old: Schema
    new: Schema
    found: list[str] = field(default_factory=list)
    met: set[tuple[str, str]] = field(default_factory=set)  # Pairs of models: a recursive one comes round to itself.


def _compare(comparison: _Comparison, path: str, old: Schema, new: Schema) -> None:
    olds = _branches(old, comparison.old)
    news = _branches(new, comparison.new)
    if sorted(olds) != sorted(news):
        _say(comparison, path, f"retyped from {' | '.join(sorted(olds))} to {' | '.join(sorted(news))}")
        return
    for kind, (model, branch) in olds.items():
        pair = (model, news[kind][0])
        if pair not in comparison.met:
            if all(pair):
                comparison.met.add(pair)
            _compare_branch(comparison, path, branch, news[kind][1])


def _compare_branch(comparison: _Comparison, path: str, old: Schema, new: Schema) -> None:
    _compare_values(comparison, path, old, new)
    _compare_limits(comparison, path, old, new)
    if "items" in old or "items" in new:
        _compare(comparison, f"{path}[]", old.get("items", {}), new.get("items", {}))
    _compare_fields(comparison, path, old, new)
    allowed, allows = old.get("additionalProperties", True), new.get("additionalProperties", True)
    if allows is False and allowed is not False:
        _say(comparison, path, "refuses unknown fields now")
    elif isinstance(allowed, dict) or isinstance(allows, dict):
        _compare(comparison, f"{path}{{}}", _schema_of(allowed), _schema_of(allows))


def _compare_fields(comparison: _Comparison, path: str, old: Schema, new: Schema) -> None:
    before, after = old.get("properties", {}), new.get("properties", {})
    for name, content in before.items():
        if name not in after:
            _say(comparison, _below(path, name), "removed")
        else:
            _compare(comparison, _below(path, name), content, after[name])
    for name in new.get("required", []):
        if name not in old.get("required", []):
            _say(comparison, _below(path, name), "required now" if name in before else "new and required")


def _compare_values(comparison: _Comparison, path: str, old: Schema, new: Schema) -> None:
    before, after = _values(old), _values(new)
    if before == after:
        return
    if before is None or after is None:
        _say(comparison, path, "limited to an enum now" if before is None else "no enum any more")
        return
    if gone := [value for value in before if value not in after]:
        _say(comparison, path, f"narrower enum, without {', '.join(gone)}")
    if come := [value for value in after if value not in before]:
        _say(comparison, path, f"wider enum, with {', '.join(come)}")


def _compare_limits(comparison: _Comparison, path: str, old: Schema, new: Schema) -> None:
    for limit in _TIGHTER_WHEN_HIGHER + _TIGHTER_WHEN_LOWER + _TIGHTER_WHEN_OTHER:
        before, after = old.get(limit), new.get(limit)
        if after is None or before == after:
            continue
        loosened = before is not None and (
            (limit in _TIGHTER_WHEN_HIGHER and after < before) or (limit in _TIGHTER_WHEN_LOWER and after > before)
        )
        if not loosened:
            _say(comparison, path, f"{limit} is {after} now, was {'free' if before is None else before}")


def _branches(node: Schema, root: Schema) -> dict[str, tuple[str, Schema]]:
    """The alternatives that a node allows, by kind, with their models' names ("": none).

    Objects among several are told apart by that name.
    """
    flat: list[tuple[str, Schema]] = []
    waiting = [("", node)]
    while waiting:
        name, branch = waiting.pop(0)
        if "$ref" in branch:
            name = branch["$ref"].rpartition("/")[2]
            waiting.insert(0, (name, root["$defs"][name]))
        elif alternatives := branch.get("anyOf") or branch.get("oneOf"):
            waiting = [("", alternative) for alternative in alternatives] + waiting
        else:
            flat.append((name, branch))
    several = sum(branch.get("type") == "object" for _, branch in flat) > 1
    return {_kind(name if several else "", branch): (name, branch) for name, branch in flat}


def _kind(name: str, branch: Schema) -> str:
    kind = str(branch.get("type", "anything"))
    return f"object {name}" if name and kind == "object" else kind


def _values(node: Schema) -> list[str] | None:
    """The values of an enum, None for any."""
    if "const" in node:
        return [str(node["const"])]
    return [str(value) for value in node["enum"]] if "enum" in node else None


def _schema_of(additional: object) -> Schema:
    return additional if isinstance(additional, dict) else {}


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _say(comparison: _Comparison, path: str, what: str) -> None:
    comparison.found.append(f"{path or 'document'}: {what}")
