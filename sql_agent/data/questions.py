"""Questions with reference SQL, evidence and answers, made from the database and the templates.

Guarantees: the same database, templates and seed give the same questions; every answer is what the reference SQL
returned; entities are split before anything is asked, so a question touches only entities and phrasings of its own
split, and a reverse look-up uses only keywords whose matching rows all lie in that split. Drugs are dealt out by whole
categories: near-identical drugs do not face each other across splits, and look-ups can have several rows.
Not covered: questions that need joins, negation or knowledge beyond the database.
"""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from foundation.files import write_lines
from foundation.grouping import grouped
from sql_agent.data.build_database import FIXED_TIME, SEPARATOR
from sql_agent.data.templates import SPLITS, Intent, Split, Table, Templates
from sql_agent.records import Evidence, Question

SEED = 20260101
SHARES: dict[Split, float] = {"train": 0.7, "val": 0.1, "test": 0.2}
MAX_MATCHES: dict[str, int] = {"search": 5, "count": 12}

# Questions wanted per split, intent and table; fewer come out where the split has no more different ones.
WANTED: dict[Split, dict[Intent, int]] = {
    "train": {"single": 500, "multi": 150, "compare": 150, "search": 200, "count": 100},
    "val": {"single": 50, "multi": 18, "compare": 18, "search": 22, "count": 12},
    "test": {"single": 120, "multi": 45, "compare": 45, "search": 55, "count": 30},
}


@dataclass(frozen=True)
class Entity:
    """One row of the database that can be asked about; `cells` holds its askable columns that are not NULL."""

    table: str
    kind: str
    id: int
    name: str
    cells: dict[str, str]

    def facts(self, field: str) -> list[str]:
        """The items of a cell (a sentence is one item, NULL has none)."""
        return self.cells[field].split(SEPARATOR) if field in self.cells else []


@dataclass(frozen=True)
class Draft:
    """What to ask, before SQL has run: the entities and fields, and for look-ups the keyword."""

    intent: Intent
    entities: list[Entity]
    fields: list[str]
    keyword: str = ""


def make_questions(
    database: Path,
    templates: Templates,
    *,
    seed: int = SEED,
    wanted: dict[Split, dict[Intent, int]] | None = None,
    words: Split | None = None,
) -> list[Question]:
    """All questions, split by split; ids count within a split (train-0001). No two have the same text.

    `words` is the split whose phrasings and labels are used, where it is not the entities' own.
    """
    wanted = wanted or WANTED
    questions: list[Question] = []
    with closing(sqlite3.connect(f"{database.resolve().as_uri()}?mode=ro", uri=True)) as db:
        everything = {name: _read_entities(db, name, table) for name, table in templates.tables.items()}
        by_split = {name: split_entities(entities, seed) for name, entities in everything.items()}
        for split in wanted:
            maker = _Maker(db=db, templates=templates, split=split, words=words or split, seed=seed, made={})
            for table, entities in everything.items():
                for intent, count in wanted[split].items():
                    drafts = _drafts(intent, entities, by_split[table][split], templates, maker.rng(intent, table))
                    maker.take(drafts, count, table)
            questions += maker.numbered()
    return questions


def make_entity_questions(database: Path, templates: Templates) -> list[Question]:
    """The entities of test in the words of train: what an agent makes of new names alone. Ids: entities-0001."""
    return make_questions(database, templates, wanted={"test": WANTED["test"]}, words="train")


def split_entities(entities: list[Entity], seed: int = SEED) -> dict[Split, list[Entity]]:
    """Deal entities out by a seeded shuffle, in the shares SHARES; those of one category stay together."""
    groups = grouped(entities, lambda entity: entity.cells.get("cate_name", entity.name))
    names = sorted(groups)
    random.Random(f"{seed}-entities").shuffle(names)
    result: dict[Split, list[Entity]] = {split: [] for split in SPLITS}
    for name in names:
        neediest = min(SPLITS, key=lambda split: len(result[split]) / (SHARES[split] * len(entities)))
        result[neediest] += groups[name]
    return result


def write_raw(questions: list[Question], path: Path) -> None:
    """Write the documented raw format: one JSON object a line, with qid and ground_truth."""
    names = ("task_type", "question", "sql", "evidence", "meta")
    rows = (question.model_dump() for question in questions)
    write_lines(path, ({"qid": row["id"], **{n: row[n] for n in names}, "ground_truth": row["answer"]} for row in rows))


