"""What an operator does next when a service has stopped: one line for each kind of error that stops one."""

import shlex

from largesse.bus.file.bus import DirectoryHeld, JournalDamaged
from largesse.bus.file.head import RESTORE as RESTORE_FILE
from largesse.bus.port import PositionGap
from largesse.folding import FOLDING, CoreStopped
from largesse.log.codec import Undecodable
from largesse.log.decisions import DecisionGap
from largesse.log.inputs import InputStopped

RESTORE = "restore the topic, or the data folder, from a replica or a copy; nothing is written until then"


def way_out(error: BaseException, log: str, data: str = "") -> str:
    """What helps against `error` at every start; empty where its own message says all there is to say.

    `log`: the cell's log as `largesse replay` takes it. `data`: the data folder of a cell of `largesse up`; empty: its
    services are processes of their own, and a gateway can be asked.
    """
    place = f" --data {shlex.quote(data)}" if data else ""
    if isinstance(error, InputStopped):
        command = f"largesse admin skip-input {error.topic} {error.offset}{place}"
        return f"if every start ends here: `{command}` has this input refused unread"
    if isinstance(error, CoreStopped) and error.what == FOLDING:
        command = f"largesse replay {shlex.quote(log)} --until {error.record.seq}"
        return (
            "the record is in the log, so every start ends here: start the version that ran before, or one that can "
            f"fold it; `{command}` shows the error again, without a bus"
        )
    if isinstance(error, CoreStopped):
        command = f"largesse admin abandon-round {error.record.round}{place}"
        return f"if every start ends here: `{command}` gives this round up"
    if isinstance(error, PositionGap):
        return f"what lay between is gone: {RESTORE}"
    if isinstance(error, Undecodable):
        return f"the log is damaged there; `largesse replay {shlex.quote(log)}` names the record: {RESTORE}"
    if isinstance(error, DecisionGap):
        return f"an answer that the log refers to is gone: {RESTORE}"
    if isinstance(error, DirectoryHeld):
        return "end that process, or choose another folder"
    if isinstance(error, JournalDamaged) and RESTORE_FILE not in str(error):
        return f"this file: {RESTORE_FILE}"
    return ""


def with_way_out(text: str, error: BaseException, log: str, data: str = "") -> str:
    """The text of an error, and on a line of its own what helps, as `way_out` has it."""
    helps = way_out(error, log, data)
    return f"{text}\n{helps}" if helps else text
