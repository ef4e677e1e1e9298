"""Cycles in what comes from outside: jobs whose stages wait for each other."""


def find_cycle(after: dict[str, list[str]]) -> list[str]:
    """Names of one cycle in order, first name repeated at the end; empty where there is none. Iterative: depth is the
    input's.
    """
    state: dict[str, int] = {}
    for root in after:
        if root in state:
            continue
        path = [root]
        walk = [iter(after[root])]
        state[root] = 1
        while walk:
            parent = next(walk[-1], None)
            if parent is None:
                state[path.pop()] = 2
                walk.pop()
            elif state.get(parent) == 1:
                return [*path[path.index(parent) :], parent]
            elif parent not in state and parent in after:
                state[parent] = 1
                path.append(parent)
                walk.append(iter(after[parent]))
    return []
