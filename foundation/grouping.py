"""Values by a key that each of them has."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable


def grouped[K: Hashable, T](values: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """The values of each key, keys and values in the order in which they come."""
    groups: dict[K, list[T]] = defaultdict(list)
    for value in values:
        groups[key(value)].append(value)
    return dict(groups)
