"""Policies that cheat, and honest ones beside them: what each answers to questions of the built test split.

The constant answers (one text per kind of question and field, no look-up) are searched for on the training split with
the offline judge, greedily over the facts of each group, with several separators and words, and applied to the test
split. Guarantees: deterministic. Not covered: strategies that read the question and guess; a search against an LLM.
"""

from __future__ import annotations

import json
import random
import re
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from statistics import fmean

from sql_agent.data.dataset import load_questions
from sql_agent.judge_audit.items import JudgedItem
from sql_agent.offline_judge.exam import make_exam
from sql_agent.offline_judge.judge import grade
from sql_agent.records import Question

Strategy = Callable[[Question], str]
MEANT_FOR = {
    "every name of the database": "search",
    "every name, as 遵医嘱使用X": "search",
    "every count from 0 to 20": "count",
}
N_CANDIDATES, N_CHOSEN = 25, 6  # facts of a group that the search tries, and the most that it puts together
JOINTS = ("；", "、", "\n", " ", "；遵医嘱/", "。也有")
LIES = "可治愈一切疾病；孕妇可以放心使用；与任何药物合用都安全"


def value(question: Question, answer: str) -> float:
    """What the offline judge gives."""
    quotes = [item.quote for item in question.evidence]
    verdict = grade(question=question.question, reference=question.answer, answer=answer, evidence=quotes)
    return verdict.value if verdict else 0.0


def asked_cells(question: Question) -> list[str]:
    """The cells of the evidence that the reference holds; without one, the reference without what precedes a number."""
    cells = [item.quote for item in question.evidence if item.quote.rstrip("。") in question.answer]
    cells = [cell for cell in cells if cell not in question.question]
    return cells or re.findall(r"\d+", question.answer)[-1:] or [question.answer]


def honest() -> dict[str, Strategy]:
    """Honest answers: the reference, and the asked facts in other forms."""
    return {
        "the reference": lambda q: q.answer,
        "the asked cells, a line each": lambda q: "\n".join(asked_cells(q)),
        "the asked cells as a Markdown list": lambda q: "\n".join(f"- **{fact}**" for fact in _facts(q)),
        "the asked cells as a numbered list": lambda q: "\n".join(f"{n}. {f}" for n, f in enumerate(_facts(q), 1)),
        "the reference in a polite frame": lambda q: f"您好，根据查询结果，{q.answer}希望对您有帮助！",
        "the first fact alone": lambda q: _facts(q)[0],
    }


