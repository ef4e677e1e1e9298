"""What a job file may say in short, for `largesse submit`: parameters, files of variables, stages by name.

    parameters: {rows: {type: int, default: 100}, input: {type: string}}
    stages:
      count: {needs: [load], env_file: count.env, command: [count, "${input}", "--rows=${rows}"], ...}

Nothing is evaluated: a placeholder stands for a value and nothing else, and `$${` for `${`. What comes out is a job
spec as the cell takes it.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Final, Literal

from schemas.edge.base import ENV_NAME_PATTERN, Input, Malformed, at_key, joined, shown
from schemas.edge.strict_json import INPUT_BYTES_MAX
from schemas.edge.validated import validated
from schemas.wording import nearest

Document = dict[str, object]
Kind = Literal["string", "int", "number", "bool"]

PARAMETERS_MAX: Final = 256
SHORT: Final = ("parameters", "env_file")
"""Fields that only a file has, of a job and of a stage."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLACEHOLDER = re.compile(r"\$(\$?)\{([A-Za-z_][A-Za-z0-9_]*)\}")
_ENV_NAME = re.compile(ENV_NAME_PATTERN)
_WORDS = {"string": "a text", "int": "a whole number", "number": "a number", "bool": "true or false"}


class Parameter(Input):
    """What a job file says of one of its parameters."""

    type: Kind = "string"
    default: object = None
    choices: list[object] = []
    help: str = ""


@dataclass(frozen=True, slots=True)
class Values:
    """The value of each parameter, and where an error names it."""

    known: Mapping[str, object]

    def filled(self, node: object, path: str) -> object:
        """A part of the document with values in place of placeholders. Raises Malformed."""
        if isinstance(node, str):
            return self._text(node, path)
        if isinstance(node, dict):
            return {key: self.filled(value, joined(path, at_key(key))) for key, value in node.items()}
        if isinstance(node, list):
            return [self.filled(value, f"{path}[{i}]") for i, value in enumerate(node)]
        return node

    def _text(self, text: str, path: str) -> object:
        whole = _PLACEHOLDER.fullmatch(text)
        if whole is not None and not whole[1]:
            return self._value(whole[2], path)  # As what it is: a number stays one.

        def put(match: re.Match[str]) -> str:
            return match[0][1:] if match[1] else words_of(self._value(match[2], path))

        return _PLACEHOLDER.sub(put, text)

    def _value(self, name: str, path: str) -> object:
        if name not in self.known:
            close = nearest(name, self.known)
            meant = f'did you mean "{close}"?' if close else "declare it there"
            raise Malformed(
                path, f"${{{name}}} is not among the parameters: {meant} For a shell's own write $${{{name}}}"
            )
        return self.known[name]


