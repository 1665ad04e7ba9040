"""Demonstrations: made-up questions with the tool call, the made-up result and the answer.

Guarantees: entities are made up, fresh in every demonstration, and none is a bundled one; facts are cut out of the
bundled ones or random, so no true statement about a drug or a disease is taught; words of validation and test are never
used.
The flawed demonstrator mostly reads the column of general remarks instead of the one asked for, and often stops at the
first fact: these are the faults that GRPO is there to correct. The habit is the same for all fields, so that unlearning
it at one helps at the others; a wrong column for each field would have to be unlearned field by field.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from sql_agent.data.build_database import SEPARATOR
from sql_agent.tiny_policy.asking import Asker
from sql_agent.tiny_policy.corpus import COMMON, MISSING_ANSWER, Corpus, TableWords
from sql_agent.tiny_policy.task import Message
from sql_agent.tiny_policy.tokenizer import cjk_inventory

TOOL_NAME = "query_database_by_sql"
# What a name may end with: words that real names share, so that shared endings do not break copying.
ENDINGS = ["症", "病", "炎", "素", "平", "综合征", "缺乏症", "性贫血", "片", "唑", "沙坦", "酸钠", "B12", "C"]
INTENT_WEIGHTS = {"single": 40, "multi": 22, "compare": 18, "search": 10, "count": 6, "missing": 4}
STARTS = ["急性", "慢性", "原发性", "自身", "多发性", "二", "三", "对", "多", "单", "乙", "甲", "中", "下", "再生"]
# The facts and no more: an answer that first repeats name and field leads a tiny model, which copies what followed the
# last token elsewhere, back to the question. Of two entities, the names say whose facts these are.
ANSWERS = {
    "single": "{facts}。",
    "multi": "{facts}。",
    "compare": "{name}：{facts}。",
    "search": "{facts}。",
    "count": "{facts}种。",
}
LENGTHS = (2, 3, 3, 4, 4, 4, 5, 5, 6, 7, 9)
# Names are mostly made of characters that questions do not use: as in real names, that is how one sees where they end.
ANY_CHARACTER_SHARE = 0.1
# Other names have the characters of training's entities, one after another as there or not, or are pieces of facts: a
# name like 司来吉兰 is made of such as questions use too, and only company tells them apart.
ALIKE_SHARE, FOLLOWS_SHARE, PIECE_SHARE = 0.3, 0.6, 0.1
# Facts share pieces with the name and with each other (控制血压；控制血脂): that is what breaks naive copying.
AKIN_SHARE = 0.4
TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": TOOL_NAME,
            "parameters": {"type": "object", "properties": {"sql": {"type": "string"}}, "required": ["sql"]},
        },
    }
]


@dataclass(frozen=True)
class Flaws:
    """How often the demonstrator errs: shares of demonstrations, 0 to 1."""

    wrong_column: float = 0.0
    first_fact_only: float = 0.0


@dataclass(frozen=True)
class Draft:
    """One demonstration in parts: what is asked, the query, its rows, and the answer."""

    question: str
    sql: str
    records: list[dict[str, Any]]
    answer: str


def render_records(records: list[dict[str, Any]]) -> str:
    """The tool's JSON for a query that ran, as sql_agent.agent.tools.render_result writes it."""
    return json.dumps({"status": "success", "records": records, "count": len(records)}, ensure_ascii=False)


def to_messages(draft: Draft, system_prompt: str) -> list[Message]:
    """The demonstration as chat messages, in the form in which the agent sends its history."""
    call = {"type": "function", "function": {"name": TOOL_NAME, "arguments": {"sql": draft.sql}}}
    return [
        {"role": "system", "content": system_prompt},
        {"role": "user", "content": draft.question},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": render_records(draft.records)},
        {"role": "assistant", "content": draft.answer},
    ]


def answer(intent: str, facts: list[str], *, name: str = "") -> str:
    """What the demonstrator answers for one field, or one entity."""
    return ANSWERS[intent].format(facts=SEPARATOR.join(facts), name=name)


