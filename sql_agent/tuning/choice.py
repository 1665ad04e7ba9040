"""Which rollouts are learned from: the best of each question, or pairs with a clear difference in reward."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from sql_agent.config import DpoConfig, SftConfig
from sql_agent.tuning.chats import Chat
from sql_agent.tuning.sources import Pair


def by_group(chats: Sequence[Chat]) -> list[list[Chat]]:
    """Different conversations of each group with a reward, the best first; the order of the file decides ties."""
    groups: dict[str, dict[str, Chat]] = defaultdict(dict)
    for chat in chats:
        if chat.reward is not None:
            groups[chat.group].setdefault(repr((chat.messages, chat.calls)), chat)
    return [sorted(group.values(), key=lambda chat: -(chat.reward or 0.0)) for group in groups.values()]


def best(chats: Sequence[Chat], settings: SftConfig) -> tuple[list[Chat], Counter[str]]:
    """Rejection sampling: rollouts of at least `min_reward`, of each question the best `best_of`."""
    chosen: list[Chat] = []
    left_out: Counter[str] = Counter()
    for group in by_group(chats):
        good = [chat for chat in group if (chat.reward or 0.0) >= settings.min_reward]
        chosen += good[: settings.best_of or None]
        left_out["a reward below sft.min_reward"] += len(group) - len(good)
        left_out["not among the best sft.best_of of its question"] += len(good) - len(good[: settings.best_of or None])
    left_out["the same as another rollout of its question"] += len(chats) - len(chosen) - left_out.total()
    return chosen, +left_out


def mined(chats: Sequence[Chat], settings: DpoConfig) -> tuple[list[Pair], Counter[str]]:
    """The best with the worst of each question, the second best with the second worst, and so on to the margin."""
    pairs: list[Pair] = []
    left_out: Counter[str] = Counter()
    for group in by_group(chats):
        sides = zip(group, reversed(group), strict=True)
        clear = [Pair(a, b) for a, b in sides if (a.reward or 0.0) - (b.reward or 0.0) >= settings.margin]
        pairs += clear[: settings.pairs_per_question]
        left_out["a question without a difference of dpo.margin"] += not clear
    return pairs, +left_out
