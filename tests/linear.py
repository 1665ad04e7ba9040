"""How long work takes by its size, whatever other tests left on the heap."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable


def is_linear(work: Callable[[int], object], small: int, large: int) -> bool:
    """Whether `work(large)` takes processor time in proportion to `work(small)`; with room for what memory costs."""
    work(10)  # which loads dictionaries
    took_s = []
    for size in (small, large):
        gc.freeze()  # a collection would go through all of it again and again
        started_s = time.process_time()
        work(size)
        took_s.append(time.process_time() - started_s)
        gc.unfreeze()
    return took_s[1] < 2 * large / small * took_s[0] + 0.5
