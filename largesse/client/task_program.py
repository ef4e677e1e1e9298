"""What a task of LargesseExecutor runs. Its text is the command, so a node needs Python and cloudpickle, and nothing of
Largesse. Its calls come in the environment, and what became of them goes to a file in the results folder.
"""

import base64
import os
import pickle
import sys
import traceback
import zlib


def main() -> None:
    """Runs the calls of this task, and leaves an outcome for each. An exception of a call is an outcome, too."""
    count = int(os.environ.pop("PICKLED_CALLS"))
    text = "".join(os.environ.pop(f"PICKLED_CALLS_{i}") for i in range(count))
    python, functions, chunks = pickle.loads(base64.b64decode(text))
    if python != list(sys.version_info[:2]):
        here, there = ("{}.{}".format(*version) for version in (sys.version_info[:2], python))
        sys.exit(f"the calls were pickled by Python {there}, and this is Python {here}: choose one by `python`")
    calls = pickle.loads(zlib.decompress(chunks[int(os.environ["LARGESSE_TASK_INDEX"])]))
    outcomes = [outcome_of(functions[number], arguments) for number, arguments in calls]
    sys.stdout.flush()
    folder = os.environ["LARGESSE_RESULTS"]
    with open(os.path.join(folder, ".outcomes"), "wb") as file:
        file.write(zlib.compress(pickle.dumps(outcomes), 1))
    os.replace(os.path.join(folder, ".outcomes"), os.path.join(folder, "outcomes"))


def outcome_of(function: bytes, arguments: bytes) -> "tuple[bool, bytes, str]":
    """Whether a call returned, what it returned or raised, pickled, and the traceback as text."""
    import cloudpickle

    try:
        args, kwargs = pickle.loads(arguments)
        value = pickle.loads(zlib.decompress(function))(*args, **kwargs)
        return True, cloudpickle.dumps(value), ""
    except BaseException as error:
        text = "".join(traceback.format_exception(error))
        try:
            pickled = cloudpickle.dumps(error)
            pickle.loads(pickled)
        except Exception:
            pickled = b""  # Only its text goes back.
        return False, pickled, text


if __name__ == "__main__":
    main()
