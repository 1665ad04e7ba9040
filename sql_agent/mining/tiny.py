"""A tiny policy for one database: a teacher who shows how to ask its tables, in the words of its training questions.

The maker is sql_agent.tiny_policy's: its tokenizer, network, wiring and warm start. Guarantees: values in
demonstrations are made up in the shape of the column's own (letters and digits replaced), and wordings are those that
training questions use, or made of these, so nothing that is held out is shown, but for the names of tables and
columns. The flawed teacher reads a table's first column, counts instead of computing, takes the other end of a ranking,
and stops at the first of several values: GRPO is there to correct that, and its gain says nothing of larger models.
"""

from __future__ import annotations

import json
import random
import re
from dataclasses import dataclass
from pathlib import Path

from sql_agent.curation.frequency import OUT as FREQUENCY
from sql_agent.mining.asks import Ask, Head, Maker, Query, joined
from sql_agent.mining.questions import WORDINGS, answer_of, shown_wordings, side_of, worded, wordings
from sql_agent.mining.rewording import Rewording, everyday
from sql_agent.mining.schema import Column, Schema, Value
from sql_agent.mining.state import SCHEMA, SHORT_PROMPT, Settled, read_settled
from sql_agent.records import QueryResult
from sql_agent.tiny_policy.demos import TOOLS, Draft, to_messages
from sql_agent.tiny_policy.task import Lesson, Message, Settings, TinyTask
from sql_agent.tiny_policy.tokenizer import cjk_inventory

HERE = Path(__file__).resolve().parent
SLIPS, FIRST_ONLY = 0.6, 0.6
REWORDED = 0.6  # of demonstrations
SETTINGS = Settings(echo_steps=100, query_steps=600, clean_steps=200, flawed_steps=200, query_rows=48, loss_max=0.35)
SYLLABLES = [c + v for c in "bcdfghjklmnprstvwz" for v in "aeiou"] + [v + c for c in "nrlst" for v in "aeiou"]
REAL_SHARE = 0.3  # of values that are real ones of the training side
FRAMES = [
    *('\n{"name": "query_database_by_sql", "arguments": {"sql": "', '"}}\n'),
    *("SELECT ", "SELECT COUNT(*)", "ROUND(AVG(", "), 2)", "ROUND(SUM(", " WHERE ", " = '", " IN ('", "', '", "')"),
    *(" ORDER BY ", " DESC", " LIMIT ", " GROUP BY T2.", " INTERSECT ", " NOT IN (SELECT ", " IS NOT NULL"),
    *("strftime('%Y', ", "T1.", "T2.", "COUNT(*)", ", "),
    *('\n{"status": "success", "records": [', '{"', '": "', '": ', '", "', '"}, {"', '"}', '], "count": ', "}\n"),
]
# As asks are said in other dialects than SQLite, and in PostgreSQL's alone.
OTHER_FRAMES = (" AS value", "EXTRACT(YEAR FROM ")
POSTGRES_FRAMES = ("ROUND(CAST(AVG(", "ROUND(CAST(SUM(", ") AS DECIMAL), 2)", " NULLS LAST")


@dataclass(frozen=True)
class Shapes:
    """Made-up values in the shape of a column's own."""

    rng: random.Random
    han: list[str]
    seed: int

    def like(self, column: Column) -> Value | None:
        """A value that the column could hold; None where it has none to imitate."""
        shown = [value for value in column.samples if side_of(value, self.seed) == "train"] or list(column.samples)
        if not shown:
            return None
        sample = self.rng.choice(shown)
        if self.rng.random() < REAL_SHARE:
            return sample
        return self._text(sample) if isinstance(sample, str) else self._number(sample)

    def _number(self, value: int | float) -> int | float:
        text = re.sub(r"\d", lambda digit: str(self.rng.randrange(10)), repr(value))
        text = re.sub(r"^(-?)0+(?=\d)", rf"\g<1>{self.rng.randint(1, 9)}", text)
        return type(value)(float(text)) if re.fullmatch(r"-?\d+(?:\.\d+)?", text) else value

    def _text(self, text: str) -> str:
        if re.match(r"\d{4}-\d\d-\d\d", text):
            year = int(text[:4]) + self.rng.randint(-5, 5)
            return f"{year:04d}-{self.rng.randint(1, 12):02d}-{self.rng.randint(1, 28):02d}{text[10:]}"
        text = re.sub(r"\d", lambda digit: str(self.rng.randrange(10)), text)
        text = re.sub(r"[A-Za-z]+", lambda word: self._word(word[0]), text)
        return re.sub("[\u4e00-\u9fff]", lambda _: self.rng.choice(self.han), text) if self.han else text

    def _word(self, word: str) -> str:
        if word.isupper():
            return "".join(self.rng.choices("ABCDEFGHIJKLMNOPQRSTUVWXYZ", k=len(word)))
        n = max(1, round(len(word) / 2 + self.rng.uniform(-0.7, 0.7)))
        syllables = "".join(self.rng.choices(SYLLABLES, k=n))
        return syllables.capitalize() if word[0].isupper() else syllables


