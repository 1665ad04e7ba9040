"""A real `agl store`, a real runner process and a real LLM proxy around a scripted OpenAI-compatible model server.

Only the model is scripted: it gives token ids as vLLM does when asked with return_token_ids. Everything between it and
the training batch is what a training run uses.
"""

from __future__ import annotations

import itertools
import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from agl_plugin.daemon import GrpoDaemon
from agl_plugin.options import DaemonOptions
from agl_plugin.store.client import StoreClient
from foundation import run_folder
from foundation.files import read_lines
from foundation.net import free_port
from foundation.store_token import VARIABLE, token_headers
from sql_agent.config import ROOT
from sql_agent.testing.server import Answer, FakeServer, chat_reply, error_reply, openai_server, tool_call_reply

SLOW_S = 1.5
STORE_PATIENCE_S = 120.0
DRUGS = {"甲药": "高血压；心绞痛", "乙药": "发热；头痛"}
TURNS = itertools.count()
QUIET = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/tmp"), "LITELLM_LOCAL_MODEL_COST_MAP": "True"}


@pytest.fixture(scope="module")
def environment() -> Iterator[None]:
    """Runs set variables of their process, which is that of other tests too."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


def token_ids(text: str) -> list[int]:
    """Stand-in for a tokenizer: one id per character, never 0 (the padding)."""
    return [ord(char) % 5000 + 1 for char in text]


def policy(request: dict[str, Any]) -> Answer:
    """A scripted policy: query the drug that the question names, then answer with what came back.

    The question's words steer it: 故障 gives a 500, 空话 an answer without a query, 半对 an incomplete answer at T > 0,
    交替 one and two facts in turn, 慢 a late reply, 相加 a call of the first tool, with a = 2 and b = 3.
    """
    messages = request["messages"]
    question = next(m["content"] for m in messages if m["role"] == "user")
    results = [m["content"] for m in messages if m["role"] == "tool"]
    if "慢" in question:
        time.sleep(SLOW_S)
    if "故障" in question and results:
        return error_reply(500, "the model server broke")
    if "空话" in question:
        reply = chat_reply("您好。")
    elif "相加" in question:
        reply = (
            chat_reply(f"#### {results[-1]}")
            if results
            else tool_call_reply((request["tools"][0]["function"]["name"], {"a": 2, "b": 3}))
        )
    elif not results:
        name = next((drug for drug in DRUGS if drug in question), "甲药")
        sql = f"SELECT indication FROM drugs_info WHERE med_name = '{name}'"
        reply = tool_call_reply(("query_database_by_sql", {"sql": sql}))
    else:
        facts = json.loads(results[-1])["records"][0]["indication"].split("；")
        if "交替" in question:
            facts = facts[: next(TURNS) % 2 + 1]
        reply = chat_reply("；".join(facts[:1] if "半对" in question and request["temperature"] > 0 else facts))
    reply = {**reply, "id": f"chatcmpl-{time.monotonic_ns()}"}
    if request.get("return_token_ids"):
        prompt = json.dumps(messages, ensure_ascii=False)
        reply["prompt_token_ids"] = token_ids(prompt)
        choice = reply["choices"][0]
        choice["token_ids"] = token_ids(json.dumps(choice["message"], ensure_ascii=False))
        if request.get("logprobs"):
            choice["logprobs"] = worded_log_probs(choice["token_ids"])
    return reply


def log_prob(token: int) -> float:
    """What the scripted policy says of a token."""
    return -token / 4096


def worded_log_probs(ids: list[int]) -> dict[str, Any]:
    """As vLLM answers."""
    return {"content": [{"token": "x", "logprob": log_prob(i), "bytes": [120], "top_logprobs": []} for i in ids]}


@dataclass(frozen=True)
class Loop:
    """What a loop test talks to."""

    store_address: str
    server: FakeServer
    database: Path
    runner: subprocess.Popen[bytes]
    restart_store: Callable[[], None]  # kill -9, and start it again


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("db") / "small.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE drugs_info (id INTEGER PRIMARY KEY, med_name TEXT, indication TEXT)")
        connection.execute("CREATE TABLE disease (id INTEGER PRIMARY KEY, disease_name TEXT)")
        connection.executemany("INSERT INTO drugs_info (med_name, indication) VALUES (?, ?)", DRUGS.items())
    return path


def wait_until_up(url: str, process: subprocess.Popen[bytes], *, timeout_s: float = 90.0) -> None:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        assert process.poll() is None, f"{process.args} ended with {process.returncode}"
        try:
            if httpx.get(url, headers=token_headers(), timeout=2.0, trust_env=False).is_success:
                return
        except httpx.HTTPError:
            time.sleep(0.2)
    raise TimeoutError(url)


@contextmanager
def running(logs: Path, database: Path, *settings: str, lasting: bool = False, **environment: str) -> Iterator[Loop]:
    """Store, runners and the scripted policy; the runners with further settings and environment variables.

    `lasting` takes the store that lasts instead of `agl store`.
    """
    address = f"http://127.0.0.1:{free_port()}"
    memory = [str(Path(sys.executable).parent / "agl"), "store", "--host", "127.0.0.1"]
    lasts = [sys.executable, "-m", "agl_plugin.store", "--path", str(logs / "store.db")]
    store_command = [*(lasts if lasting else memory), "--port", address.rpartition(":")[2]]
    runner_command = [
        *(sys.executable, str(ROOT / "sql_agent" / "train_sql_agent.py"), "--external-store-address", address),
        *("--set", f"database.path={database}", "--set", "trainer.device=cpu", "--n-runners", "1"),
        *("--set", "agent.chat_template_kwargs.enable_thinking=false"),
        *("--set", "agent.system_prompt=system_zh", "--set", "rollout.top_p=0.9", "--set", "rollout.top_k=20"),
        *("--set", 'rollout.stop=["END"]', "--set", "rollout.validation.frequency_penalty=0.5"),
        *settings,
    ]
    variables = {**QUIET, "AGL_MANAGED_STORE": "0", "AGL_CURRENT_ROLE": "runner", **environment}
    with (logs / "store.log").open("wb") as store_log, (logs / "runner.log").open("wb") as runner_log:
        given = QUIET | {name: environment[name] for name in (VARIABLE,) if name in environment}
        stores: list[subprocess.Popen[bytes]] = []

        def start_store() -> None:
            if stores:
                stores[-1].kill()
                stores[-1].wait(30)
            stores.append(subprocess.Popen(store_command, stdout=store_log, stderr=store_log, env=given, cwd=ROOT))

        start_store()
        try:
            wait_until_up(f"{address}/v1/agl/health", stores[-1])
            runner = subprocess.Popen(runner_command, stdout=runner_log, stderr=runner_log, env=variables)
            try:
                with openai_server(policy) as server:
                    yield Loop(address, server, database, runner, start_store)
                assert runner.poll() is None, (logs / "runner.log").read_text()
            finally:
                runner.terminate()
                runner.wait(30)
        finally:
            stores[-1].terminate()
            stores[-1].wait(30)


@contextmanager
def collecting(loop: Loop, run_dir: Path, *, rollout_timeout_s: float = 60.0, **options: Any) -> Iterator[GrpoDaemon]:
    """The training side's daemon, which enqueues two rollouts per question and collects them."""
    store = StoreClient(loop.store_address, patience_s=STORE_PATIENCE_S)
    daemon = GrpoDaemon(
        model="fake-model",
        group_size=2,
        temperature=1.0,
        pad_token_id=0,
        merge=False,
        store=store,
        run_dir=run_dir,
        options=DaemonOptions(
            poll_interval_s=0.1, rollout_timeout_s=rollout_timeout_s, stall_s=60.0, log_probs=True, **options
        ),
    )
    yield daemon
    daemon._wait(daemon.llm_proxy.stop(), timeout_s=30)
    daemon._wait(store.close(), timeout_s=30)
    daemon.close()


def rollouts(
    daemon: GrpoDaemon, loop: Loop, questions: list[str], *, is_train: bool, **columns: list[str]
) -> list[dict[str, Any]]:
    """Roll out the questions, with further columns of theirs, and return the new lines of rollouts.jsonl."""
    path = daemon.run_dir / run_folder.ROLLOUTS
    before = len(read_lines(path))
    answers = [next((facts for drug, facts in DRUGS.items() if drug in q), "甲") for q in questions]
    asked = [
        {"id": f"q{i}", "question": question, "answer": answers[i], **{name: of[i] for name, of in columns.items()}}
        for i, question in enumerate(questions)
    ]
    address = loop.server.base_url.removeprefix("http://").removesuffix("/v1")
    daemon.collect(asked, [address], is_train=is_train)
    return read_lines(path)[before:]


@pytest.fixture(scope="module")
def loop(database: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loop]:
    with running(tmp_path_factory.mktemp("logs"), database, "--set", "reward.judge.kind=reference") as loop:
        yield loop
