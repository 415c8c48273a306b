"""The state graph: cycles in which nothing is emitted, and the exact worst cases over all runs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from checker.explore import Edges, Exploration

if TYPE_CHECKING:
    import networkx as nx


@dataclass(frozen=True, slots=True)
class Lasso:
    """A run that ends in a cycle: the states up to it, then those of the cycle, by number.

    ``cycle[0]`` follows ``stem[-1]`` (or is an initial state), and follows ``cycle[-1]`` again.
    """

    stem: tuple[int, ...]
    cycle: tuple[int, ...]


def state_graph(exploration: Exploration) -> nx.DiGraph[int]:
    """The explored states and transitions as a graph on state numbers.

    ``exploration.state(number)`` is the state of a node. Needs an exploration that kept its graph.
    """
    import networkx as nx

    if exploration.edges is None:
        raise ValueError("explore with keep_graph=True to get the state graph")
    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_nodes_from(range(exploration.num_states))
    for number in range(exploration.explored):
        graph.add_edges_from((number, target) for target in exploration.edges.of(number))
    return graph


def silent_graph(exploration: Exploration) -> nx.DiGraph[int]:
    """The part of the state graph whose steps emit nothing; every cycle lies in it."""
    import networkx as nx

    wanted = {key for targets in exploration.silent.values() for key in targets}
    numbers = {key: n for n, key in enumerate(exploration.packed) if key in wanted}
    graph: nx.DiGraph[int] = nx.DiGraph()
    for number, targets in exploration.silent.items():
        graph.add_edges_from((number, numbers[key]) for key in targets if key in numbers)
    return graph


def cycles(exploration: Exploration) -> list[Lasso]:
    """One lasso for every strongly connected component without emission, nearest first."""
    import networkx as nx

    graph = silent_graph(exploration)
    entries = sorted(
        min(component)
        for component in nx.strongly_connected_components(graph)
        if len(component) > 1 or graph.has_edge(*(2 * tuple(component)))
    )
    return [_lasso(exploration, graph, entry) for entry in entries]


def _lasso(exploration: Exploration, graph: nx.DiGraph[int], entry: int) -> Lasso:
    """The shortest run to ``entry`` and a shortest cycle through it."""
    import networkx as nx

    shortest = min(
        (
            nx.shortest_path(graph, follower, entry)
            for follower in graph.successors(entry)
            if nx.has_path(graph, follower, entry)
        ),
        key=len,
    )
    cycle = (entry, *shortest[:-1])
    return Lasso(tuple(exploration.path(entry)[:-1]), cycle)


def heaviest_run(edges: Edges, num_states: int, weight: Callable[[int], int]) -> int | None:
    """The largest sum of weights over the states of any run; ``None`` if there is no bound.

    Longest paths from the initial states in a graph whose only cycles, if any, are self-loops of
    states that weigh nothing; with any other cycle through weight there is no bound.
    """
    best = [0] * num_states
    incoming = [0] * num_states
    for number in range(num_states):
        for target in edges.of(number):
            if target != number:
                incoming[target] += 1
    ready = deque(number for number in range(num_states) if incoming[number] == 0)
    done = 0
    while ready:
        number = ready.popleft()
        done += 1
        total = best[number] = best[number] + weight(number)
        for target in edges.of(number):
            if target == number:
                continue
            if total > best[target]:
                best[target] = total
            incoming[target] -= 1
            if incoming[target] == 0:
                ready.append(target)
    if done < num_states:
        return None
    return max(best, default=0)