@dataclass(frozen=True)
class TableTeacher:
    """Demonstrations decided by `rng` alone."""

    rng: random.Random
    flawed: bool
    schema: Schema
    settled: Settled
    prompt: str

    @property
    def _shapes(self) -> Shapes:
        return Shapes(self.rng, han_of(self.schema), self.settled.seed)

    def demonstrate(self) -> list[Message]:
        return to_messages(self._draft(), self.prompt)

    def query(self) -> list[Message]:
        return self.demonstrate()[1:3]

    def echo(self) -> list[Message]:
        columns = [column for table in self.schema.tables for column in table.columns if column.samples]
        values = [self._shapes.like(self.rng.choice(columns)) for _ in range(self.rng.randint(2, 6))]
        text = ", ".join(map(str, values))
        return [{"role": "user", "content": text}, {"role": "assistant", "content": text}]

    def _draft(self) -> Draft:
        maker, language = Maker(self.schema, self.rng, self._shapes.like), self.settled.language
        while not (ask := maker.draw()):
            pass
        wording = self.rng.choice(shown_wordings(language, ask.kind))
        if self.rng.random() < REWORDED:
            wording = Rewording(language, self.rng).of(wording, ask.kind)
        question = worded(ask, wording, language)
        query = ask.slip if self.flawed and ask.slip and self.rng.random() < SLIPS else ask.query
        result = self._result(ask, query)
        records = [dict(zip(result.columns, row, strict=True)) for row in result.rows]
        if self.flawed and len(result.rows) > 1 and self.rng.random() < FIRST_ONLY:
            result = result.model_copy(update={"rows": result.rows[:1]})
        return Draft(question, query.sql, records, answer_of(result))

    def _result(self, ask: Ask, query: Query) -> QueryResult:
        """Made-up rows; of a comparison those of its two names, in any order."""
        n = ask.n_rows if ask.n_rows < 4 else self.rng.choice((1, 1, 2, 2, 3, 4, 5))
        rows = [[self._cell(head) for head in query.heads] for _ in range(n)]
        if ask.kind == "compare":
            for row, name in zip(rows, self.rng.sample(ask.values, 2), strict=True):
                row[0] = name
        return QueryResult(columns=[head[0] for head in query.heads], rows=rows)

    def _cell(self, head: Head) -> Value:
        column = head[1]
        if column is None:
            return self.rng.choice((1, 2, 3, 4, 5, self.rng.randint(1, 30), self.rng.randint(1, 400)))
        value = self._shapes.like(column)
        if value is not None and "AVG(" in head[0]:
            return round(float(value) + self.rng.random(), self.rng.choice((1, 2, 2)))
        return "-" if value is None else value


def han_of(schema: Schema) -> list[str]:
    every = (str(value) for table in schema.tables for column in table.columns for value in column.samples)
    return cjk_inventory(every)


def lesson_of(schema: Schema, settled: Settled, prompt: str) -> Lesson:
    known = wordings(settled.language)
    parts = [text for kind, texts in known.items() if kind != "how" for text in texts]
    sentences = [re.sub(r"{\w+}", " ", text) for text in parts] + list(known["how"].values())
    names = [name for table in schema.tables for name in (table.name, *(column.name for column in table.columns))]
    labels = [
        text for table in schema.tables for text in (table.label, table.labels, *(c.label for c in table.columns))
    ]
    frames = [f" FROM {table.sql}" for table in schema.tables]
    frames += [f" FROM {joined(link, schema.table(link.table), schema.table(link.parent))}" for link in schema.links]
    odd = [column.sql for table in schema.tables for column in table.columns if column.sql[0] in '"`']
    frames += OTHER_FRAMES if schema.dialect != "sqlite" else ()
    frames += POSTGRES_FRAMES if schema.dialect == "postgres" else ()
    frames = [json.dumps(text, ensure_ascii=False)[1:-1] for text in [*frames, *odd]]  # as calls have them
    frame = ["system", "user", "assistant", "MAX", "MIN", "SUM", "status", "success", "error", "records", "count"]
    texts = [*sentences, *labels, *names, *SYLLABLES, *frame, "query_database_by_sql", "sql", "工具", prompt]
    texts += everyday(settled.language)
    return Lesson(
        texts=[*texts * 3, "".join(han_of(schema))],
        frames=list(dict.fromkeys([*frames, *FRAMES])),
        tools=TOOLS,
        teacher=lambda rng, flawed: TableTeacher(rng, flawed, schema, settled, prompt),
        settings=SETTINGS,
    )


def task_of(folder: Path) -> TinyTask:
    """The task of a mined folder, for its tiny.py."""
    settled = read_settled(folder)

    def learn() -> Lesson:
        schema = Schema.model_validate_json((folder / SCHEMA).read_text(encoding="utf-8"))
        return lesson_of(schema, settled, (folder / SHORT_PROMPT).read_text(encoding="utf-8").strip())

    code = [HERE / f"{name}.py" for name in ("asks", "questions", "rewording", "schema", "tiny")]
    return TinyTask(
        name=f"SQL agent of {settled.name}",
        sources=[folder / SCHEMA, folder / SHORT_PROMPT, WORDINGS, FREQUENCY, *code],
        shipped=folder / "shipped",
        about=ABOUT,
        learn=learn,
        language=settled.language,
    )


ABOUT = f"""It knows the tables of one database and the wordings that it was shown, and no language beyond.
- The teacher is flawed on purpose. It mostly reads a table's first column, counts instead of computing and takes the
  other end of a ranking ({SLIPS:.0%}), and stops at the first of several values ({FIRST_ONLY:.0%}). GRPO is there to
  correct that; its gain here says nothing of larger models."""
