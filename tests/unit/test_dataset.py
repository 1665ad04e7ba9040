"""Questions on disk: what goes in comes out, and every bad file or row gets an error that names it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation.errors import UserError
from foundation.files import fingerprint
from sql_agent.config.data import FileConfig
from sql_agent.data.dataset import COLUMNS, load_files, load_questions, to_row, write_parquet
from sql_agent.records import Evidence, Question

FULL = Question(
    id="q1",
    question="甲药的剂型是什么？",
    answer="片剂",
    scorer="judge",
    task_type="drug_field",
    db_id="pharmacy",
    sql=["SELECT form FROM drugs_info WHERE id = 1"],
    evidence=[Evidence(source_table="drugs_info", row_id=1, field="form", quote="片剂")],
    meta={"entity": {"drug_id": 1}, "nested": [1, None, "x"]},
)
# What UTF-8 can hold: no surrogates. Parquet and JSON take every other character, NUL included.
TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.strip)


def parquet(path: Path, **columns: Any) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


def jsonl(path: Path, *rows: Any) -> Path:
    path.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows), encoding="utf-8")
    return path


def test_round_trip_and_columns(tmp_path: Path) -> None:
    write_parquet([FULL, Question(id="q2", question="什么？")], tmp_path / "a.parquet")
    assert load_questions(tmp_path / "a.parquet") == [FULL, Question(id="q2", question="什么？")]
    schema = pq.read_schema(tmp_path / "a.parquet")
    assert schema.names == COLUMNS
    assert set(schema.types) == {pa.string()}
    assert [path.name for path in tmp_path.iterdir()] == ["a.parquet"]
    write_parquet([Question(id="q2", question="什么？")], tmp_path / "a.parquet")
    assert pq.read_schema(tmp_path / "a.parquet").names == [name for name in COLUMNS if name != "db_id"]


@given(ids=st.lists(TEXT.map(str.strip), min_size=1, max_size=4, unique=True), text=TEXT, answer=TEXT)
def test_any_text_survives(tmp_path_factory: pytest.TempPathFactory, ids: list[str], text: str, answer: str) -> None:
    path = tmp_path_factory.mktemp("any") / "a.parquet"
    questions = [Question(id=name, question=text, answer=answer, meta={answer: [text]}) for name in ids]
    write_parquet(questions, path)
    assert load_questions(path) == questions
    assert [Question.model_validate(to_row(question)) for question in questions] == questions


def test_rows_are_flat_text() -> None:
    assert {type(value) for value in to_row(FULL).values()} == {str}
    assert Question.model_validate({**to_row(FULL), "data_id": 7}) == FULL


def test_a_users_parquet_with_three_columns(tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet", id=[7, 8], question=["甲？", "乙？"], answer=["一", None])
    assert load_questions(path) == [Question(id="7", question="甲？", answer="一"), Question(id="8", question="乙？")]


def test_a_users_parquet_with_native_nested_columns(tmp_path: Path) -> None:
    evidence = [[{"source_table": "t", "row_id": 3, "field": "f", "quote": None, "page": 9}]]
    path = parquet(tmp_path / "a.parquet", id=["a"], question=["甲？"], evidence=evidence, sql=[["SELECT 1"]])
    (question,) = load_questions(path)
    assert question.sql == ["SELECT 1"]
    assert question.evidence == [Evidence(source_table="t", row_id=3, field="f", quote="")]
    assert type(question.evidence[0].row_id) is int


def test_the_raw_format(tmp_path: Path) -> None:
    row = {"qid": 5, "question": "甲？", "ground_truth": "一", "sql": "SELECT 1", "task_type": None, "other": 1}
    path = jsonl(tmp_path / "a.jsonl", row)
    assert load_questions(path) == [Question(id="5", question="甲？", answer="一", sql=["SELECT 1"])]


def test_task_files_that_say_query(tmp_path: Path) -> None:
    """The form of AgentCPM's data sets, also as parquet; a `question` beside it wins."""
    asked = {"id": "task_1", "query": "什么是高血压？", "answer": "动脉血压升高", "scorer": "agentcpm"}
    counted = {"id": "task_2", "query": "2+2 等于多少？", "answer": "4", "scorer": "math", "answer_schema": "boxed"}
    bare = {"id": 3, "query": "甲？"}
    expected = [
        Question(id="task_1", question="什么是高血压？", answer="动脉血压升高", scorer="agentcpm"),
        Question(id="task_2", question="2+2 等于多少？", answer="4", scorer="math", answer_schema="boxed"),
        Question(id="3", question="甲？"),
    ]
    assert load_questions(jsonl(tmp_path / "a.jsonl", asked, counted, bare)) == expected
    columns = {name: [row[name] for row in (asked, counted)] for name in ("id", "query", "answer", "scorer")}
    assert [q.question for q in load_questions(parquet(tmp_path / "a.parquet", **columns))] == [
        asked["query"],
        counted["query"],
    ]
    both = {"id": "1", "query": "SELECT 1", "question": "甲？"}
    assert load_questions(jsonl(tmp_path / "b.jsonl", both))[0].question == "甲？"
    with pytest.raises(UserError, match="row 1: question is ''"):
        load_questions(jsonl(tmp_path / "c.jsonl", {"id": "1", "query": ""}))


