"""Calls a function for many numbers on the nodes of a cell: a hundred calls as one job of ten tasks.

python examples/client/primes.py
"""

from largesse.client.executor import LargesseExecutor


def primes_in(start: int) -> int:
    """How many of the thousand numbers from `start` on are prime."""
    return sum(n > 1 and all(n % d for d in range(2, int(n**0.5) + 1)) for n in range(start, start + 1_000))


def main() -> None:
    with LargesseExecutor(demand={"cpu": "100m", "memory": "64Mi"}) as pool:
        counts = pool.map(primes_in, range(0, 100_000, 1_000), chunksize=10)
        print(f"{sum(counts)} primes below 100000")


if __name__ == "__main__":
    main()
