"""The spec of a job as people write it: what it was submitted with, less what is the default."""

from schemas import JobSpec, Stage
from schemas.edge.job_document import job_document
from services.gateway.documents import Document

_DEFAULT: Document = job_document(JobSpec("", "", [Stage("", 1, {})]))
_KEPT = ("job", "queue", "stages", "stage", "tasks", "demand")
"""Fields that are written, whatever they say."""


def spec_document(document: Document) -> Document:
    """What `job_document` says of a job, as far as it is needed for `POST /v1/jobs` to read the same job."""
    stages = [_said(stage, _DEFAULT["stages"][0]) for stage in document["stages"]]
    return _said(document, _DEFAULT) | {"stages": stages}


def _said(document: Document, default: Document) -> Document:
    return {
        name: value
        for name, value in document.items()
        if name in _KEPT or (value is not None and value != default.get(name, None))
    }