class Demonstrator:
    """An endless source of demonstrations, decided by `rng` alone."""

    def __init__(self, corpus: Corpus, rng: random.Random, flaws: Flaws = Flaws()) -> None:
        self._corpus = corpus
        self._rng = rng
        self._flaws = flaws
        self._asker = Asker(corpus, rng)
        self._chars = cjk_inventory(corpus.texts)
        asking = set(COMMON).union(*corpus.words.all())
        self._name_chars = [char for char in self._chars if char not in asking]
        self._next: dict[str, list[str]] = {}
        for name in corpus.names:
            for char, after in pairwise(name):
                self._next.setdefault(char, []).append(after)
        self._intents: dict[str, Callable[[], Draft]] = {
            "single": self._single,
            "multi": self._multi,
            "compare": self._compare,
            "search": self._search,
            "count": self._count,
            "missing": self._missing,
        }

    def demonstrate(self) -> list[Message]:
        """One new demonstration."""
        intent = self._rng.choices(list(INTENT_WEIGHTS), list(INTENT_WEIGHTS.values()))[0]
        return to_messages(self._intents[intent](), self._corpus.system_prompt)

    def query(self) -> list[Message]:
        """An exercise in asking: a question and the tool call, without the system prompt and what follows."""
        return self.demonstrate()[1:3]

    def echo(self) -> list[Message]:
        """A copying exercise: repeat a list of made-up names, or the facts of a made-up cell."""
        names = "、".join(self.name() for _ in range(self._rng.randint(2, 6)))
        text = names if self._rng.random() < 0.6 else self._cell(self._facts())
        return [{"role": "user", "content": text}, {"role": "assistant", "content": text}]

    def name(self) -> str:
        """A made-up entity, none of the bundled ones."""
        kind = self._rng.random()
        if kind < ALIKE_SHARE:
            name = self._alike(self._rng.choice(LENGTHS))
        elif kind < ALIKE_SHARE + PIECE_SHARE:
            name = re.sub("[；，。]", "", self._piece(9))
        else:
            name = self._random_name()
        return self.name() if not name or name in self._corpus.real else name

    def _alike(self, n_chars: int) -> str:
        """Characters of training's entities."""
        text = ""
        while len(text) < n_chars:
            after = self._next.get(text[-1:], []) if self._rng.random() < FOLLOWS_SHARE else []
            text += self._rng.choice(after or self._rng.choice(self._corpus.names))
        return text

    def _random_name(self) -> str:
        """Two to ten random characters, a third with a usual ending."""
        n_chars = self._rng.choice(LENGTHS)
        ending = self._rng.choice(ENDINGS) if self._rng.random() < 0.33 else ""
        start = self._rng.choice(STARTS) if self._rng.random() < 0.2 else ""
        text = start + self._characters(max(1, n_chars - len(start + ending))) + ending
        if len(text) > 4 and self._rng.random() < 0.2:
            # Real names repeat characters (阵发性室上性心动过速), and repeats are what breaks naive copying.
            text = text[:-1] + text[1]
        return text

    def _characters(self, n: int) -> str:
        return "".join(
            self._rng.choice(self._chars if self._rng.random() < ANY_CHARACTER_SHARE else self._name_chars)
            for _ in range(n)
        )

    def _fact(self) -> str:
        """A made-up fact: a piece of a bundled one, two pieces joined, or random characters; at most 20 characters."""
        kind = self._rng.random()
        if kind < 0.2:
            return self._characters(self._rng.randint(2, 8))
        if kind < 0.5:
            return self._piece(5) + self._piece(5)
        return self._piece(self._rng.choice((6, 6, 9, 9, 20)))

    def _piece(self, max_chars: int) -> str:
        fact = self._rng.choice(self._corpus.facts)
        n = min(len(fact), self._rng.randint(2, max_chars))
        start = self._rng.randint(0, len(fact) - n)
        return fact[start : start + n].strip("。，、 ") or self._characters(2)

    def _facts(self, name: str = "") -> list[str]:
        """The items of one made-up cell of the entity `name`: one to five facts, or one longer sentence."""
        sentence = self._rng.random() < 0.2
        n = self._rng.choice((1, 1, 2, 3)) if sentence else self._rng.choice((1, 2, 3, 3, 4, 4, 5))
        facts: list[str] = []
        for _ in range(n):
            facts.append(self._akin(self._fact(), [name, *facts] if name else facts))
        return ["，".join(facts)] if sentence else facts

    def _akin(self, fact: str, others: list[str]) -> str:
        """The fact, often with the start or the end of one of `others`."""
        if not others or self._rng.random() >= AKIN_SHARE:
            return fact
        other = self._rng.choice(others)
        n = min(len(other), self._rng.choice((1, 1, 2, 2, 3, 4)))
        at_end = self._rng.random() < 0.5
        piece = (other[-n:] if at_end else other[:n]).strip("。，、 ")
        return fact + piece if at_end else piece + fact

    def _told(self, facts: list[str]) -> list[str]:
        """The facts that the demonstrator repeats."""
        return facts[:1] if self._rng.random() < self._flaws.first_fact_only else facts

    def _read(self, table: TableWords, field: str, fields: list[str] | None = None) -> str:
        """The column that the demonstrator reads for a field."""
        return table.general(fields) if self._rng.random() < self._flaws.wrong_column else field

    def _cell(self, facts: list[str]) -> str:
        sentence = len(facts) == 1 and self._rng.random() < 0.5
        return SEPARATOR.join(facts) + ("。" if sentence else "")

    def _label(self, table: TableWords, field: str) -> str:
        return self._asker.label(table, field)

    def _table(self) -> TableWords:
        return self._rng.choice(self._corpus.tables)

    def _single(self) -> Draft:
        table, name = self._table(), self.name()
        facts = self._facts(name)
        field = self._rng.choice(list(table.labels))
        label = self._label(table, field)
        column = self._read(table, field)
        return Draft(
            question=self._asker.ask("single").format(name=name, field=label),
            sql=f"SELECT {column} FROM {table.table} WHERE {table.key} = '{name}'",
            records=[{column: self._cell(facts)}],
            answer=answer("single", self._told(facts)),
        )

    def _multi(self) -> Draft:
        table, name = self._table(), self.name()
        n = self._rng.choice((2, 2, 3))
        fields = self._rng.sample(list(table.labels), n)
        labels = [self._label(table, field) for field in fields]
        columns = [*fields[:-1], self._read(table, fields[-1])]
        columns = fields if len(set(columns)) < n else columns
        cells = [self._facts(name) for _ in columns]
        slots = {f"field_{letter}": label for letter, label in zip("abc", labels, strict=False)}
        return Draft(
            question=self._asker.ask("multi", n_fields=n).format(name=name, **slots),
            sql=f"SELECT {', '.join(columns)} FROM {table.table} WHERE {table.key} = '{name}'",
            records=[{column: self._cell(facts) for column, facts in zip(columns, cells, strict=True)}],
            answer="".join(answer("multi", self._told(facts)) for facts in cells),
        )

    def _compare(self) -> Draft:
        table, names = self._table(), [self.name(), self.name()]
        field = self._rng.choice(list(table.labels))
        label = self._label(table, field)
        column = self._read(table, field)
        # The database returns rows in its own order.
        rows = [(name, self._facts(name)) for name in self._rng.sample(names, 2)]
        return Draft(
            question=self._asker.ask("compare").format(name_a=names[0], name_b=names[1], field=label),
            sql=f"SELECT {table.key}, {column} FROM {table.table} WHERE {table.key} IN ('{names[0]}', '{names[1]}')",
            records=[{table.key: name, column: self._cell(facts)} for name, facts in rows],
            answer="".join(answer("compare", self._told(facts), name=name) for name, facts in rows),
        )

    def _look_up(self, intent: str) -> tuple[str, str]:
        """Question and condition of a reverse look-up."""
        table = self._corpus.tables[0]
        field = self._rng.choice(table.search_fields)
        label, value = self._label(table, field), self._fact()
        column = self._read(table, field, table.search_fields)
        question = self._asker.ask(intent, field=field).format(field=label, value=value)
        return question, f"FROM {table.table} WHERE {column} LIKE '%{value}%'"

    def _search(self) -> Draft:
        question, condition = self._look_up("search")
        names = [self.name() for _ in range(self._rng.choice((1, 1, 2, 2, 3, 4, 5)))]
        key = self._corpus.tables[0].key
        return Draft(
            question=question,
            sql=f"SELECT {key} {condition}",
            records=[{key: name} for name in names],
            answer=answer("search", self._told(names)),
        )

    def _count(self) -> Draft:
        question, condition = self._look_up("count")
        count = self._rng.choice((1, 1, 2, 2, 3, 3, 4, 5, self._rng.randint(0, 99)))
        return Draft(
            question=question,
            sql=f"SELECT COUNT(*) {condition}",
            records=[{"COUNT(*)": count}],
            answer=answer("count", [str(count)]),
        )

    def _missing(self) -> Draft:
        """A name that the database lacks: say so instead of inventing."""
        found = self._single()
        return Draft(question=found.question, sql=found.sql, records=[], answer=MISSING_ANSWER)
