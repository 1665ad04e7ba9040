"""The LLM's pass over questions against a real local server: killed, resumed, out of budget, without an LLM.

A kill comes when all workers wait for an answer, so what was answered before is decided; the slow test also kills at
any time.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from foundation.files import read_lines, write_lines
from recipes.curate_cpu.run import STEPS, names_known, reader, with_references, write_log
from sql_agent.config import ROOT
from sql_agent.curation import chats
from sql_agent.data.bundled import DATA
from sql_agent.data.dataset import load_questions
from sql_agent.testing.server import (
    HANG,
    Answer,
    FakeServer,
    Reply,
    chat_reply,
    error_reply,
    openai_server,
    tool_call_reply,
)
from tests.typed import app_of

PASSES = {"keep": "keep", "keep_again": "again"}

CONCURRENCY = 4
QUESTION = re.compile(r"BEGIN QUESTION [0-9a-f]+>>>\n(.*?)\n<<<END", re.DOTALL)
LONGEST_S = 120.0


class Reader:
    """A server that drops questions with an odd number; with `allowed` answers given it lets all others wait."""

    def __init__(self, *, allowed: int = 10**9) -> None:
        self.allowed, self.answered, self.waiting = allowed, Counter[str](), 0
        self.asked = Counter[str]()
        self._lock = threading.Lock()

    def __call__(self, request: dict[str, Any]) -> Answer:
        found = QUESTION.search(request["messages"][-1]["content"])
        assert found
        with self._lock:
            self.asked[found[1]] += 1
            if sum(self.answered.values()) >= self.allowed:
                self.waiting += 1
                return HANG
            self.answered[found[1]] += 1
        number = int(re.findall(r"\d+", found[1])[-1])
        return chat_reply(json.dumps({"keep": number % 2 == 0, "reason": f"number {number}"}))


def questions(path: Path, n: int) -> Path:
    write_lines(
        path, ({"qid": f"q{k}", "question": f"第{k}个问题", "ground_truth": "", "kept_key": k} for k in range(n))
    )
    return path


def environment(server: FakeServer | None) -> dict[str, str]:
    address, key, model = (server.base_url, "key", "reader") if server else ("", "", "")
    return {"TEACHER_API_KEY": key, "TEACHER_MODEL": model, "TEACHER_BASE_URL": address, "JUDGE_ENDPOINTS": ""}


def start(server: FakeServer, *args: Any) -> subprocess.Popen[str]:
    command = [sys.executable, str(ROOT / "utils" / "filter_with_llm.py"), *map(str, args)]
    pipe, env = subprocess.PIPE, {**os.environ, **environment(server)}
    return subprocess.Popen(command, env=env, stdout=pipe, stderr=pipe, text=True)


def run(server: FakeServer | None, *args: Any, rubric: str = "keep") -> tuple[int, str]:
    """The same command line in this process."""
    done = CliRunner().invoke(app_of("curate"), [PASSES[rubric], *map(str, args)], env=environment(server))
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.output


def wait_until(condition: Any) -> None:
    ends_s = time.monotonic() + LONGEST_S
    while not condition():
        assert time.monotonic() < ends_s
        time.sleep(0.01)


def kill_when_all_wait(server: FakeServer, reader: Reader, process: subprocess.Popen[str], *, after: int) -> None:
    reader.waiting, reader.allowed = 0, after
    # Until there is an answer, one question is asked at a time. All must wait: else an answer may be on its way.
    most = CONCURRENCY if after else 1
    wait_until(lambda: reader.waiting >= most or process.poll() is not None)
    assert process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=LONGEST_S)
    reader.allowed = 10**9


def check_kills(folder: Path, points: Sequence[int], *, n: int) -> None:
    """Kill at each of `points` answers, on one file; then let it end, and compare with an undisturbed pass."""
    source, args = questions(folder / "raw.jsonl", n), ("--concurrency", CONCURRENCY)
    reader = Reader(allowed=0)
    with openai_server(reader) as server:
        for point in points:
            reader.allowed = point
            process = start(server, source, folder / "kept.jsonl", *args)
            kill_when_all_wait(server, reader, process, after=point)
            assert not (folder / "kept.jsonl").exists()
        assert run(server, source, folder / "kept.jsonl", *args)[0] == 0
        assert set(reader.answered.values()) == {1} and len(reader.answered) == n
        assert max(reader.asked.values()) <= len(points) + 1
        calls = len(server.requests)
        assert run(server, source, folder / "kept.jsonl", *args)[0] == 0
        assert len(server.requests) == calls
        assert run(server, source, folder / "again.jsonl", *args)[0] == 0
    for name in ("{}.jsonl", "{}.dropped.jsonl"):
        one, other = (folder / name.format(stem) for stem in ("kept", "again"))
        assert one.read_bytes() == other.read_bytes()
    assert [row["kept_key"] for row in read_lines(folder / "kept.jsonl")] == list(range(0, n, 2))
    assert read_lines(folder / "kept.dropped.jsonl")[0]["why"] == "number 1"


@pytest.mark.long
def test_a_killed_pass_asks_nothing_twice_and_ends_with_the_same_file(tmp_path: Path) -> None:
    check_kills(tmp_path, [5], n=20)


@pytest.mark.slow
def test_fifty_kills(tmp_path: Path) -> None:
    check_kills(tmp_path, range(50), n=60)


@pytest.mark.slow
def test_kills_at_any_time(tmp_path: Path) -> None:
    """Without waiting for the workers: an answer on its way at a kill may be asked for again, and no other."""
    dice, n, kills = random.Random(5), 400, 0
    source, reader = questions(tmp_path / "raw.jsonl", n), Reader()
    with openai_server(reader) as server:
        for _ in range(50):
            before = len(server.requests)
            process = start(server, source, tmp_path / "kept.jsonl", "--concurrency", CONCURRENCY)
            wait_until(lambda: len(server.requests) > before or process.poll() is not None)  # noqa: B023
            time.sleep(dice.uniform(0, 0.05))
            kills += process.poll() is None
            process.kill()
            process.communicate(timeout=LONGEST_S)
        assert run(server, source, tmp_path / "kept.jsonl", "--concurrency", CONCURRENCY)[0] == 0
    assert kills > 5 and sum(reader.asked.values()) <= n + kills * CONCURRENCY
    assert [row["kept_key"] for row in read_lines(tmp_path / "kept.jsonl")] == list(range(0, n, 2))


def test_without_an_llm_nothing_is_kept_or_dropped(tmp_path: Path) -> None:
    source, out = questions(tmp_path / "raw.jsonl", 6), tmp_path / "kept.jsonl"
    with openai_server(lambda request: error_reply(401, "no such key")) as server:
        status, said = run(server, source, out, "--concurrency", 1)
        assert status == 1 and "6 questions stay unasked" in said and "judge_rejected" in said
        assert len(server.requests) == 1  # a refused key is refused for all
    assert out.read_bytes() == (tmp_path / "kept.dropped.jsonl").read_bytes() == b""
    with openai_server(Reader()) as server:
        assert run(server, source, out)[0] == 0 and len(read_lines(out)) == 3
    assert run(None, source, out)[0] == 2


@pytest.mark.parametrize(
    "rubbish",
    [
        Reply(body="<!doctype html><title>Sign in</title>", content_type="text/html"),
        Reply(body={"choices": [], "said": "Sign in"}),
        Reply(body="Sign in"),
        chat_reply("Sign in, and then I keep it"),
        Reply(status=502, body="Sign in"),
    ],
)
def test_an_endpoint_that_answers_rubbish_is_asked_a_handful_of_times(tmp_path: Path, rubbish: Answer) -> None:
    source, out = questions(tmp_path / "raw.jsonl", 40), tmp_path / "kept.jsonl"
    with openai_server(lambda request: rubbish) as server:
        status, said = run(server, source, out)
        assert status == 1 and "40 questions stay unasked" in said and "Sign in" in said
        assert len(server.requests) <= 6


def test_a_budget_holds_over_all_goes_and_unreadable_answers_decide_nothing(tmp_path: Path) -> None:
    source, out = questions(tmp_path / "raw.jsonl", 8), tmp_path / "kept.jsonl"
    reader = Reader()

    def answer(request: dict[str, Any]) -> Answer:
        if "第1个问题" in request["messages"][-1]["content"]:
            return chat_reply("keep it, why not")
        return reader(request)

    with openai_server(answer) as server:
        status, said = run(server, source, out, "--max-calls", 6, "--concurrency", 1, rubric="keep_again")
        assert status == 1 and "judge_budget" in said and "--max-calls" in said and len(server.requests) == 6
        assert run(server, source, out, "--max-calls", 6, rubric="keep_again")[0] == 1 and len(server.requests) == 6
        status, said = run(server, source, out, rubric="keep_again")
    assert status == 1 and "1 questions stay unasked" in said and "judge_unparsable" in said
    assert [row["kept_key"] for row in read_lines(out)] == [0, 2, 4, 6]
    assert {row["id"] for row in read_lines(tmp_path / "kept.dropped.jsonl")} == {"q3", "q5", "q7"}
    assert set(reader.answered.values()) == {1}


@pytest.mark.slow
def test_questions_that_a_model_always_or_never_answers_go(tmp_path: Path) -> None:
    """Three questions, four samples each; the scripted model fails once, and the same command plays what is missing."""
    truths = {"第1题：1+1?": "2", "第2题：1+2?": "3", "第3题：1+3?": "4"}
    source, tries, out = tmp_path / "raw.jsonl", Counter[str](), tmp_path / "kept.jsonl"
    rows = [
        {"qid": f"q{n}", "question": text, "ground_truth": truth, "scorer": "exact"}
        for n, (text, truth) in enumerate(truths.items())
    ]
    write_lines(source, rows)

    def model(request: dict[str, Any]) -> Answer:
        text = next(text for text in truths if text in json.dumps(request["messages"], ensure_ascii=False))
        tries[text] += request["temperature"] > 0
        if sum(tries.values()) == 1 and request["temperature"] > 0:
            return error_reply(500, "once")
        right = {"第1题：1+1?": True, "第2题：1+2?": False}.get(text, tries[text] % 2 == 0)
        return chat_reply(truths[text] if right else "别的")

    with openai_server(model) as server:
        command = [sys.executable, str(ROOT / "utils" / "filter_by_difficulty.py"), str(source), str(out)]
        command += ["--model", f"scripted@{server.base_url}", "--samples", "4", "--concurrency", "1"]
        first = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_S)
        assert first.returncode == 1 and "1 questions are not measured" in first.stderr, first.stderr
        done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_S)
    assert done.returncode == 0, done.stderr
    assert [row["qid"] for row in read_lines(out)] == ["q2"]
    passed = {row["id"]: row["pass@1"] for row in read_lines(tmp_path / "kept.pass.jsonl")}
    assert passed["q0"] == 1 and passed["q1"] == 0 and 0 < passed["q2"] < 1


def test_the_recipes_log_loses_what_is_planted(tmp_path: Path) -> None:
    """recipes/curate_cpu up to its first model call: its log, its old set, its rule."""
    train = write_log(tmp_path, n=16, seed=3)
    planted = {row["session_id"]: row["planted"] for row in read_lines(tmp_path / "chats.jsonl")}
    rows, dropped = chats.questions(chats.read_turns(tmp_path / "chats.jsonl")[0], chats.Limits())
    kinds = Counter(planted[row["meta"]["session"]] for row in rows)
    assert (
        kinds["new"] == 16 and "private" not in kinds and {"small talk", "a later turn"} <= {why for _, why in dropped}
    )
    rule = reader(names_known())
    of_medicine = [
        row for row in rows if '"keep": true' in json.dumps(rule(asked_for(row["question"]))).replace("\\", "")
    ]
    assert {planted[row["meta"]["session"]] for row in rows if row not in of_medicine} == {"off topic"}
    assert len(with_references(of_medicine, train)) >= 16


def asked_for(question: str) -> dict[str, Any]:
    return {"messages": [{"content": f"<<<BEGIN QUESTION 1>>>\n{question}\n<<<END"}]}


@pytest.mark.slow
def test_the_recipe_curates(tmp_path: Path) -> None:
    """All six commands on a log of 8 questions, a scripted model as the policy: one question is answered sometimes."""
    known = {one.question: one.answer for one in load_questions(DATA / "train.parquet")}
    tries, lock = Counter[str](), threading.Lock()

    def policy(request: dict[str, Any]) -> Answer:
        question = str(request["messages"][1]["content"])
        if request["messages"][-1]["role"] != "tool":  # an answer from memory earns nothing
            return tool_call_reply(("query_database_by_sql", {"sql": "SELECT count(*) FROM disease"}))
        with lock:
            tries[question] += request["temperature"] > 0
            knows = question == min(tries) and tries[question] % 2
        return chat_reply(known[question] if knows else "?")

    with openai_server(policy) as model:
        command = [sys.executable, "-m", "recipes.curate_cpu.run", str(tmp_path), "--questions", "8", "--samples", "2"]
        env = {**os.environ, **environment(None)}
        done = subprocess.run(
            [*command, "--model", f"scripted@{model.base_url}"], cwd=ROOT, env=env, capture_output=True, text=True
        )
    assert done.returncode == 0, done.stderr
    left = [len(read_lines(tmp_path / f"{name}.jsonl")) for name in ("chats", *STEPS)]
    assert left == sorted(left, reverse=True) and left[-2] == 8 and left[-1] >= 1, left
