"""Preference pairs from a folder of questions: the reference answer against degraded ones, split by entity.

    python -m reward_model.bundled_pairs --out DIR        train, val and test.jsonl, and labelled.jsonl for the scale

Guarantees: pairs of a split come from that split's questions alone, and so do the wrong facts in them: an entity that
is held out is seen nowhere in training. The folder is refused when one entity is in two splits. The same seed gives the
same files. Made for the bundled questions (train, val and test.parquet of sql_agent.data.build); a folder that this
command made from your own works too.
"""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.parquet as pq
import typer

from foundation.command import alias
from foundation.errors import UserError
from foundation.files import write_lines
from reward_model.degrade import WRONG, Answer, Section, facts_of, right_answer, sections_of, wrong_answer
from reward_model.pairs import Pair, grounded, make_pair

SPLITS = ("train", "val", "test")
_BESIDE = Path(__file__).resolve().parent.parent  # sql_agent itself, where this is installed beneath it
QUESTIONS = (_BESIDE if _BESIDE.name == "sql_agent" else _BESIDE / "sql_agent") / "data"
COLUMNS = ["id", "question", "answer", "evidence", "meta"]
# Where a field has fewer facts of other entities than this, facts of other fields are mixed in.
MIN_STRANGE = 8


@dataclass(frozen=True)
class Source:
    """One question with its reference in sections, the fields it asks for and the database rows it rests on."""

    question: str
    reference: str
    sections: list[Section]
    fields: tuple[str, ...]
    rows: frozenset[tuple[str, str]]


def read_split(path: Path) -> list[Source]:
    """The questions with a reference answer. Raises UserError when the file is missing or has other columns."""
    try:
        table = pq.read_table(path, columns=COLUMNS)
    except (OSError, pa.ArrowException) as exc:
        raise UserError(
            f"{path}: not a question file ({exc}); make it with `agentgrpo data`, or name a folder "
            "with train, val and test.parquet"
        ) from None
    return [_source(row) for row in table.to_pylist() if row["answer"]]


def _source(row: dict[str, Any]) -> Source:
    evidence, meta = json.loads(row["evidence"] or "[]"), json.loads(row["meta"] or "{}")
    return Source(
        question=row["question"],
        reference=row["answer"],
        sections=sections_of(row["answer"]),
        fields=tuple(meta.get("fields", [])),
        rows=frozenset((piece["source_table"], str(piece["row_id"])) for piece in evidence),
    )


def check_apart(splits: dict[str, list[Source]]) -> None:
    """Raise UserError when an entity or a question is in two splits."""
    seen: dict[object, str] = {}
    for split, sources in splits.items():
        for source in sources:
            for key in (*source.rows, source.question):
                if seen.setdefault(key, split) != split:
                    raise UserError(
                        f"{key}: is in {seen[key]} and in {split}, so nothing would be held out. Split the questions "
                        "by entity, as `agentgrpo data --raw FILE --out DIR` does"
                    )


class Maker:
    """Makes answers to the questions of one split, with wrong facts from that split."""

    def __init__(self, sources: list[Source], *, seed: int) -> None:
        self._rng = random.Random(seed)
        self._by_field: dict[str, list[tuple[str, Source]]] = defaultdict(list)
        self._all = [(fact, source) for source in sources for fact in facts_of(source.sections)]
        for fact, source in self._all:
            for field in source.fields:
                self._by_field[field].append((fact, source))

    def pairs(self, source: Source) -> Iterator[Pair]:
        """One pair per kind that the reference allows."""
        prompt = grounded(source.question, source.reference)
        for kind in WRONG:
            wrong = self._wrong(kind, source)
            right = right_answer(source.sections, self._rng)
            if wrong and wrong.text != right.text:
                yield make_pair(prompt, right.text, wrong.text, kind=kind)

    def labelled(self, source: Source) -> Iterator[dict[str, Any]]:
        """One right answer and one of each kind, with their values."""
        answers = [right_answer(source.sections, self._rng), *(self._wrong(kind, source) for kind in WRONG)]
        for answer in filter(None, answers):
            yield {
                "prompt": source.question,
                "reference": source.reference,
                "response": answer.text,
                "label": round(answer.value, 4),
                "kind": answer.kind,
            }

    def _wrong(self, kind: Any, source: Source) -> Answer | None:
        """With facts of other entities: of the same fields, else of any."""
        pool = [item for field in source.fields for item in self._by_field[field]]
        strange = _not_about(source, pool)
        if len(set(strange)) < MIN_STRANGE:
            strange += _not_about(source, self._rng.sample(self._all, min(len(self._all), 10 * MIN_STRANGE)))
        facts = sorted(set(strange))
        return wrong_answer(kind, source.sections, question=source.question, strange_facts=facts, rng=self._rng)


def _not_about(source: Source, pool: list[tuple[str, Source]]) -> list[str]:
    return [fact for fact, other in pool if not other.rows & source.rows and other is not source]


def build(questions: Path, out: Path, *, seed: int) -> dict[str, Counter[str]]:
    """Write the pairs of each split below `out` and labelled.jsonl from `val`; returns counts by split and kind.

    Raises UserError when a question file is unusable or the splits share an entity.
    """
    splits = {split: [s for s in read_split(questions / f"{split}.parquet") if s.sections] for split in SPLITS}
    check_apart(splits)
    counts: dict[str, Counter[str]] = {}
    for number, (split, sources) in enumerate(splits.items()):
        maker = Maker(sources, seed=seed * len(SPLITS) + number)
        pairs = [pair for source in sources for pair in maker.pairs(source)]
        write_lines(out / f"{split}.jsonl", (pair.model_dump() for pair in pairs))
        counts[split] = Counter(pair.kind for pair in pairs)
    maker = Maker(splits["val"], seed=seed)
    rows = [row for source in splits["val"] for row in maker.labelled(source)]
    write_lines(out / "labelled.jsonl", rows)
    counts["labelled"] = Counter(row["kind"] for row in rows)
    return counts


def main(
    out: Annotated[Path, typer.Option(help="folder of the results")],
    questions: Annotated[
        Path | None, typer.Option(help="folder with train, val and test.parquet (default: sql_agent/data)")
    ] = None,
    seed: Annotated[int, typer.Option(help="the same seed gives the same pairs")] = 1,
) -> None:
    """Make preference pairs from questions with reference answers."""
    counts = build(questions or QUESTIONS, out, seed=seed)
    for name, kinds in counts.items():
        typer.echo(f"{out / name}.jsonl: {kinds.total()} ({', '.join(f'{k} {n}' for k, n in sorted(kinds.items()))})")


if __name__ == "__main__":
    alias(main)
