"""Who was compared with whom: the parts of a set of comparisons within which strengths can be estimated at all."""

from __future__ import annotations

import numpy as np

from evenhand.core.stats.comparisons import Bools, Floats, Ints


def linked_parts(links: Bools) -> Ints:
    """The part that each node belongs to: nodes that reach each other share one.

    >>> links = np.array([[0, 1, 0], [1, 0, 1], [0, 0, 0]], dtype=bool)
    >>> len(set(linked_parts(links).tolist()))
    2
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    _, labels = connected_components(csr_array(links), directed=True, connection="strong")
    return np.asarray(labels, dtype=np.int64)


def finite_parts(wins: Floats, ties: Floats) -> Ints:
    """The parts within which the likelihood of Davidson's model has a finite maximum; others are single models.

    Without ties that is Ford's condition: however the models are split in two, some in each half have beaten some
    in the other (Ford 1957, "Solution of a ranking problem from binary comparisons", Amer. Math. Monthly 64). A tie
    links both ways, but may not be enough: where no model was ever beaten by one that it beat, even through
    others, strengths may grow without end while ties stay as likely as they are; see `_escapes`.

    >>> finite_parts(np.array([[0.0, 8.0], [0.0, 0.0]]), np.array([[0.0, 2.0], [2.0, 0.0]])).tolist()
    [0, 1]
    >>> finite_parts(np.array([[0.0, 8.0], [1.0, 0.0]]), np.array([[0.0, 2.0], [2.0, 0.0]])).tolist()
    [0, 0]
    """
    labels = linked_parts((wins > 0) | (ties > 0))
    fresh = len(wins)
    for part in range(labels.max(initial=-1) + 1):
        inside = np.flatnonzero(labels == part)
        if len(inside) > 1 and _escapes(wins[np.ix_(inside, inside)] > 0, ties[np.ix_(inside, inside)] > 0):
            labels[inside] = fresh + inside
    return _renumbered(labels)


def _escapes(beat: Bools, tied: Bools) -> bool:
    """Whether strengths and the tie parameter can grow together without end and the likelihood not fall.

    A direction (strengths x, log tie parameter e) in which no observed outcome loses needs x_i - x_j >= 2e for
    every i that beat j and |x_i - x_j| <= 2e for every tie. Set 2e = 1: such x exist unless the constraints, as
    lengths of arcs, hold a cycle of negative length (Bellman 1958, "On a routing problem", Quart. Appl. Math. 16).
    """
    if np.bincount(linked_parts(beat)).max() > 1:
        return False  # a cycle of wins is a cycle of negative length
    length = np.where(beat, -1.0, np.where(tied, 1.0, np.inf))
    np.fill_diagonal(length, 0.0)
    for middle in range(len(length)):  # Floyd and Warshall's shortest paths
        length = np.minimum(length, length[:, middle, None] + length[None, middle, :])
        if (np.diag(length) < 0).any():
            return False
    return True


def _renumbered(labels: Ints) -> Ints:
    """Parts numbered in the order in which their first members stand."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    return np.asarray(np.argsort(np.argsort(first))[inverse], dtype=np.int64)


def reach(beat: Bools) -> Bools:
    """Who stands above whom, directly or through others.

    >>> reach(np.array([[0, 1, 0], [0, 0, 1], [0, 0, 0]], dtype=bool))[0].tolist()
    [False, True, True]
    """
    above = beat.copy()
    for middle in range(len(above)):
        above |= above[:, middle, None] & above[None, middle, :]
    return above


def with_wins(wins: Floats, ties: Floats) -> Bools:
    """Which models are linked, directly or through others, with any that has won or lost.

    >>> with_wins(np.zeros((2, 2)), np.array([[0.0, 3.0], [3.0, 0.0]])).tolist()
    [False, False]
    """
    met = (wins > 0) | (ties > 0)
    labels, decided = linked_parts(met | met.T), (wins > 0) | (wins > 0).T
    return np.isin(labels, labels[decided.any(axis=1)])


def firm_parts(one: Ints, two: Ints, cluster: Ints, size: int) -> tuple[Ints, Ints]:
    """Parts that stay in one piece whichever single cluster is left out; and the clusters that split something.

    The variance of a difference is seen in how it varies between clusters. Where only one cluster links two models,
    there is nothing to see. Rows are (one, two, cluster), each combination once.
    """
    edges, owner, times = np.unique(one * size + two, return_index=True, return_counts=True)
    often = edges[times > 1]
    blocks = _joined(often // size, often % size, size)  # nothing that is there twice is ever lost
    first, second, sole = blocks[edges // size], blocks[edges % size], cluster[owner]
    between = first != second
    first, second, sole = first[between], second[between], sole[between]
    count = int(blocks.max()) + 1
    parts = whole = _joined(first, second, count)
    bridges = []
    # Without a cluster that has no edge in this one spanning forest, the forest still holds all together.
    for candidate in np.unique(sole[_forest(first, second, count)]):
        kept = sole != candidate
        apart = _joined(first[kept], second[kept], count)
        if apart.max() > whole.max():
            bridges.append(candidate)
            parts = _renumbered(parts * count + apart)
    return _renumbered(parts[blocks]), np.array(bridges, dtype=np.int64)


def _joined(first: Ints, second: Ints, count: int) -> Ints:
    """The part of each of so many nodes, where these edges join them."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    graph = coo_array((np.ones(len(first)), (first, second)), shape=(count, count))
    return np.asarray(connected_components(graph.tocsr(), directed=False)[1], dtype=np.int64)


def _forest(first: Ints, second: Ints, count: int) -> Ints:
    """The places of edges that make a spanning forest: each joins what those before it have not.

    >>> _forest(np.array([0, 1, 0, 2]), np.array([1, 0, 2, 1]), 3).tolist()
    [0, 2]
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import minimum_spanning_tree

    _, places = np.unique(first * count + second, return_index=True)  # of edges that stand twice, the first
    edges = coo_array((places + 1.0, (first[places], second[places])), shape=(count, count))
    return np.sort(minimum_spanning_tree(edges.tocsr()).data).astype(np.int64) - 1