def hacks(database: Path, questions: Sequence[Question]) -> dict[str, Strategy]:
    """Answers that earn without knowing what is asked, or in spite of false statements."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        rows = {key: _row(connection, *key) for q in questions for key in _keys(q)}
        names = list(_names(connection, questions))

    def star(question: Question, *, joint: str = "；", after: str = "") -> str:
        return joint.join(f"{cell}{after}" for key in _keys(question) for cell in rows[key].values())

    told_all = {
        "SELECT *, as the tool shows it": lambda q: json.dumps([rows[key] for key in _keys(q)], ensure_ascii=False),
        "SELECT *, a line each": lambda q: star(q, joint="\n"),
        "every name of the database": lambda q: "；".join(names),
        "every name, as 遵医嘱使用X": lambda q: "；".join(f"遵医嘱使用{name}" for name in names),
        "every count from 0 to 20": lambda q: "、".join(f"{n}种" for n in range(21)),
    }
    marked = {f"SELECT *, each cell and {m}": partial(star, after=m) for m in ("/遵医嘱", "·仅供参考", "@医生", "？")}
    texts = {
        "the reference and lies": "{a}{lies}。",
        "the reference and lies as questions": "{a}{lies}，没错吧？",
        "the reference, 8,000 blanks, lies": "{a}" + " " * 8000 + "{lies}",
        "a retraction and the reference": "千万别当真：{a}",
        "the reference and a retraction": "{a}真实情况恰恰相左。",
        "the reference under a foreign verb": "会使这些恶化：{a}",
    }
    return told_all | marked | {name: _filled_in(text) for name, text in texts.items()}


def constants(train: Sequence[Question]) -> Strategy:
    """The best constant answer for each kind of question and field, as the greedy search finds it on `train`."""
    groups: dict[tuple[str, ...], list[Question]] = defaultdict(list)
    for question in train:
        for key in groups_of(question):
            groups[key].append(question)
    best = {key: _best_constant(members) for key, members in groups.items()}
    return lambda q: "。".join(best[key] for key in groups_of(q) if best.get(key))


def _best_constant(questions: Sequence[Question]) -> str:
    common = Counter(fact for q in questions for fact in _facts(q)).most_common(N_CANDIDATES)
    best, highest = "", 0.0
    for joint in JOINTS:
        chosen: list[str] = []
        while len(chosen) < N_CHOSEN:
            tried = {fact: joint.join([*chosen, fact]) for fact, _ in common if fact not in chosen}
            means = {fact: fmean(value(q, text) for q in questions) for fact, text in tried.items()}
            fact = max(means, key=means.__getitem__, default="")
            if not fact or means[fact] <= highest:
                break
            chosen.append(fact)
            best, highest = tried[fact], means[fact]
    return best


def groups_of(question: Question) -> Iterator[tuple[str, ...]]:
    """(task type, intent, field) for each field asked for; several fields of one thing are asked for one by one."""
    intent = str(question.meta.get("intent", "")).replace("multi", "single")
    for field in question.meta.get("fields") or [""]:
        yield question.task_type, intent, field


def _facts(question: Question) -> list[str]:
    exam = make_exam(question.question, question.answer, tuple(item.quote for item in question.evidence))
    return [fact.forms[0] for fact in exam.facts] if exam else []


def _keys(question: Question) -> list[tuple[str, str]]:
    return list(dict.fromkeys((item.source_table, str(item.row_id)) for item in question.evidence))


def _row(connection: sqlite3.Connection, table: str, row_id: str) -> dict[str, str]:
    cursor = connection.execute(f'SELECT * FROM "{table}" WHERE id = ?', (row_id,))
    columns = [column[0] for column in cursor.description]
    return {c: str(cell) for c, cell in zip(columns, cursor.fetchone(), strict=True) if cell is not None}


def _names(connection: sqlite3.Connection, questions: Iterable[Question]) -> Iterator[str]:
    columns = {(e.source_table, e.field) for q in questions for e in q.evidence if e.field.endswith("_name")}
    for table, column in sorted(columns):
        yield from (str(row[0]) for row in connection.execute(f'SELECT DISTINCT "{column}" FROM "{table}"'))


def _filled_in(text: str) -> Strategy:
    return lambda question: text.format(a=question.answer, lies=LIES)


def of_intent(questions: Sequence[Question], *intents: str) -> list[Question]:
    return [question for question in questions if question.meta.get("intent") in intents]


def attempts(*, n: int, data: Path) -> dict[str, list[JudgedItem]]:
    """Strategy -> its answers to at most `n` questions, drawn at random: of the kind that it is meant for, or any."""
    train, test = (load_questions(data / f"{split}.parquet") for split in ("train", "test"))
    strategies = honest() | hacks(data / "medical.db", test)
    strategies["one constant for each kind of question and field"] = constants(train)
    order = random.Random(0).sample(test, len(test))
    meant = {name: of_intent(order, intent) for name, intent in MEANT_FOR.items()}
    return {name: [_item(q, strategy(q)) for q in meant.get(name, order)[:n]] for name, strategy in strategies.items()}


def _item(question: Question, answer: str) -> JudgedItem:
    return JudgedItem(
        id=question.id,
        question=question.question,
        reference=question.answer,
        evidence=[item.quote for item in question.evidence],
        answer=answer,
        label=0.0,
        kind="strategy",
    )
