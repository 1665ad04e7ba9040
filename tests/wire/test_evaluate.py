"""evaluate.py against a real HTTP server: what it asks, what it writes, how it ends, how it goes on."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from sql_agent.config import ROOT
from sql_agent.data.dataset import load_questions, write_parquet
from sql_agent.testing.server import Answer, FakeServer, chat_reply, error_reply, openai_server, tool_call_reply
from tests.sql_db import make_database
from tests.typed import app_of

pytestmark = pytest.mark.usefixtures("no_endpoints")

app = app_of("evaluate")

TOOL = "query_database_by_sql"
RIGHT, WRONG = "药品的价格：{n}元。", "不知道。"
PRICES = {0: 0.5, 1: 1.0, 2: 1.5, 3: 2.0}


def raw(n: int) -> dict[str, Any]:
    """A question in the raw format. 第3问 breaks the server; 第2问 has no reference query."""
    return {
        "qid": f"q{n}",
        "task_type": "drug_field" if n else "drug_search_by_kw",
        "question": f"第{n}问：药品{n + 1:03d}的价格是多少？",
        "sql": [f"SELECT price FROM drugs_info WHERE id = {n + 1}"] if n != 2 else [],
        "evidence": [{"source_table": "drugs_info", "row_id": n + 1, "field": "price", "quote": str(PRICES[n])}],
        "meta": {"created_at": "2026-01-01 00:00:00"},
        "ground_truth": RIGHT.format(n=PRICES[n]),
    }


class Policy:
    """Asks the database, then answers: of the sampled answers to a question every second is right, a greedy one never.

    A greedy query does not run. The server breaks on 第3问.
    """

    def __init__(self, *, latency_s: float = 0.0) -> None:
        self.answered: Counter[int] = Counter()
        self._latency_s = latency_s
        self._lock = threading.Lock()

    def __call__(self, request: dict[str, Any]) -> Answer:
        time.sleep(self._latency_s)
        n = number_of(request)
        sampled = request["temperature"] > 0
        if n == 3:
            return error_reply(500, "broken")
        if request["messages"][-1]["role"] == "user":
            sql = f"SELECT price FROM drugs_info WHERE id = {n + 1}" if sampled else "SELECT cost FROM drugs_info"
            return tool_call_reply((TOOL, {"sql": sql}))
        with self._lock:
            self.answered[n] += sampled
            right = sampled and self.answered[n] % 2
        return chat_reply(RIGHT.format(n=PRICES[n]) if right else WRONG)


def number_of(request: dict[str, Any]) -> int:
    match = re.search(r"第(\d)问", json.dumps(request["messages"], ensure_ascii=False))
    assert match
    return int(match[1])


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """The flags for our own questions and database."""
    database = make_database(tmp_path)
    lines = [json.dumps(raw(n), ensure_ascii=False) for n in PRICES]
    (tmp_path / "mine.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return ["--split", str(tmp_path / "mine.jsonl"), "--set", f"database.path={database}"]


def evaluate(*arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments], catch_exceptions=False)


def results(out: Path) -> dict[str, Any]:
    return json.loads((out / "results.json").read_text(encoding="utf-8"))


def trials(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "trials.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.mark.long
def test_two_endpoints_are_compared_and_a_fault_is_counted(files: list[str], tmp_path: Path) -> None:
    out = tmp_path / "results"
    with openai_server(Policy()) as server:
        target = f"fake@{server.base_url}"
        keys = {"temperature": 0.7, "top_p": 0.9, "presence_penalty": 0.5, "stop": ["END"]}
        style = (
            "--set",
            f"rollout.evaluation={json.dumps(keys)}",
            "--set",
            'agent.chat_template_kwargs={"style": "short"}',
        )
        done = evaluate("--before", target, "--after", target, "--samples", "2", "--out", str(out), *style, *files)
    assert done.exit_code == 1, done.output
    asked = [{key: request.json[key] for key in keys} for request in server.requests]
    assert [one | {"temperature": 0.7} for one in asked] == [keys] * len(asked)
    assert {one["temperature"] for one in asked} == {0.7, 0.0}
    assert {str(request.json["chat_template_kwargs"]) for request in server.requests} == {str({"style": "short"})}
    assert done.stdout.rstrip().splitlines()[-1] == f"evaluation: {out}"
    tree = results(out)
    sampled, greedy = (tree["models"]["after"][f"mine/{how}"] for how in ("sampled", "greedy"))
    assert not tree["partial"] and tree["trials"] == {"planned": 24, "played": 24}
    assert sampled["trials"] == 8 and sampled["unscored"] == {"llm_fault": 2} and greedy["unscored"] == {"llm_fault": 1}
    assert sampled["stop_reasons"] == {"answered": 6, "fault": 2}
    means = {name: found["mean"] for name, found in sampled["measures"].items()}
    assert means["reward"] == pytest.approx(0.1 + 0.5) and means["answer score"] == pytest.approx(0.5)
    assert sampled["measures"]["executed SQL"] == {"mean": 1.0, "low": 1.0, "high": 1.0, "n": 3}
    assert (means["turns"], means["prompt tokens"], means["completion tokens"]) == (2, 14, 10), "usage of two calls"
    assert greedy["measures"]["SQL validity"]["mean"] == 0.0 and means["SQL validity"] == 1.0
    assert sampled["latency_s"]["llm call"]["n"] == 12 and sampled["latency_s"]["episode"]["n"] == 6
    assert tree["delta"]["mine/sampled"]["reward"] == {"mean": 0.0, "low": 0.0, "high": 0.0, "n": 3, "p": 1.0}
    assert {t["decoding"] for t in trials(out)} == {"sampled", "greedy"} and len(trials(out)) == 24


def test_execution_match_leaves_out_what_has_no_reference_query(files: list[str], tmp_path: Path) -> None:
    out = tmp_path / "results"
    with openai_server(Policy()) as server:
        evaluate("--before", server.base_url, "--samples", "2", "--out", str(out), *files)
    found = results(out)["models"]["model"]["mine/sampled"]
    assert found["measures"]["execution match"] == {"mean": 1.0, "low": 1.0, "high": 1.0, "n": 2}
    assert found["no_execution_match"] == {"no_reference": 2}
    by_task = {
        task: (f["questions"], f["measures"]["execution match"]["n"], f["measures"]["reward"]["n"])
        for task, f in found["by_task"].items()
    }
    assert by_task == {"drug_field": (3, 1, 2), "drug_search_by_kw": (1, 1, 1)}
    best = found["of_k"]["reward"]["2"]
    assert [best[which]["mean"] for which in ("best", "mean", "worst")] == pytest.approx([1.1, 0.6, 0.1])
    assert results(out)["models"]["model"]["mine/greedy"]["of_k"] == {}
    text = (out / "results.md").read_text(encoding="utf-8")
    assert "| mine | sampled | model | 0.600 [0.600, 0.600] |" in text
    assert "| mine | sampled | drug_search_by_kw | 1 | 0.600 | 1.000 |" in text
    assert "no_reference 2" in text and "PARTIAL" not in text


def test_a_raw_file_and_its_parquet_give_the_same_figures(files: list[str], tmp_path: Path) -> None:
    out, parquet = tmp_path / "results", tmp_path / "outside.parquet"
    write_parquet(load_questions(tmp_path / "mine.jsonl"), parquet)
    with openai_server(Policy()) as server:
        # One at a time: the policy answers the samples of a question differently, in the order in which they come.
        plan = ["--samples", "2", "--concurrency", "1", "--out", str(out), "--split", str(parquet), *files]
        evaluate("--before", server.base_url, *plan)
    found = results(out)["models"]["model"]
    timed = {"seconds"}
    for how in ("sampled", "greedy"):
        one, other = (
            {k: v for k, v in found[f"{s}/{how}"]["measures"].items() if k not in timed} for s in ("mine", "outside")
        )
        assert one == other
        assert found[f"mine/{how}"]["by_task"] == found[f"outside/{how}"]["by_task"]


def test_a_scorer_that_hangs_costs_its_trials_and_not_the_evaluation(files: list[str], tmp_path: Path) -> None:
    out, reward = tmp_path / "results", tmp_path / "slow.py"
    reward.write_text("import time\ndef pays(completions, **_):\n    time.sleep(1000)\n", encoding="utf-8")
    keys = [f"reward.default_scorer={reward}:pays", "rollout.rollout_timeout_s=0.5"]
    flags = ["--samples", "1", "--out", str(out), *files, *(word for key in keys for word in ("--set", key))]
    with openai_server(Policy()) as server:
        done = evaluate("--before", server.base_url, *flags)
    assert done.exit_code == 1, done.output
    assert results(out)["models"]["model"]["mine/greedy"]["unscored"] == {"timed_out": 3, "llm_fault": 1}
    late = next(trial for trial in trials(out) if trial["unscored"] == "timed_out")
    assert "not scored within rollout.rollout_timeout_s = 0.5" in late["reason"] and late["answer"]


def test_an_endpoint_without_usage_has_unknown_tokens_not_zero(files: list[str], tmp_path: Path) -> None:
    out = tmp_path / "results"
    with openai_server(lambda _: {**chat_reply("答"), "usage": None}) as server:
        evaluate("--before", server.base_url, "--samples", "1", "--limit", "1", "--out", str(out), *files)
    assert results(out)["models"]["model"]["mine/greedy"]["measures"]["prompt tokens"]["n"] == 0
    assert [t["prompt_tokens"] for t in trials(out)] == [None, None]


def start(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(ROOT / "sql_agent" / "evaluate.py"), *arguments]
    # A shell may have started us with SIGINT ignored, which children inherit.
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def wait_for_trials(out: Path, n: int, process: subprocess.Popen[str]) -> None:
    deadline_s = time.monotonic() + 300
    while not (out / "trials.jsonl").exists() or len(trials(out)) < n:
        assert process.poll() is None and time.monotonic() < deadline_s
        time.sleep(0.05)


@pytest.mark.long
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_evaluation_is_partial_and_goes_on(
    how: signal.Signals, files: list[str], tmp_path: Path
) -> None:
    out = tmp_path / "my results"
    with openai_server(Policy(latency_s=0.15)) as server:
        plan = ["--samples", "3", "--concurrency", "1", "--no-inspect-log", "--out", str(out), *files]
        process = start("--before", f"fake@{server.base_url}", *plan)
        wait_for_trials(out, 3, process)
        process.send_signal(how)
        stdout, stderr = process.communicate(timeout=300)
        assert process.returncode == 130, stderr
        assert f"--resume '{out}'" in stderr and stdout.rstrip().endswith(f"evaluation: {out}")
        first, n_asked = trials(out), len(server.requests)
        assert results(out)["partial"] and "PARTIAL" in (out / "results.md").read_text(encoding="utf-8")
        assert results(out)["trials"] == {"planned": 16, "played": len(first)} and 3 <= len(first) < 16
        with (out / "trials.jsonl").open("a", encoding="utf-8") as file:
            file.write('{"model": "cut off he')
        done = evaluate("--resume", str(out), "--concurrency", "4", "--no-inspect-log")
    assert done.exit_code == 1, done.output
    assert f"{len(first)} of 16 trials are there already" in done.stderr
    assert not results(out)["partial"] and results(out)["trials"] == {"planned": 16, "played": 16}
    assert trials(out)[: len(first)] == first
    again = Counter((t["decoding"], t["question_id"], t["sample"]) for t in trials(out))
    assert set(again.values()) == {1} and len(again) == 16
    # Two calls a trial, one where the server breaks.
    assert len(server.requests) - n_asked == sum(2 - (t["question_id"] == "q3") for t in trials(out)[len(first) :])


def test_a_trial_that_a_fault_ended_is_played_again(files: list[str], tmp_path: Path) -> None:
    out, policy = tmp_path / "results", Policy()
    broken = True

    def handler(request: dict[str, Any]) -> Answer:
        return policy(request) if broken or number_of(request) != 3 else chat_reply("答")

    with openai_server(handler) as server:
        assert evaluate("--before", server.base_url, "--samples", "1", "--out", str(out), *files).exit_code == 1
        broken = False
        done = evaluate("--resume", str(out))
    assert done.exit_code == 0, done.output
    assert results(out)["models"]["model"]["mine/greedy"]["unscored"] == {}
    assert [t["question_id"] for t in trials(out)[8:]] == ["q3", "q3"]


def test_a_changed_question_file_is_not_mixed_in(files: list[str], tmp_path: Path) -> None:
    out = tmp_path / "my results"
    with openai_server(Policy()) as server:
        plan = ["--before", server.base_url, "--samples", "1", "--limit", "2", "--out", str(out), *files]
        evaluate(*plan)
        again = evaluate(*plan)
        with (tmp_path / "mine.jsonl").open("a", encoding="utf-8") as file:
            file.write("\n" + json.dumps({**raw(0), "qid": "q9"}, ensure_ascii=False))
        changed = evaluate("--resume", str(out))
    assert again.exit_code == 2 and f"continue it with --resume '{out}'" in again.stderr
    assert changed.exit_code == 2 and "questions: {'mine': [2," in changed.stderr


def test_a_refused_key_ends_the_evaluation_at_once(
    files: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret-key")
    out = tmp_path / "results"
    with openai_server(lambda _: error_reply(401, "bad key sk-very-secret-key")) as server:
        plan = ["--samples", "50", "--concurrency", "2", "--out", str(out), *files]
        done = evaluate("--before", f"fake@{server.base_url}", *plan)
    assert done.exit_code == 1 and len(server.requests) <= 4
    assert f"--before {server.base_url}: the endpoint refuses the key" in done.stderr
    assert "in OPENAI_API_KEY" in done.stderr and "very-secret" not in done.output + done.stderr
    assert results(out)["partial"]


def test_nobody_listens_is_known_before_the_first_trial(files: list[str], tmp_path: Path) -> None:
    with openai_server(Policy()) as server:
        dead = "http://127.0.0.1:9/v1"
        plan = ["--out", str(tmp_path / "results"), *files]
        done = evaluate("--before", f"fake@{server.base_url}", "--after", f"m@{dead}", *plan)
    assert done.exit_code == 2 and f"--after {dead}: no connection" in done.stderr
    assert server.requests == [] and not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--split", "tset"], "--split tset: neither a bundled split (train, val, test, test_entities) nor a file"),
        (["--split", "none.jsonl"], "none.jsonl: does not exist"),
        (["--split", "a/mine.jsonl", "--split", "b/mine.jsonl"], "there is a split mine already"),
        (["--before", "./no/such/folder"], "--before ./no/such/folder: no such folder"),
        (["--before", "m@ftp://host/v1"], "--before 'ftp://host/v1': an address starts with http"),
        (["--before", "m@http://user:pw@host/v1"], "--before: an address has no user name"),
        (["--resume", "nowhere"], "no plan.json that can be read"),
        (["--resume", "nowhere", "--samples", "3", "--set", "a=1"], "leave out --samples, --set"),
    ],
)
def test_wrong_input_is_explained(flags: list[str], said: str, files: list[str], tmp_path: Path) -> None:
    rest = [] if "--split" in flags or "--resume" in flags else files
    out = [] if "--resume" in flags else ["--out", str(tmp_path / "out")]
    done = evaluate(*flags, *rest, *out)
    assert done.exit_code == 2 and said in done.stderr, done.stderr
    assert not (tmp_path / "out").exists()


def test_a_run_without_a_checkpoint_is_named(files: list[str], tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "summary.json").write_text("{}")
    done = evaluate("--before", str(run), *files)
    assert done.exit_code == 2 and f"{run}: no complete global_step_N folder" in done.stderr


@pytest.fixture
def logged(files: list[str], tmp_path: Path) -> Path:
    pytest.importorskip("inspect_ai", reason="needs the extra eval")
    with openai_server(Policy()) as server:
        done = evaluate("--before", server.base_url, "--samples", "2", "--out", str(tmp_path / "my results"), *files)
    folder = tmp_path / "my results" / "inspect"
    assert f"inspect view --log-dir '{folder}'" in done.stderr
    return folder


def test_inspect_ai_reads_its_logs(logged: Path) -> None:
    from inspect_ai.log import list_eval_logs, read_eval_log
    from inspect_ai.model import ChatMessageAssistant, ChatMessageTool

    assert len(list_eval_logs(str(logged))) == 2
    log = read_eval_log(str(logged / "model-mine-sampled.eval"))
    assert (log.status, log.eval.model_generate_config.temperature, log.eval.config.epochs) == ("success", 1.0, 2)
    assert log.results and log.results.completed_samples == 6
    scores = {score.name: score.metrics["mean"].value for score in log.results.scores}
    assert scores == pytest.approx({"reward": 0.6, "answer": 0.5, "execution_match": 1.0})
    assert log.samples and len(log.samples) == 8
    sample = next(
        s for s in log.samples if s.id == "q0" and s.scores and s.scores["reward"].value == pytest.approx(1.1)
    )
    assert [message.role for message in sample.messages] == ["system", "user", "assistant", "tool", "assistant"]
    asked, said = sample.messages[2], sample.messages[3]
    assert isinstance(asked, ChatMessageAssistant) and asked.tool_calls and isinstance(said, ChatMessageTool)
    assert asked.tool_calls[0].arguments == {"sql": "SELECT price FROM drugs_info WHERE id = 1"}
    assert said.tool_call_id == asked.tool_calls[0].id and json.loads(said.text)["records"] == [{"price": 0.5}]
    assert sample.output.completion == RIGHT.format(n=0.5) and sample.target == RIGHT.format(n=0.5)
    [usage] = sample.model_usage.values()
    assert (usage.input_tokens, usage.output_tokens) == (14, 10)
    broken = next(s for s in log.samples if s.id == "q3")
    assert broken.error and "500" in broken.error.message and not broken.scores


def test_no_inspect_log_when_not_wanted(files: list[str], tmp_path: Path) -> None:
    out = tmp_path / "results"
    with openai_server(Policy()) as server:
        plan = ["--samples", "1", "--limit", "1", "--no-inspect-log", "--out", str(out), *files]
        evaluate("--before", server.base_url, *plan)
    assert (out / "results.json").exists() and not (out / "inspect").exists()


def test_the_concurrency_is_used_and_not_exceeded(files: list[str], tmp_path: Path) -> None:
    server: FakeServer
    with openai_server(Policy(latency_s=0.1)) as server:
        plan = ["--samples", "4", "--concurrency", "3", "--out", str(tmp_path / "results"), *files]
        evaluate("--before", server.base_url, *plan)
    assert server.most_open == 3


class Voters:
    """Of the sampled episodes of a question 3 of 5 query the right row; one of two that do not agree is more probable.

    What an episode answers is what it found; a greedy one never finds it.
    """

    def __init__(self) -> None:
        self.asked: Counter[int] = Counter()

    def __call__(self, request: dict[str, Any]) -> Answer:
        n, last = number_of(request), request["messages"][-1]
        if last["role"] == "tool":
            reply = chat_reply(f"药品的价格：{json.loads(last['content'])['records'][0]['price']}元。")
        else:
            turn = self.asked[n] % 5 if request["temperature"] else 4
            self.asked[n] += 1 if request["temperature"] else 0
            row = n + 1 if turn in (0, 2, 3) else 100 + turn
            reply = tool_call_reply((TOOL, {"sql": f"SELECT price FROM drugs_info WHERE id = {row}"}))
        if request.get("logprobs"):
            token = {"token": "x", "logprob": -0.5, "bytes": None, "top_logprobs": []}
            reply["choices"][0]["logprobs"] = {"content": [token, token], "refusal": None}
        return reply


def test_a_vote_stands_beside_greedy_and_the_best_of_k(files: list[str], tmp_path: Path) -> None:
    out = tmp_path / "results"
    with openai_server(Voters()) as server:
        plan = ["--vote", "5", "--concurrency", "1", "--out", str(out), *files]
        done = evaluate("--model", server.base_url, *plan)
    assert done.exit_code == 0, done.output
    found = results(out)["models"]["model"]
    match = {how: one["measures"]["execution match"] for how, one in found.items()}
    assert {how: one["mean"] for how, one in match.items()} == {
        **{"mine/sampled": pytest.approx(0.6), "mine/greedy": 0.0},
        "mine/vote of 5": 1.0,
    }
    assert (
        match["mine/vote of 5"]["n"] == 3 and found["mine/sampled"]["of_k"]["execution match"]["5"]["best"]["mean"] == 1
    )
    tokens = {how: one["measures"]["prompt tokens"]["mean"] for how, one in found.items()}
    assert (tokens["mine/sampled"], tokens["mine/vote of 5"]) == (14, 70)
    assert {line["logprob"] for line in trials(out)} == {-2.0}
    assert "| mine | vote of 5 | model |" in (out / "results.md").read_text(encoding="utf-8")


def test_a_vote_of_more_than_are_drawn_is_refused(files: list[str]) -> None:
    for flags in (["--vote", "8", "--samples", "4"], ["--vote", "1"]):
        done = evaluate("--model", "http://127.0.0.1:9/v1", *flags, *files)
        assert done.exit_code == 2 and "raise one" in done.output
