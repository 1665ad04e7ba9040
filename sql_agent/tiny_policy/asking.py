"""How demonstrations ask: training phrasings, and freely combined wordings that no dataset holds.

Thirteen phrasings would be learned by heart: then a name that stands elsewhere is not found. So most questions join an
opening, a core and an ending of words.yaml, and some put names and labels into a run of everyday words or characters.
Phrasings of validation and test are never read here.
"""

from __future__ import annotations

import random
import re

from sql_agent.tiny_policy.corpus import COMMON, Corpus, TableWords

MARKS = ["", "", "，", "，", "：", "、"]
SEARCH_WORDS = ["哪些药", "什么药", "哪些药品", "哪几种药", "所有药品", "药品有哪些", "药是哪些", "列出药品"]
COUNT_WORDS = ["多少种", "几种药", "数量", "总数", "几个药", "多少药品", "药品数目", "合计几种", "总共多少"]
# Shares of questions: a training phrasing as it is, one between fillers, a wording of words.yaml, else scattered.
PLAIN, FRAMED, WORDED = 0.3, 0.1, 0.4
# Of fillers, those made of whole words; of wordings, those with a word more beside a name, a value or a label.
WHOLE_WORDS, BESIDE = 0.6, 0.4


class Asker:
    """Makes question templates of an intent, with the placeholders of templates.yaml."""

    def __init__(self, corpus: Corpus, rng: random.Random) -> None:
        self._corpus = corpus
        self._rng = rng

    def ask(self, intent: str, *, field: str = "", n_fields: int = 1) -> str:
        """A template of the intent for this field or this many fields."""
        chance = self._rng.random()
        if chance < PLAIN:
            return self._training(intent, field, n_fields)
        if chance < PLAIN + FRAMED:
            return self._framed(self._training(intent, field, n_fields))
        if chance < PLAIN + FRAMED + WORDED:
            return self._worded(intent, n_fields)
        return self._scattered(intent, n_fields)

    def label(self, table: TableWords, field: str) -> str:
        """What the question calls a field; now and then with a character missing, or a common one too many."""
        label = self._rng.choice([*table.labels[field], *self._corpus.words.labels[table.table][field]])
        chance = self._rng.random()
        at = self._rng.randrange(len(label))
        if chance < 0.08 and len(label) > 3:
            return label[:at] + label[at + 1 :]
        if chance < 0.16:
            return label[:at] + self._filler(1, 2) + label[at:]
        return label

    def _training(self, intent: str, field: str, n_fields: int) -> str:
        return self._rng.choice(
            [
                phrasing.text
                for phrasing in self._corpus.phrasings[intent]
                if phrasing.n_fields == n_fields and (not phrasing.fields or field in phrasing.fields)
            ]
        )

    def _filler(self, least: int, most: int) -> str:
        n_chars = self._rng.randint(least, most)
        if self._rng.random() >= WHOLE_WORDS:
            return "".join(self._rng.choices(COMMON, k=n_chars))
        text = ""
        while len(text) < n_chars:
            text += self._rng.choice(self._corpus.everyday)
        return text

    def _framed(self, text: str) -> str:
        """A training phrasing between fillers."""
        before = self._filler(1, 6) + self._rng.choice(MARKS) if self._rng.random() < 0.7 else ""
        after = self._rng.choice(["，", ""]) + self._filler(1, 5) + self._rng.choice("？。")
        return before + (text.rstrip("？。") + after if self._rng.random() < 0.6 else text)

    def _worded(self, intent: str, n_fields: int) -> str:
        """Opening, core and ending, chosen independently."""
        words = self._corpus.words
        core = self._rng.choice(words.cores[intent])
        core = core.replace("{names}", self._joined(["{name_a}", "{name_b}"]))
        core = core.replace("{fields}", self._joined(["{field_a}", "{field_b}", "{field_c}"][:n_fields]))
        if self._rng.random() < BESIDE:
            slot = self._rng.choice(re.findall(r"{\w+}", core))
            word = self._rng.choice(self._corpus.everyday)
            core = core.replace(slot, self._rng.choice([slot + word, word + slot]))
        return self._rng.choice(words.openings) + core + self._rng.choice(words.endings)

    def _joined(self, slots: list[str]) -> str:
        return slots[0] + "".join(self._rng.choice(self._corpus.words.joints) + slot for slot in slots[1:])

    def _scattered(self, intent: str, n_fields: int) -> str:
        """Names, labels and the word that tells counting from searching, in any order between random characters."""
        groups = self._groups(intent, n_fields)
        self._rng.shuffle(groups)
        body = "".join(group + self._rng.choice(["的", self._filler(1, 3), self._gap()]) for group in groups)
        opening = self._gap() if self._rng.random() < 0.6 else ""
        return opening + body.rstrip("，、：") + self._rng.choice(["", self._filler(1, 4)]) + self._rng.choice("？。")

    def _groups(self, intent: str, n_fields: int) -> list[str]:
        if intent == "single":
            return ["{name}", "{field}"]
        if intent == "multi":
            return ["{name}", self._joined(["{field_a}", "{field_b}", "{field_c}"][:n_fields])]
        if intent == "compare":
            return [self._joined(["{name_a}", "{name_b}"]), "{field}"]
        return ["{field}", "{value}", self._rng.choice(SEARCH_WORDS if intent == "search" else COUNT_WORDS)]

    def _gap(self) -> str:
        return self._filler(1, 6) + self._rng.choice(MARKS)
