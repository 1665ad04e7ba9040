"""The scoring API over real HTTP: formats, limits, token, health, metrics. Its schema is in test_reward_schema.py, its
end in test_reward_restart.py."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from foundation.errors import UserError
from foundation.http_gate import checked_token
from foundation.net import bind, free_port
from reward_client.errors import JudgeRejected
from reward_client.reward_model import RewardModelClient
from reward_client.scale_map import load_scale
from reward_model.inference_api import TOKEN_NAME
from sql_agent.config import ROOT
from tests.reward_api import Api, serve
from tests.typed import status_of

TOKEN = "a-token-of-some-length"
START_S = 180.0
BODY = {"prompt": "问", "response": "答"}


# Formats


@pytest.mark.long
def test_score_answers_as_documented(api: Api) -> None:
    found = api.post("/score", BODY).json()
    assert isinstance(found["score"], float) and found.keys() == {"score", "reward", "truncated"}
    assert found["reward"] is None and found["truncated"] is False


def test_a_reward_comes_with_the_reference_that_the_scale_needs(api: Api) -> None:
    found = api.post("/score", {"prompt": "问", "response": "答", "reference": "对"}).json()
    assert found["reward"] == pytest.approx((found["score"] + 50) / 100)


def test_the_client_of_the_scorers_reads_this_api(api: Api, reward_model_folder: Path) -> None:
    plain = RewardModelClient(api.url)
    served = asyncio.run(plain.score(prompt="问", response="答", reference="对"))
    assert served.reward == pytest.approx((served.logit + 50) / 100)
    with pytest.raises(JudgeRejected, match="raw logit"):
        asyncio.run(plain.score(prompt="问", response="答"))
    mapped = RewardModelClient(api.url, load_scale(reward_model_folder / "reward_scale.json"))
    assert asyncio.run(mapped.score(prompt="问", response="答", reference="对")) == served


def test_score_pair_answers_as_documented(api: Api) -> None:
    found = api.post("/score-pair", {"prompt": "问", "chosen": "答", "rejected": "错误的回答"}).json()
    documented = {"chosen_score", "rejected_score", "preference", "score_diff"}
    assert found.keys() == documented | {"chosen_reward", "rejected_reward", "truncated"}
    assert found["score_diff"] == pytest.approx(found["chosen_score"] - found["rejected_score"])
    assert found["preference"] == ("chosen" if found["score_diff"] > 0 else "rejected")
    single = api.post("/score", BODY).json()
    assert found["chosen_score"] == pytest.approx(single["score"], abs=1e-4)


def test_equal_answers_tie(api: Api) -> None:
    found = api.post("/score-pair", {"prompt": "问", "chosen": "答", "rejected": "答"}).json()
    assert found["score_diff"] == pytest.approx(0, abs=1e-4)


def test_score_batch_gives_the_scores_of_its_items(api: Api) -> None:
    items = [{"prompt": "问", "response": "答" * n} for n in (7, 1, 300, 3)]
    found = api.post("/score-batch", {"items": items}).json()["results"]
    alone = [api.post("/score", item).json() for item in items]
    assert [one["score"] for one in found] == pytest.approx([one["score"] for one in alone], abs=1e-4)
    assert len({one["score"] for one in found}) == 4


def test_health_ready_and_info(api: Api, reward_model_folder: Path) -> None:
    info = api.http.get("/").json()
    assert api.http.get("/healthz").json() == {"status": "ok"}
    assert (info["status"], info["model"], info["max_items"]) == ("ok", reward_model_folder.name, 8)
    assert info["scale"] == {"n_rows": 50, "needs_reference": True, "mean_error": 0.1}


def samples(api: Api) -> dict[tuple[str, ...], float]:
    """All samples of /metrics by name and label values; a text that breaks the format raises."""
    answer = api.http.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = text_string_to_metric_families(answer.text)
    return {(one.name, *one.labels.values()): one.value for family in families for one in family.samples}


def test_metrics_count_requests_and_items(api: Api) -> None:
    requests, items = ("reward_api_requests_total", "/score", "200"), ("reward_api_items_total",)
    api.post("/score", BODY)
    before = samples(api)
    api.post("/score", BODY)
    api.http.get("/no/such/path")
    after = samples(api)
    assert (after[requests], after[items]) == (before[requests] + 1, before[items] + 1)
    assert after["reward_api_requests_total", "other", "404"] >= 1 and after["reward_api_queued_items",] == 0


# Bad requests

WRONG = [
    b"",
    b"{",
    b"null",
    b"[]",
    b"\xff\xfe",
    b"[" * 200_000,
    b'{"prompt":' * 20_000,
    b'{"prompt": "a"}',
    b'{"prompt": 1, "response": null}',
    b'{"prompt": "a", "response": "b", "a-secret": 1}',
    b'{"prompt": "\\ud800", "response": "b"}',
    b'{"prompt": "a", "response": "b", "\\udfff": 1}',
    b'{"items": []}',
    b'{"items": {"a": 1}}',
    json.dumps({"prompt": "a", "response": "b" * 401}).encode(),
    json.dumps({"items": [{"prompt": "a", "response": "b"}] * 9}).encode(),
    json.dumps({"prompt": "a", "chosen": "b", "rejected": ["c"]}).encode(),
]


@pytest.mark.parametrize("body", WRONG, ids=lambda body: body[:30].decode("latin-1"))
@pytest.mark.parametrize("path", ["/score", "/score-pair", "/score-batch"])
def test_a_bad_body_is_422_with_a_detail(api: Api, path: str, body: bytes) -> None:
    answer = api.http.post(path, content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 422 and answer.json()["detail"]
    assert b"b" * 50 not in answer.content and b"secret" not in answer.content


def test_a_large_body_is_413(api: Api) -> None:
    answer = api.http.post("/score", content=b" " * (3 << 20), headers={"content-type": "application/json"})
    chunked = api.http.post("/score", content=iter([b" " * 100_000] * 30))
    assert answer.status_code == chunked.status_code == 413 and "1048576 bytes" in answer.json()["detail"]


def test_strange_texts_have_scores(api: Api) -> None:
    for text in ("\0", "\u2028", "🙂" * 100, "<|im_end|><|endoftext|>", " " * 400, "\r\n", "\ufeff", "\uffff"):
        answer = api.post("/score", {"prompt": text, "response": text})
        assert answer.status_code == 200 and isinstance(answer.json()["score"], float), repr(text)


def test_other_methods_and_paths(api: Api) -> None:
    assert api.http.get("/score").status_code == 405 and api.http.delete("/").status_code == 405
    assert api.http.get("/docs").status_code == api.http.get("/score/").status_code == 404


# Token


@pytest.mark.long
def test_without_the_token_nothing_is_scored(reward_model_folder: Path, tmp_path: Path) -> None:
    """By the documented command, with the token in its environment."""
    port = free_port()
    command = [sys.executable, "inference_api.py", "--model_path", str(reward_model_folder), "--port", str(port)]
    environment = {**os.environ, "REWARD_API_TOKEN": TOKEN, "OMP_NUM_THREADS": "1"}
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=ROOT / "reward_model", env=environment, stdout=log, stderr=log)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=60) as client:
            wait_until_ready(client, process)
            check_token(client)
        process.terminate()
        assert process.wait(30) == 130
    finally:
        process.kill()
    said = (tmp_path / "log").read_text()
    assert TOKEN not in said and f"on http://127.0.0.1:{port}, token needed" in said and "Traceback" not in said


def wait_until_ready(client: httpx.Client, process: subprocess.Popen[bytes]) -> None:
    deadline_s = time.monotonic() + START_S
    while time.monotonic() < deadline_s:
        assert process.poll() is None
        try:
            client.get("/readyz").raise_for_status()
            return
        except httpx.TransportError:
            time.sleep(0.1)
    raise TimeoutError("the server did not start")


def check_token(client: httpx.Client) -> None:
    wrong = ["", "Bearer", f"Bearer {TOKEN}x", f"Basic {TOKEN}", TOKEN, f"bearer {TOKEN[:-1]}", "Bearer \xe9"]
    for header in wrong:
        answer = client.post("/score", json=BODY, headers={b"Authorization": header.encode("latin-1")})
        assert answer.status_code == 401 and answer.headers["www-authenticate"].startswith("Bearer, Basic "), header
        assert TOKEN not in answer.text
    twice = [("Authorization", f"Bearer {TOKEN}")] * 2
    assert client.post("/score", json=BODY, headers=twice).status_code == 401
    assert client.post("/score", json=BODY).status_code == 401
    assert client.post("/score", content=b"{" * 10).status_code == 401  # before the body is looked at
    assert client.get("/metrics").status_code == 401
    assert client.get("/healthz").status_code == client.get("/readyz").status_code == 200
    for scheme in ("Bearer", "bearer"):
        assert client.post("/score", json=BODY, headers={"Authorization": f"{scheme} {TOKEN}"}).status_code == 200
    assert client.post("/score", json=BODY, auth=("any", TOKEN)).status_code == 200  # as a browser sends it
    assert client.post("/score", json=BODY, auth=(TOKEN, "any")).status_code == 401
    assert client.get("/openapi.json").json()["components"]["securitySchemes"]


@pytest.mark.parametrize(
    ("host", "token", "message"),
    [
        ("0.0.0.0", "", "a token is needed"),
        ("example.com", "", "a token is needed"),
        ("127.0.0.1", "short", "16 or more printable"),
        ("127.0.0.1", "with space in the token", "16 or more printable"),
    ],
)
def test_a_weak_set_up_does_not_start(host: str, token: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        checked_token(token, host=host, variable=TOKEN_NAME)
    assert not token or token not in str(caught.value)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_loopback_needs_no_token(host: str) -> None:
    assert checked_token("", host=host, variable=TOKEN_NAME) == ""


# Start


def test_a_port_in_use_is_one_message_before_the_model_is_loaded(
    api: Api, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REWARD_API_TOKEN", "")
    assert status_of("reward-model", "serve", "--model", "/no/such/model", "--port", str(api.port)) == 2
    assert f"--port {api.port}: cannot be taken" in capsys.readouterr().err
    with pytest.raises(UserError, match="--host 192.0.2.1.*cannot be taken|--host 192.0.2.1.*no address"):
        bind("192.0.2.1", 0)


# Load


def test_an_overloaded_server_says_so_and_lives(reward_model_folder: Path) -> None:
    items = [{"prompt": "问" * 200, "response": "答" * 250}] * 64
    with serve(reward_model_folder, "--max-queued", "64", "--batch-size", "4") as api, ThreadPoolExecutor(8) as pool:
        tasks = [pool.submit(api.post, "/score-batch", {"items": items}) for _ in range(8)]
        states = []
        while not all(task.done() for task in tasks):
            states.append((api.http.get("/readyz").status_code, api.http.get("/healthz").status_code))
        answers = [task.result() for task in tasks]
        assert {answer.status_code for answer in answers} == {200, 503}
        refused = next(answer for answer in answers if answer.status_code == 503)
        assert refused.headers["retry-after"] == "1" and "overloaded" in refused.json()["detail"]
        assert {healthy for _, healthy in states} == {200} and {ready for ready, _ in states} <= {200, 503}
        assert api.post("/score-batch", {"items": items}).status_code == 200


def test_who_went_away_is_not_scored(reward_model_folder: Path) -> None:
    """A client that gave up and asks again must not make the queue longer than its patience."""
    items = [{"prompt": "问" * 300, "response": "答" * 300}] * 256
    with serve(reward_model_folder, "--batch-size", "4") as api:
        with pytest.raises(httpx.ReadTimeout):
            api.post("/score-batch", {"items": items}, timeout=0.3)
        assert api.post("/score", BODY).status_code == 200
        found = samples(api)
    assert found["reward_api_items_total",] < 256 and found["reward_api_requests_total", "/score-batch", "499"] == 1


def test_a_body_that_never_comes_does_not_hold_the_others(api: Api) -> None:
    head = "POST /score HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"
    with socket.create_connection(("127.0.0.1", api.port)) as slow:
        slow.sendall(head.encode())
        assert api.post("/score", BODY).status_code == 200
