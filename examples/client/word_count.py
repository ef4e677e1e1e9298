"""Submits a job of two stages, follows it to its end, and reads its result.

python examples/client/word_count.py
"""

from largesse.client import Client, JobFailed, JobSpec, Stage

SMALL = {"cpu": "100m", "memory": "64Mi"}
TEXTS = ["to be or not to be", "that is the question", "whether tis nobler in the mind to suffer"]


def main() -> None:
    split = Stage(
        stage="split",
        tasks=len(TEXTS),
        demand=SMALL,
        env={f"TEXT_{i}": text for i, text in enumerate(TEXTS)},
        command=["sh", "-c", 'printenv "TEXT_$LARGESSE_TASK_INDEX" | tr " " "\\n" > words.txt'],
    )
    count = Stage(
        stage="count",
        tasks=1,
        demand=SMALL,
        after=["split"],
        inputs=["split"],
        command=[
            "sh",
            "-c",
            'cat "$LARGESSE_INPUTS"/split/*/words.txt | sort | uniq -c | sort -k1,1nr -k2 > counts.txt',
        ],
    )
    with Client() as cell:
        job = cell.submit(JobSpec(stages=[split, count]))["job"]
        print(f"submitted {job}")
        try:
            for document in cell.watch(job):
                done = document["tasks"]
                print(f"{document['state']}: {done['succeeded']} of {done['total']} tasks done")
            cell.wait(job)
        except JobFailed as failed:
            for attempt in failed.job["failures"]:
                print(f"{attempt['stage']}/{attempt['index']} on {attempt['node']}: {attempt['detail']}")
            raise SystemExit(1) from None
        counts = cell.result(job, "count", 0, "counts.txt").decode()
        print("\n".join(line.strip() for line in counts.splitlines()[:3]))


if __name__ == "__main__":
    main()