def test_rows_are_numbered_where_none_has_an_id(tmp_path: Path) -> None:
    """GSM8K's files have a question and an answer, nothing else."""
    rows = [{"question": "4 + 4?", "answer": "4 + 4 = <<4+4=8>>8\n#### 8"}, {"question": "1 + 1?", "answer": "#### 2"}]
    found = load_questions(jsonl(tmp_path / "a.jsonl", *rows))
    assert [(question.id, question.answer) for question in found] == [("row-1", rows[0]["answer"]), ("row-2", "#### 2")]
    columns = {name: [row[name] for row in rows] for name in ("question", "answer")}
    assert load_questions(parquet(tmp_path / "a.parquet", **columns)) == found
    with pytest.raises(UserError, match="row 2: `id` is missing; there is: question, answer"):
        load_questions(jsonl(tmp_path / "b.jsonl", {"id": "1", **rows[0]}, rows[1]))


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_byte_order_mark_and_blank_lines(tmp_path: Path, encoding: str) -> None:
    text = '{"id": "1", "question": "a"}\r\n\r\n{"id": "2", "question": "b"}\r\n'
    (tmp_path / "a.jsonl").write_bytes(text.encode(encoding))
    assert [question.id for question in load_questions(tmp_path / "a.jsonl")] == ["1", "2"]


def test_a_column_of_a_longer_name_is_the_users_own(tmp_path: Path) -> None:
    columns = {"id": ["1"], "question": ["a"], "agent_id": ["nurse-7"], "answer_key": ["k"], "sql-id": ["s"]}
    (question,) = load_questions(parquet(tmp_path / "a.parquet", **columns))
    assert (question.agent, question.answer, question.sql) == ("", "", [])


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"id": ["1"], "quesiton": ["a"]}, "there is no `question`, but `quesiton`"),
        ({"id": ["1"], "question": ["a"], "anwser": ["b"]}, "there is no `answer`, but `anwser`"),
        ({"id": ["1"], "question": ["a"], "agnet": ["b"]}, "there is no `agent`, but `agnet`"),
        ({"answer": ["a"]}, "`question` is missing; there is: answer"),
        ({"idx": ["1"], "question": ["a"]}, "there is no `id`, but `idx`: rename it"),
        ({"id": ["1"], "text": ["a"]}, "`question` is missing"),
        ({"id": ["1", "2"], "question": ["a", None]}, "row 2: question is null"),
        ({"id": ["1", "2"], "question": ["a", " "]}, "row 2: question is ' '"),
        ({"id": ["1", "2", "1"], "question": ["a", "b", "c"]}, "row 3: id '1' is a duplicate of row 1"),
        ({"id": [1.0], "question": ["a"]}, "row 1: id is 1.0; it must be"),
        ({"id": [None], "question": ["a"]}, "row 1: id is null"),
        ({"id": ["1"], "question": [3]}, "row 1: question is 3"),
        ({"id": ["1"], "question": ["a"], "evidence": ["{oops"]}, "row 1: "),
        ({"id": ["1"], "question": ["a"], "answer_schema": ["json"]}, "answer_schema is 'json'"),
        ({"id": ["1", "2"], "question": [b"ok", b"\xff"]}, "row 2: question is not UTF-8 at byte 1"),
        ({"id": pa.array([], pa.string()), "question": pa.array([], pa.string())}, "the file has no rows"),
    ],
)
def test_bad_parquet(tmp_path: Path, columns: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_questions(parquet(tmp_path / "a.parquet", **columns))


def test_text_column_that_is_not_utf8(tmp_path: Path) -> None:
    buffers = pa.array([b"good", b"\xff\xfe"]).buffers()
    column = pa.StringArray.from_buffers(2, buffers[1], buffers[2], buffers[0])
    with pytest.raises(UserError, match="row 2: question is not UTF-8"):
        load_questions(parquet(tmp_path / "a.parquet", id=["1", "2"], question=column))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{oops", "row 2: not JSON"),
        (b'"text"', "row 2: expected an object"),
        (b'{"id": "2"}', "row 2: `question` is missing"),
        (b'{"id": "2", "question": null}', "row 2: question is null"),
        (b'{"id": true, "question": "a"}', "row 2: id is True"),
        (b'{"id": "2", "question": "\xff"}', "row 2: not UTF-8 at byte 26 of the line"),
        (b'{"id": "2", "question": "\\ud800"}', "row 2: a lone surrogate in a text"),
        (b'{"id": "2", "question": "a", "meta": {"b": "\\ud800"}}', "row 2: a lone surrogate in a text"),
        (b'{"id": "2", "question": "a", "answer": 5}', "row 2: answer is 5; it must be a text: put it in quotes"),
        (b'{"id": "1", "question": "a"}', "row 2: id '1' is a duplicate of row 1"),
        (b'{"id": ' + b"9" * 5000 + b', "question": "a"}', "row 2: not JSON that can be read"),
        (b"[" * 100_000, "row 2: not JSON that can be read"),
    ],
)
def test_bad_jsonl(tmp_path: Path, line: bytes, message: str) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'{"id": "1", "question": "good"}\n' + line)
    with pytest.raises(UserError, match=message):
        load_questions(tmp_path / "a.jsonl")


