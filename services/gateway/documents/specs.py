"""The spec of a job as people write it: what it was submitted with, less what is the default."""

from pydantic import TypeAdapter

from schemas import JobSpec, Stage
from schemas.edge.job_document import job_document
from services.gateway.documents import Document
from services.gateway.view.state import State

_SPEC = TypeAdapter(JobSpec)
_DEFAULT: Document = job_document(JobSpec("", "", [Stage("", 1, {})]))
_KEPT = ("job", "queue", "stages", "stage", "tasks", "demand")
"""Fields that are written, whatever they say."""


def spec_document(spec: JobSpec) -> Document:
    """What `POST /v1/jobs` reads as the same job."""
    document: Document = job_document(spec)
    stages = [_said(stage, _DEFAULT["stages"][0]) for stage in document["stages"]]
    return _said(document, _DEFAULT) | {"stages": stages}


def _said(document: Document, default: Document) -> Document:
    return {
        name: value
        for name, value in document.items()
        if name in _KEPT or (value is not None and value != default.get(name, None))
    }


def kept_spec(state: State, name: str) -> JobSpec | None:
    """What a job that has ended was submitted with; None where that is not kept."""
    text = state.specs.get(name)
    return None if text is None else _SPEC.validate_json(text)
