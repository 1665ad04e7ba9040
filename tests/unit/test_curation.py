"""Curation without a network: near-duplicates, leaks, chat logs, difficulty."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foundation.errors import UserError
from foundation.files import write_lines
from sql_agent.commands.difficulty import measure
from sql_agent.config import data_path
from sql_agent.curation.chats import Limits, questions, read_turns
from sql_agent.curation.leaks import ANSWER, INSIDE, QUERY, SAME, find_leaks
from sql_agent.curation.near import repeats
from sql_agent.curation.private import private
from sql_agent.curation.rows import Row, read_rows
from sql_agent.data.dataset import load_questions
from sql_agent.records import Question, TrialRecord
from tests.planted import planted
from tests.typed import status_of

N_PLANTED = 500
RULES_WERE_CHOSEN_ON, REPORTED_ON = 1, 20261123


def bundled(name: str) -> list[str]:
    return [row.question for row in load_questions(data_path(f"data/{name}.parquet"))]


@pytest.mark.long
@pytest.mark.parametrize("seed", [RULES_WERE_CHOSEN_ON, REPORTED_ON])
def test_planted_near_duplicates_are_found_and_others_are_not(seed: int) -> None:
    """500 planted among 500 new questions of the same patterns about other drugs and diseases."""
    old = bundled("train")
    new = [(text, index) for index, text in planted(old, N_PLANTED, seed=seed)]
    new += [(text, -1) for text in random.Random(seed).sample(bundled("test_entities") + bundled("test"), 500)]
    random.Random(seed).shuffle(new)
    found = {m.index - len(old): m.other for m in repeats([*old, *(text for text, _ in new)], n_old=len(old))}
    right = sum(new[place][1] >= 0 for place in found)
    precision, recall = right / len(found), right / N_PLANTED
    print(f"seed {seed}: precision {precision:.3f}, recall {recall:.3f}")
    assert precision >= 0.95 and recall >= 0.95
    assert sum(new[place][1] == other for place, other in found.items()) >= 0.99 * right


def test_rows_of_a_csv_file_are_those_of_its_questions(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("question,answer\nWhich?,This\nWho?,\n", encoding="utf-8-sig")
    rows = read_rows(tmp_path / "rows.csv")
    assert [(row.number, row.text, row.raw["answer"]) for row in rows] == [(1, "Which?", "This"), (2, "Who?", "")]


def test_a_column_that_nobody_reads_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "rows.jsonl").write_text('{"question": "Which?", "mine": 1}')
    assert read_rows(tmp_path / "rows.jsonl")[0].raw["mine"] == 1
    assert len(caplog.messages) == 1 and "nobody reads the column mine" in caplog.text


def test_json_lines_are_not_written_into_a_parquet_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "log.jsonl").write_text('{"messages": [{"role": "user", "content": "Which one is it?"}]}')
    assert status_of("curate", "chats", str(tmp_path / "log.jsonl"), str(tmp_path / "out.parquet")) == 2
    assert ".parquet cannot be written; name a file of .jsonl" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["log.jsonl"]


def test_a_chain_of_repetitions_leaves_the_first() -> None:
    assert [(m.index, m.other) for m in repeats(["头孢曲松怎么用", "请问头孢曲松怎么用？", "头孢曲松如何用!"])] == [
        (1, 0),
        (2, 0),
    ]


@settings(max_examples=15, deadline=None)
@given(st.lists(st.text(max_size=30), min_size=1, max_size=6))
def test_any_text_repeats_itself_and_breaks_nothing(texts: list[str]) -> None:
    found = {match.index for match in repeats([*texts, *texts], n_old=len(texts))}
    assert all(len(texts) + n in found for n in range(len(texts)))


def row(number: int, **fields: Any) -> Row:
    question = Question(id=f"r{number}", **fields)
    return Row(number, question, question.model_dump())


@pytest.mark.long
def test_every_planted_leak_is_named_and_nothing_else() -> None:
    train, held = read_rows(data_path("data/train.parquet")), read_rows(data_path("data/test.parquet"))
    dice = random.Random(7)
    chosen, planted_rows = dice.sample(range(len(held)), 60), []
    for n, place in enumerate(chosen):
        source = held[place].question
        planted_rows.append(
            row(10_000 + n, question=source.question)
            if n % 4 == 0
            else row(10_000 + n, question=f"下午好呀，我有件事想不明白：{source.question}说得越细越好")
            if n % 4 == 1
            else row(10_000 + n, question=f"出题{n}", sql=[f"{source.sql[0].replace(' ', '  ')};"])
            if n % 4 == 2
            else row(10_000 + n, question=f"出题{n}", answer=f" {source.answer}")
        )
    kinds = {0: SAME, 1: INSIDE, 2: QUERY, 3: ANSWER}
    leaks = find_leaks([*train, *planted_rows], held)
    named = {(leak.held.number, leak.train.number): leak.kinds for leak in leaks}
    for n, place in enumerate(chosen):
        if kinds[n % 4] is ANSWER and len(held[place].question.answer) < 24:
            continue
        assert kinds[n % 4] in named[held[place].number, 10_000 + n]
    assert {leak.train.number for leak in leaks} <= {planted_row.number for planted_row in planted_rows}


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


CHATS = [
    {"session_id": "a", "messages": [user("你好"), user("阿司匹林的禁忌是什么？")]},
    {
        "conversations": [
            {"from": "human", "value": text} for text in ("Side effects of metformin?", "and for children")
        ]
    },
    {"session_id": "c", **user("我的手机号是13812345678，高血压怎么办？")},
    {"messages": [user([{"type": "text", "text": "请问：阿司匹林的禁忌是什么?"}])]},
    {"messages": "nonsense"},
    {"messages": [{"role": "assistant", "content": "阿司匹林的适应症是什么？"}]},
]


@pytest.mark.parametrize("as_list", [False, True])
def test_chat_logs_become_questions(tmp_path: Path, as_list: bool) -> None:
    log = tmp_path / "chats.json"
    lines = [json.dumps(chat) for chat in CHATS]
    log.write_text(f"[{','.join(lines)}]" if as_list else "\n".join([*lines, "{torn"]), encoding="utf-8")
    turns, bad = read_turns(log)
    rows, dropped = questions(turns, Limits(later=True))
    assert [row["question"] for row in rows] == ["阿司匹林的禁忌是什么？", "Side effects of metformin?"]
    assert len(bad) == (1 if as_list else 2)
    assert [why.partition(" (")[0] for _, why in dropped] == [
        *("small talk", "leans on an earlier turn", "holds a phone number", "asked before")
    ]
    write_lines(tmp_path / "questions.jsonl", rows)
    assert [q.question for q in load_questions(tmp_path / "questions.jsonl")] == [row["question"] for row in rows]


def test_a_log_without_users_is_an_error(tmp_path: Path) -> None:
    log = tmp_path / "chats.jsonl"
    log.write_text('{"messages": [{"role": "assistant", "content": "hi"}]}\n')
    with pytest.raises(UserError, match="no turn of a user"):
        read_turns(log)


def trial(question: str, sample: int, reward: float | None, **more: Any) -> TrialRecord:
    parts = {} if reward is None else {"answer": reward}
    return TrialRecord(
        question_id=question, stop_reason="answered", reward=reward, reward_parts=parts, sample=sample, **more
    )


def test_difficulty_keeps_what_varies() -> None:
    records = [trial("easy", n, 1.0) for n in range(4)] + [trial("hard", n, 0.0) for n in range(4)]
    records += [trial("good", n, float(n == 0)) for n in range(4)] + [trial("good", 4, None, unscored="llm_fault")]
    records += [trial("alone", 0, 1.0), trial("alone", 1, None, unscored="llm_fault")]
    records += [trial("hard", 0, 1.0, decoding="greedy")]
    found = measure(records, threshold=0.5)
    assert found.keys() == {"easy", "hard", "good"}
    assert [bool(found[name].why_dropped()) for name in ("easy", "hard", "good")] == [True, True, False]
    assert found["good"].passed == [True, False, False, False] and not any(found["hard"].passed)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (
            "SELECT name FROM drug WHERE a=1 AND b='x'",
            "select d.name from drug AS d where d.b = 'x' and 1 = d.a;",
            True,
        ),
        ('SELECT "name" FROM `drug`', "select\n name -- all\nfrom DRUG d", True),
        (
            "SELECT a.x FROM t a JOIN u b ON a.id=b.id WHERE b.k IN (1,2)",
            "SELECT t.x FROM t JOIN u ON u.id=t.id WHERE u.k IN (2,1)",
            True,
        ),
        (
            "SELECT count(*) AS n FROM t GROUP BY k ORDER BY n",
            "SELECT COUNT(*) FROM t z GROUP BY z.k ORDER BY 1",
            False,
        ),
        ("SELECT x FROM t WHERE (a=1 OR b=2) AND c=3", "SELECT x FROM t WHERE c=3 AND (b=2 OR a=1)", True),
        ("SELECT x FROM t WHERE n='A'", "SELECT x FROM t WHERE n='a'", False),
        ("SELECT x FROM t WHERE n=1", "SELECT x FROM t WHERE n=10", False),
        ("SELECT a.x FROM t a JOIN u b ON a.i=b.i", "SELECT b.x FROM t a JOIN u b ON a.i=b.i", False),
        ("SELECT x FROM t WHERE a-b=1", "SELECT x FROM t WHERE b-a=1", False),
        ("no query (", " no  query (; ", True),
    ],
)
def test_queries_are_compared_by_what_they_ask(one: str, other: str, same: bool) -> None:
    leaks = find_leaks([row(1, question="一", sql=[one])], [row(2, question="二", sql=[other])])
    assert any(QUERY in leak.kinds for leak in leaks) is same


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("Hi! I hope you're well. What is the dose of ibuprofen?", "What is the dose of ibuprofen?"),
        ("Good morning, doctor: is 5 mg enough?", "doctor: is 5 mg enough?"),
        ("你好，请问阿司匹林的禁忌是什么？", "请问阿司匹林的禁忌是什么？"),
        ("Hippocampus lesions: what are they?", "Hippocampus lesions: what are they?"),
        ("Hello there, how are you today?", None),
        ("您好！在吗？", None),
    ],
)
def test_a_greeting_is_taken_off_and_the_question_stays(tmp_path: Path, said: str, asked: str | None) -> None:
    write_lines(tmp_path / "log.jsonl", [{"messages": [user(said), user("What is the dose of aspirin?")]}])
    rows, _ = questions(read_turns(tmp_path / "log.jsonl")[0], Limits())
    assert [row["question"] for row in rows] == [asked or "What is the dose of aspirin?"]


PRIVATE = """
call (415) 555-2671; my cell 020 7946 0958; Telefon 030 901820 bitte; +33 6 12 34 56 78; 手机13812345678;
我的电话是一三八一二三四五六七八; SSN 536-90-4399; card 4111 1111 1111 1111; 我的信用卡4111111111111111被刷了;
４１１１ １１１１ １１１１ １１１１; card 4012.8888.8888.1881; DE89 3704 0044 0532 0130 00; account number 12345678;
身份证11010519491231002X; PESEL 44051401359; TC kimlik 10000000146; Aadhaar 2341 2341 2346; PAN ABCPE1234F;
NIE X1234567L; CURP HEGG560427MVZRRL04; RUT 12.345.678-5; DNI 12.345.678-Z; BSN 111222333; СНИЛС 112-233-445 95;
passport: L01X00T47; 病历号 20231234567; medical record number 00482931; 微信：lilei1990; QQ号是345678901;
My name is anna; MY NAME IS JOHN; Ask Mrs. Miller; Frau Schneider; 我叫王小明;
密码是Abc12345; my password is Hunter2!x
"""
TOKENS = [f"ghp_{'16C7e42F' * 4}", f"sk-{'1234567890abcdef' * 2}"]


@pytest.mark.parametrize("said", [*(said.strip() for said in PRIVATE.split(";")), *TOKENS])
def test_private_data_is_seen(said: str) -> None:
    assert private(f"Hello. {said} what helps?")


NAMES = """
Emily Johnson, James Smith, Oliver Taylor, Priya Sharma, Hans Müller, Sabine Schneider, Camille Dubois, Carlos García,
María López, Giulia Rossi, João Silva, Jan de Vries, Erik Johansson, Mette Hansen, Jana Nováková, Budi Santoso,
Иван Петров, 王秀英, 张建国, 刘洋, 田中陽子, 김민준, 이서연, अमित शर्मा
"""


@pytest.mark.parametrize("name", ["Martin, Pierre", *(name.strip() for name in NAMES.split(","))])
def test_names_of_many_countries_are_seen(name: str) -> None:
    says = (
        f"患者{name}，发烧三天怎么办？"
        if "\u4e00" <= name[0] <= "\u9fff"
        else f"What helps? {name} has a fever since Monday"
    )
    assert private(says) == "a name"


NAMED_IN_TEXT = """
Agnieszka Wiśniewska, Tomasz Jankowski, Ayşe Demir, Hakan Öztürk, Haruto Yamaguchi, Takeshi Inoue, Rajesh Patel,
Gemma Whitfield, Annika Schröder, Olga Sokolova, Trần Thị Mai, Chinedu Okafor
"""


@pytest.mark.parametrize(
    "said",
    [
        *(f"Please check whether {name.strip()} paid the fee in March." for name in NAMED_IN_TEXT.split(",")),
        *(
            "帮我查一下赵晓雯的预约。",
            "王女士的孕吐很严重，怎么办？",
            "请问李老师周几上课？",
            "租客欧阳建国想知道谁来修锅炉？",
            "中村悠斗さんの予約を確認してください。",
            "이서연의 연차는 며칠 남았나요?",
            "저는 박지영이라고 합니다.",
            "Czy Jan Kowalski ma wizytę?",
        ),
    ],
)
def test_names_in_a_sentence_are_seen(said: str) -> None:
    assert private(said) == "a name"


PLACES_AND_THINGS = """
Which visa do I need for New York in June?
How long is the flight from Buenos Aires to San Francisco?
Is Green Tea better than Black Coffee for sleep?
What is the boiling point of water on Mount Everest?
¿Dónde está la Plaza Mayor de Madrid?
王府井步行街几点关门？
关于女士健康要注意什么？
班主任老师和历史老师谁更忙？
华法林的效果比二甲双胍强吗？
安全生产许可证怎么办理？
東京から京都までどのくらいかかりますか？
이자율은 얼마인가요?
"""
DISEASES_AND_HERBS = """
Parkinson disease, Guillain Barre syndrome, Charcot Marie Tooth disease, Von Willebrand disease, Hodgkin Lymphoma,
Stevens Johnson syndrome, 白芍和当归, 黄芪, 金银花, 陈皮泡水, 温水送服
"""
NUMBERS = """
国药准字H20041234; 5 mg 50 mg 500 mg; ICD-10 E11.9; 血压140/90，血糖7.8; 批准文号 86900123000456; NCT01234567;
2024-01-15; WBC 11,500 and platelets 250000; CAS 50-78-2; 1000-2000 IU; 10 20 30 40 mg; ISBN 0-306-40615-2;
合同编号 HT-2023-001234; subnet 255.255.255.0; 0 1 2 3 4 5 6 7 8 9; 订单号20231123456789; passport until 2024-01-15;
NDC 50090-3443-0; 微信Android版; password 2 of 3
"""
NOT_PRIVATE = [
    *PLACES_AND_THINGS.strip().splitlines(),
    *(f"What is {said.strip()}?" for said in DISEASES_AND_HERBS.split(",")),
    *(f"{said.strip()}怎么样？" for said in DISEASES_AND_HERBS.split(",")),
    *(f"What does {said.strip()} mean?" for said in NUMBERS.split(";")),
]


@pytest.mark.parametrize("said", NOT_PRIVATE)
def test_places_things_and_numbers_are_not_private(said: str) -> None:
    assert private(said) == ""