def _read_entities(db: sqlite3.Connection, name: str, table: Table) -> list[Entity]:
    columns = list(table.fields)
    cursor = db.execute(f"SELECT id, {table.name}, {', '.join(columns)} FROM {name} ORDER BY id")
    return [
        Entity(name, table.kind, row[0], row[1], {c: v for c, v in zip(columns, row[2:], strict=True) if v})
        for row in cursor
    ]


def _drafts(
    intent: Intent, every: list[Entity], mine: list[Entity], templates: Templates, rng: random.Random
) -> Iterable[Draft]:
    """What can be asked in this way of the entities of one split, in an order that `rng` draws."""
    match intent:
        case "single":
            return _shuffled([Draft(intent, [entity], [field]) for entity in mine for field in entity.cells], rng)
        case "multi":
            # Twice as many pairs as triples, like the phrasings; a few draws per entity are plenty.
            sizes = _shuffled([(entity, n) for entity in mine for n in (2, 2, 3, 2, 2, 3)], rng)
            return (Draft(intent, [entity], rng.sample(list(entity.cells), n)) for entity, n in sizes)
        case "compare":
            # As people ask: drugs of one category, any two diseases; only where the cells differ.
            pairs = [p for p in combinations(mine, 2) if p[0].cells.get("cate_name") == p[1].cells.get("cate_name")]
            comparisons = [(pair, field) for pair in pairs for field in pair[0].cells if _differ(*pair, field)]
            return (Draft(intent, rng.sample(pair, 2), [field]) for pair, field in _shuffled(comparisons, rng))
        case "search":
            return _shuffled(_lookups(every, mine, templates, intent), rng)
        case "count":
            return _in_rounds(_shuffled(_lookups(every, mine, templates, intent), rng))


def _shuffled[T](values: list[T], rng: random.Random) -> list[T]:
    rng.shuffle(values)
    return values


def _differ(one: Entity, other: Entity, field: str) -> bool:
    return field in other.cells and one.cells[field] != other.cells[field]


def _in_rounds(drafts: list[Draft]) -> list[Draft]:
    """One of each field and count, then a second of each, and so on: no number is right more often than others."""
    dealt: Counter[tuple[str, int]] = Counter()
    rounds: list[tuple[int, Draft]] = []
    for draft in drafts:
        key = (draft.fields[0], len(draft.entities))
        rounds.append((dealt[key], draft))
        dealt[key] += 1
    return [draft for _, draft in sorted(rounds, key=lambda pair: pair[0])]


def _lookups(every: list[Entity], mine: list[Entity], templates: Templates, intent: Intent) -> list[Draft]:
    """All keywords whose LIKE matches are exactly the rows that list them: few, and all of one split."""
    ids_of_split = {entity.id for entity in mine}
    drafts = []
    for field in templates.search.get(every[0].table, []) if every else []:
        for keyword in sorted({fact for entity in mine for fact in entity.facts(field)}):
            like = [entity for entity in every if keyword in entity.cells.get(field, "")]
            exact = all(keyword in entity.facts(field) for entity in like)
            plain = len(keyword) > 1 and not set(keyword) & set("%_'")
            few = len(like) <= MAX_MATCHES[intent]
            if exact and plain and few and all(entity.id in ids_of_split for entity in like):
                drafts.append(Draft(intent, like, [field], keyword))
    return drafts


