"""The words that the tiny policy is made of: bundled facts, field labels and training phrasings.

Guarantees: labels and phrasings come from the split `train` and from words.yaml, so none of validation or test is ever
demonstrated; facts come without their entities, and made-up names resemble those of training alone. Only the tokenizer
reads all texts: their characters must have tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from sql_agent.curation.frequency import frequent
from sql_agent.data.build_database import DISEASE_COLUMNS, DRUG_COLUMNS, SEPARATOR, load_sources
from sql_agent.data.questions import Entity, split_entities
from sql_agent.data.templates import TEMPLATES, Phrasing, Templates, load_templates

SOURCE = TEMPLATES.parent / "source"
WORDS = Path(__file__).with_name("words.yaml")
SYSTEM_PROMPT = TEMPLATES.parent.parent / "prompts" / "system_short.txt"
# Words of the chat template, of SQL and of results, which the bundled texts lack.
FRAME_WORDS = ["system", "user", "assistant", "query_database_by_sql", "sql", "drugs_info", "disease"]
FRAME_WORDS += [
    "SELECT",
    "FROM",
    "WHERE",
    "LIKE",
    "IN",
    "AND",
    "COUNT",
    "status",
    "success",
    "error",
    "records",
    "null",
]
# The column that says a little of everything.
GENERAL = {"drugs_info": "description", "disease": "overview"}
EVERYDAY = 12  # words written 2,048 times in the corpus that they were counted in, some 4,000
MISSING_ANSWER = "数据库中没有这一条记录。"

# Everyday characters of questions; filler is a random run of them.
COMMON = (
    "的了是在有我你您他她它这那哪个们不与和跟同及或就都也还要会能可以想请问说讲谈看找查给把对从到于为因所但而且如果怎么样什谁多少几时候里中上下"
    "方面些项条份种列出一二两三起各自分别应该当具体内容情况关键资料数据库记录写作读明白知道了解清楚告诉回答介绍"
    "帮助需要必须希望先再后前又并只把被让使得着过来去做用于让吗呢吧啊嗯好谢麻烦劳驾老师同学人家朋友大夫今天最近现在"
)


@dataclass(frozen=True)
class TableWords:
    """One table: its name column, and per askable field the labels that training questions use."""

    table: str
    key: str
    labels: dict[str, list[str]]
    search_fields: list[str]

    def general(self, fields: list[str] | None = None) -> str:
        """What the flawed demonstrator reads instead of the field: the column of general remarks, or `fields[0]`."""
        return fields[0] if fields else GENERAL[self.table]


@dataclass(frozen=True)
class Words:
    """words.yaml: parts of free questions, and more names for the fields (table -> field -> labels)."""

    openings: list[str]
    endings: list[str]
    joints: list[str]
    cores: dict[str, list[str]]
    labels: dict[str, dict[str, list[str]]]

    def all(self) -> Iterator[str]:
        """Every text in it."""
        yield from (*self.openings, *self.endings, *self.joints)
        for core in self.cores.values():
            yield from core
        for labels in self.labels.values():
            for texts in labels.values():
                yield from texts


@dataclass(frozen=True)
class Corpus:
    """What demonstrations draw from, and all texts for the tokenizer. `names` are those of training, `real` all."""

    tables: list[TableWords]
    words: Words
    everyday: list[str]
    names: list[str]
    real: frozenset[str]
    phrasings: dict[str, list[Phrasing]]
    facts: list[str]
    texts: list[str]
    system_prompt: str


@cache
def load_corpus() -> Corpus:
    """The corpus of the bundled files. Raises UserError when a source or the templates are broken."""
    templates = load_templates()
    system_prompt = SYSTEM_PROMPT.read_text(encoding="utf-8").strip()
    free = Words(**yaml.safe_load(WORDS.read_text(encoding="utf-8")))
    labels = [labels for table in templates.tables.values() for labels in table.fields.values()]
    held = {text for of_field in labels for text in of_field.all() if text not in of_field.train}
    cells = list(_cells())
    words = [*DRUG_COLUMNS, *DISEASE_COLUMNS, *FRAME_WORDS]
    return Corpus(
        tables=[
            TableWords(
                table=name,
                key=table.name,
                labels={field: labels.train for field, labels in table.fields.items()},
                search_fields=templates.search.get(name, []),
            )
            for name, table in templates.tables.items()
        ],
        words=free,
        everyday=[word for word in frequent(EVERYDAY) if word not in held],
        names=sorted(_training_names()),
        real=frozenset(text for is_name, text in cells if is_name),
        phrasings={intent: templates.phrasings_for(intent, "train") for intent in templates.phrasings},
        facts=sorted({text for is_name, text in cells if not is_name and len(text) > 1}),
        # Three times: the tokenizer merges no pair that it saw once.
        texts=[text for _, text in cells]
        + list(_template_texts(templates))
        + list(free.all())
        + [*words, SEPARATOR, MISSING_ANSWER, COMMON, system_prompt] * 3,
        system_prompt=system_prompt,
    )


def _training_names() -> Iterator[str]:
    """The entities that training questions ask about."""
    for table, entries in load_sources(SOURCE).items():
        kept = {"cate_name"} if table == "drugs_info" else set()
        rows = [
            Entity(table, "", i, entry.name, {name: entry.values[name] for name in kept})
            for i, entry in enumerate(entries, start=1)
        ]
        yield from (entity.name for entity in split_entities(rows)["train"])


def _cells() -> Iterator[tuple[bool, str]]:
    """Every item of every cell of the sources, and whether it is the entity's name."""
    for entries in load_sources(SOURCE).values():
        for entry in entries:
            for value in entry.values.values():
                for text in value if isinstance(value, list) else [value]:
                    if text is not None:
                        yield text == entry.name, text


def _template_texts(templates: Templates) -> Iterator[str]:
    for table in templates.tables.values():
        for labels in table.fields.values():
            yield from labels.all()
    for phrasings in templates.phrasings.values():
        yield from (phrasing.text for phrasing in phrasings)
    yield from (answer.part or answer.text for answer in templates.answers.values())