def test_many_bad_rows_are_summed_up(tmp_path: Path) -> None:
    rows = [{"id": str(i), "question": ""} for i in range(25)]
    with pytest.raises(UserError, match=r"(?s)bad rows \(25\).*row 10: .*and 15 more$") as caught:
        load_questions(jsonl(tmp_path / "a.jsonl", *rows))
    assert "row 11:" not in str(caught.value)


def test_contradicting_answers_to_one_question_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    said = [("a?", "1"), ("b?", "2"), (" a? ", "3"), ("a?", ""), ("b?", "2 "), ("a?", "4")]
    rows = [{"id": f"q{n}", "question": question, "answer": answer} for n, (question, answer) in enumerate(said)]
    rows += [{"id": "other", "question": "b?", "answer": "5", "db_id": "shop"}]  # asked of another database
    (file := tmp_path / "x.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    assert len(load_questions(file)) == 7
    assert "2 rows ask what an earlier row asks, with another answer (rows 1 and 3, 1 and 6)" in caplog.text
    caplog.clear()
    file.write_text("".join(json.dumps(row) + "\n" for row in rows[:2] + rows[3:5]), encoding="utf-8")
    assert len(load_questions(file)) == 4 and not caplog.text


def test_unusable_files(tmp_path: Path) -> None:
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 and no more")
    (tmp_path / "empty.jsonl").write_bytes(b"\n\n")
    (tmp_path / "notes.txt").write_bytes(b"hello")
    cases = {
        "broken.parquet": "not a readable parquet file",
        "empty.jsonl": "the file has no rows",
        "notes.txt": ".txt is not a question file",
        "absent.parquet": r"does not exist; a question file is needed \(\.parquet, .*\.csv",
        ".": "is a folder",
    }
    for name, message in cases.items():
        with pytest.raises(UserError, match=message):
            load_questions(tmp_path / name)


def test_a_file_that_a_key_names_and_is_not_there_is_told_with_the_key(tmp_path: Path) -> None:
    told = "^data.val_file = .*/nope.jsonl: does not exist, nor is it beside the recipe; a question file is needed"
    with pytest.raises(UserError, match=told):
        load_files([FileConfig(file="nope.jsonl")], key="data.val_file")


def test_a_failed_write_keeps_the_old_file(tmp_path: Path) -> None:
    write_parquet([FULL], tmp_path / "a.parquet")
    with pytest.raises(UnicodeEncodeError):
        write_parquet([FULL, Question(id="bad", question="a", meta={"b": "\ud800"})], tmp_path / "a.parquet")
    assert load_questions(tmp_path / "a.parquet") == [FULL]
    assert [path.name for path in tmp_path.iterdir()] == ["a.parquet"]


def test_fingerprint_follows_the_content(tmp_path: Path) -> None:
    write_parquet([FULL], tmp_path / "a.parquet")
    write_parquet([FULL], tmp_path / "b.parquet")
    write_parquet([FULL, Question(id="q2", question="什么？")], tmp_path / "c.parquet")
    prints = [fingerprint(tmp_path / f"{name}.parquet") for name in "abc"]
    assert prints[0] == prints[1] != prints[2]
    assert {len(text) for text in prints} == {16}
    with pytest.raises(UserError, match="cannot be read"):
        fingerprint(tmp_path / "d.parquet")


def test_huggingface_datasets_takes_the_rows() -> None:
    datasets = pytest.importorskip("datasets")
    rows = [to_row(FULL), to_row(Question(id="q2", question="什么？"))]
    assert [Question.model_validate(row) for row in datasets.Dataset.from_list(rows)][0] == FULL


def test_importing_loads_nothing_heavy() -> None:
    code = (
        "import sys, sql_agent.data.dataset, sql_agent.data.build\n"
        "print({'torch', 'datasets', 'pandas'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