def words_of(value: object) -> str:
    """A value within a text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return format(value, "f") if isinstance(value, Decimal) else str(value)


def expanded(document: Document, said: Sequence[str], folder: Path) -> Document:
    """The job spec that a file stands for; the same document where it says nothing in short. `said`: NAME=VALUE of each
    --set. `folder`: from where files are named. Raises Malformed.
    """
    if "parameters" in document or said:
        document = _with_values(document, said)
    stages = document.get("stages")
    if isinstance(stages, dict):
        stages = _named(stages)
    if isinstance(stages, list) and any(isinstance(stage, dict) and "env_file" in stage for stage in stages):
        stages = [_with_files(stage, f"stages[{i}]", folder) for i, stage in enumerate(stages)]
    return document if stages is document.get("stages") else document | {"stages": stages}


def _with_values(document: Document, said: Sequence[str]) -> Document:
    declared = document.get("parameters")
    if declared is None:
        raise Malformed(
            "parameters", f"is missing, so there is nothing that --set {said[0].partition('=')[0]} could set"
        )
    if not isinstance(declared, dict) or len(declared) > PARAMETERS_MAX:
        raise Malformed(
            "parameters",
            f'has to be an object with at most {PARAMETERS_MAX} entries, like {{"rows": {{"type": "int"}}}}',
        )
    parameters = {name: _parameter(name, about) for name, about in declared.items()}
    values = Values(_values(parameters, said))
    return {key: values.filled(value, at_key(key)) for key, value in document.items() if key != "parameters"}


def _parameter(name: str, about: object) -> Parameter:
    field = joined("parameters", at_key(name))
    if _NAME.fullmatch(name) is None:
        raise Malformed(field, 'has to be letters, digits and "_", and may not begin with a digit')
    if not isinstance(about, dict):
        raise Malformed(field, f'has to be an object, like {{"type": "string", "default": "x"}}, is {shown(about)}')
    try:
        parameter = validated(Parameter, about)
        for at, value in (
            ("default", parameter.default),
            *((f"choices[{i}]", v) for i, v in enumerate(parameter.choices)),
        ):
            if (value is not None or at != "default") and not _is(parameter.type, value):
                raise Malformed(at, f"has to be {_WORDS[parameter.type]}, is {shown(value)}")
        if parameter.default is not None:
            _check_choice(parameter, parameter.default, "default")
    except Malformed as fault:
        raise fault.under(field) from None
    return parameter


def _is(kind: Kind, value: object) -> bool:
    if isinstance(value, bool):
        return kind == "bool"
    kinds: dict[Kind, tuple[type, ...]] = {"string": (str,), "int": (int,), "number": (int, Decimal), "bool": (bool,)}
    return isinstance(value, kinds[kind])


def _check_choice(parameter: Parameter, value: object, field: str) -> None:
    if parameter.choices and value not in parameter.choices:
        known = ", ".join(words_of(choice) for choice in parameter.choices[:8])
        raise Malformed(field, f"has to be one of {known}, is {shown(value)}")


def _values(parameters: Mapping[str, Parameter], said: Sequence[str]) -> dict[str, object]:
    values: dict[str, object] = {}
    for text in said:
        name, equals, value = text.partition("=")
        if not equals:
            raise Malformed("--set", f"has to be NAME=VALUE, is {shown(text)}")
        if name not in parameters:
            close = nearest(name, parameters)
            known = f'did you mean "{close}"?' if close else f"there are: {', '.join(parameters) or 'none'}"
            raise Malformed("--set", f"there is no parameter {shown(name)}; {known}")
        values[name] = _read(parameters[name], value, f"--set {name}")
        _check_choice(parameters[name], values[name], f"--set {name}")
    for name, parameter in parameters.items():
        if name not in values:
            if parameter.default is None:
                raise Malformed(f"parameters.{name}", f"has no value: give --set {name}=VALUE, or a default")
            values[name] = parameter.default
    return values


def _read(parameter: Parameter, text: str, field: str) -> object:
    """A value of the command line as the parameter's type."""
    kind = parameter.type
    try:
        if kind == "int" and re.fullmatch(r"-?[0-9]{1,18}", text):
            return int(text)
        if kind == "number" and re.fullmatch(r"-?[0-9]{1,18}(\.[0-9]{1,15})?", text):
            return Decimal(text) if "." in text else int(text)
        if kind == "bool" and text in ("true", "false"):
            return text == "true"
        if kind == "string":
            return text
    except InvalidOperation:  # pragma: no cover - the patterns leave none
        pass
    raise Malformed(field, f"has to be {_WORDS[kind]}, is {shown(text)}")


def _named(stages: Mapping[str, object]) -> list[object]:
    """Stages by name, as a list."""
    listed: list[object] = []
    for name, stage in stages.items():
        field = joined("stages", at_key(name))
        if not isinstance(stage, dict):
            raise Malformed(field, f"has to be a stage, is {shown(stage)}")
        if stage.get("stage", name) != name:
            raise Malformed(
                joined(field, "stage"), f"is {shown(stage['stage'])}, but stands under the name {shown(name)}"
            )
        listed.append({"stage": name, **stage})
    return listed


def _with_files(stage: object, path: str, folder: Path) -> object:
    """A stage with the variables of its files; what `env` says counts more, and a later file more than one before."""
    if not isinstance(stage, dict) or "env_file" not in stage:
        return stage
    named, env = stage["env_file"], stage.get("env", {})
    files = named if isinstance(named, list) else [named]
    field = joined(path, "env_file")
    if not all(isinstance(file, str) and file for file in files):
        raise Malformed(field, 'has to be the path of a file, or a list of them, like "job.env"')
    if not isinstance(env, dict):
        return {key: value for key, value in stage.items() if key != "env_file"}  # The edge says what is wrong with it.
    found: dict[str, object] = {}
    for file in files:
        found |= variables_in(folder / file, field)
    return {key: value for key, value in stage.items() if key != "env_file"} | {"env": found | env}


def variables_in(path: Path, field: str) -> dict[str, str]:
    """The variables of a file: NAME=VALUE lines, as in Docker's `--env-file`: quotes belong to the value, and nothing
    is put in for `$`. Raises Malformed under `field`.
    """
    try:
        with path.open("rb") as file:
            data = file.read(INPUT_BYTES_MAX + 1)
    except OSError as error:
        raise Malformed(field, f"{path} cannot be read: {error.strerror}") from None
    if len(data) > INPUT_BYTES_MAX:
        raise Malformed(field, f"{path.name} is too large: at most {INPUT_BYTES_MAX} bytes")
    try:
        lines = data.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise Malformed(field, f"{path.name} is not UTF-8") from None
    found: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        name, equals, value = text.partition("=")
        if not equals or _ENV_NAME.fullmatch(name) is None:
            raise Malformed(field, f"{path.name} line {number} is no NAME=VALUE")  # And not shown: it may be a secret.
        found[name] = value
    return found
