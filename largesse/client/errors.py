"""What can go wrong when a cell is asked: one class for each thing that a program can do about it."""

from collections.abc import Mapping

from largesse.client.documents import Job

_FIXES = {
    "unauthenticated": "give a token: LARGESSE_TOKEN_FILE, a context's token_file, or `token_file`",
    "other_user": "leave the user out, or ask as an operator",
    "unknown_cell": "name a cell that the gateway serves, or none",
    "unknown_job": "name a job that lives, or that ended lately",
    "not_ready": "wait until the gateway has read the log",
    "busy": "ask again later",
    "no_router": "name a cell",
    "too_large": "send less at a time",
    "refused:name_taken": "choose another name, or leave it out",
    "refused:unknown_queue": "name a queue of the tree, or leave it out",
    "refused:too_many_jobs": "wait until others have ended",
    "refused:ended": "rerun it, or submit it under another name",
}
"""What helps, by the end of a problem's type, where the problem itself does not say it."""


class LargesseError(Exception):
    """Why something was not done. `document`: the gateway's problem document (RFC 9457), {} where it gave none."""

    fix_default = ""

    def __init__(self, detail: str, document: Mapping[str, object] | None = None) -> None:
        super().__init__(detail)
        self.document: Mapping[str, object] = document or {}

    @property
    def detail(self) -> str:
        """What happened, in words."""
        return str(self.args[0])

    @property
    def kind(self) -> str:
        """The end of the problem's type, like `refused:unknown_queue`; permanent. "" without a document."""
        return str(self.document.get("type", "")).removeprefix("urn:largesse:")

    @property
    def status(self) -> int | None:
        """The status of the answer; None where there was none."""
        status = self.document.get("status")
        return status if isinstance(status, int) else None

    @property
    def field(self) -> str | None:
        """The path of what is wrong in the request."""
        return _text(self.document.get("field"))

    @property
    def reason(self) -> str | None:
        """The cell's reason to refuse, or the detail without its field."""
        return _text(self.document.get("reason"))

    @property
    def fix(self) -> str:
        """What helps, as far as that is known; "" where it is not."""
        if (role := self.document.get("role")) and self.kind == "forbidden":
            return f"ask with a token of the role {role}"
        return _FIXES.get(self.kind, self.fix_default)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


class Refused(LargesseError):
    """The cell has read the request, and says no."""


class Malformed(LargesseError):
    """The request is none that the gateway could take: `field` says where, `reason` why."""

    fix_default = "mend the field"


class NotFound(LargesseError):
    """What was named is not known there, or no longer."""


class NotAllowed(LargesseError):
    """Not known who asks, or they may not do that."""


class Unavailable(LargesseError):
    """The gateway could not do it now, also not after all tries."""

    fix_default = "ask again later"


class Unreachable(LargesseError):
    """No answer came, or none that a gateway gives, also not after all tries."""

    fix_default = "check the address, and whether a gateway runs there"


class JobFailed(LargesseError):
    """A job that was waited for has ended otherwise than as `succeeded`. `job`: its last document."""

    fix_default = "look at its failures, and at what its tasks printed"

    def __init__(self, job: Job) -> None:
        super().__init__(f"{job['job']} {job['state']}" + (f": {job['detail']}" if job["detail"] else ""))
        self.job = job


class WaitedTooLong(LargesseError, TimeoutError):
    """What was waited for has not happened within the time that was given; it may yet."""


def error_of(status: int, document: object) -> LargesseError:
    """The error for an answer with this status. `document`: its body, None where that is no JSON."""
    if not isinstance(document, dict) or not isinstance(document.get("type"), str) or "detail" not in document:
        return Unreachable(f"an answer that no gateway gives (status {status})", {"status": status})
    detail = str(document["detail"])
    kind = document["type"].removeprefix("urn:largesse:")
    if status in (401, 403) or kind == "other_user":
        return NotAllowed(detail, document)
    if status == 429 or status >= 500:
        return Unavailable(detail, document)
    if status == 404 and kind == "not_found":  # No route: nothing that was asked for is missing.
        return Unreachable(f"{detail}: a gateway has its routes at the address itself, without a path", document)
    if status == 404:
        return NotFound(detail, document)
    if status == 409 or kind.startswith("refused:"):
        return Refused(detail, document)
    return Malformed(detail, document)