@dataclass(frozen=True, kw_only=True)
class _Maker:
    """Turns drafts of one split into questions, running the reference SQL; texts never repeat."""

    db: sqlite3.Connection
    templates: Templates
    split: Split
    words: Split
    seed: int
    made: dict[str, Question]

    def rng(self, intent: str, table: str) -> random.Random:
        """A generator of its own per split, intent and table: changing one leaves the others' questions alone."""
        return random.Random(f"{self.seed}-{self.split}-{intent}-{table}")

    def take(self, drafts: Iterable[Draft], count: int, table: str) -> None:
        """Make up to `count` new questions."""
        rng = self.rng("phrase", table)
        for draft in drafts:
            if count <= 0:
                return
            question = self._question(draft, rng)
            if question and question.question not in self.made:
                self.made[question.question] = question
                count -= 1

    def numbered(self) -> list[Question]:
        """The questions made so far, with their ids."""
        prefix = self.split if self.words == self.split else "entities"
        numbered = enumerate(self.made.values(), start=1)
        return [question.model_copy(update={"id": f"{prefix}-{i:04d}"}) for i, question in numbered]

    def _question(self, draft: Draft, rng: random.Random) -> Question | None:
        phrasings = [
            phrasing
            for phrasing in self.templates.phrasings_for(draft.intent, self.words)
            if phrasing.n_fields == len(draft.fields) and (not phrasing.fields or draft.fields[0] in phrasing.fields)
        ]
        if not phrasings:
            return None
        phrasing = rng.choice(phrasings)
        table = self.templates.tables[draft.entities[0].table]
        labels = [rng.choice(table.fields[field].for_split(self.words)) for field in draft.fields]
        sql, answer, evidence = self._run(draft, labels)
        return Question(
            id="unnumbered",
            question=phrasing.text.format(**_slots(draft, labels)),
            answer=answer,
            task_type=_task_type(draft),
            sql=sql,
            evidence=evidence,
            meta={
                "entity": _entity_meta(draft),
                "intent": draft.intent,
                "fields": draft.fields,
                "labels": labels,
                "unseen_label": any(
                    label not in table.fields[f].train for f, label in zip(draft.fields, labels, strict=True)
                ),
                "phrasing": phrasing.id,
                "split": self.split,
                "created_at": FIXED_TIME,
            },
        )

    def _run(self, draft: Draft, labels: list[str]) -> tuple[list[str], str, list[Evidence]]:
        """Reference SQL, the answer made of what it returned, and the cells that prove it."""
        if draft.keyword:
            return self._run_lookup(draft, labels[0])
        form = self.templates.answers[draft.intent].part
        table, columns = draft.entities[0].table, ", ".join(draft.fields)
        queries = []
        answer = ""
        evidence = []
        for entity in draft.entities:
            queries.append(f"SELECT {columns} FROM {table} WHERE id = {entity.id}")
            cells = self.db.execute(queries[-1]).fetchone()
            for field, label, cell in zip(draft.fields, labels, cells, strict=True):
                answer += form.format(name=entity.name, field=label, facts=cell.rstrip("。"))
                evidence.append(Evidence(source_table=table, row_id=entity.id, field=field, quote=cell))
        return queries, answer, evidence

    def _run_lookup(self, draft: Draft, label: str) -> tuple[list[str], str, list[Evidence]]:
        table, field = draft.entities[0].table, draft.fields[0]
        name = self.templates.tables[table].name
        where = f"FROM {table} WHERE {field} LIKE '%{draft.keyword}%'"
        lookup = f"SELECT id, {name} {where} ORDER BY id"
        rows = self.db.execute(lookup).fetchall()
        # Both cells of a row: the name is in the answer, the keyword is why.
        cells = [(row_id, *cell) for row_id, row_name in rows for cell in ((name, row_name), (field, draft.keyword))]
        evidence = [Evidence(source_table=table, row_id=i, field=column, quote=quote) for i, column, quote in cells]
        query = lookup if draft.intent == "search" else f"SELECT COUNT(*) {where}"
        count = len(rows) if draft.intent == "search" else self.db.execute(query).fetchone()[0]
        names = SEPARATOR.join(row_name for _, row_name in rows)
        form = self.templates.answers[draft.intent].text
        return [query], form.format(field=label, value=draft.keyword, names=names, count=count), evidence


def _slots(draft: Draft, labels: list[str]) -> dict[str, str]:
    slots = {"field": labels[0], "value": draft.keyword, "name": draft.entities[0].name}
    slots |= {f"field_{letter}": label for letter, label in zip("abc", labels, strict=False)}
    return slots | {f"name_{letter}": entity.name for letter, entity in zip("ab", draft.entities, strict=False)}


def _task_type(draft: Draft) -> str:
    kind = draft.entities[0].kind
    if draft.keyword:
        return f"{kind}_search_by_kw"
    return f"compare_{kind}s" if draft.intent == "compare" else f"{kind}_field"


def _entity_meta(draft: Draft) -> dict[str, Any]:
    kind, named = draft.entities[0].kind, draft.entities
    if draft.keyword:
        names = {f"{kind}_names": [entity.name for entity in named], f"{kind}_ids": [entity.id for entity in named]}
        return {"keyword": draft.keyword, **names}
    pairs = list(zip(("_a", "_b") if draft.intent == "compare" else ("",), named, strict=True))
    return {f"{kind}_name{s}": e.name for s, e in pairs} | {f"{kind}_id{s}": e.id for s, e in pairs}
