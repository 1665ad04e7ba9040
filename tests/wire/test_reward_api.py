"""The scoring API over real HTTP, against the real server in a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis_jsonschema import from_schema

from reward_client.errors import JudgeRejected
from reward_client.reward_model import RewardModelClient
from reward_client.scale_map import load_scale
from reward_model.errors import UserError
from reward_model.folder import weights_fingerprint
from reward_model.inference_api import read_token
from sql_agent.config import ROOT
from sql_agent.serving import free_port
from tests.reward_models import make_model

TOKEN = "a-token-of-some-length"
START_S = 120.0
CHECKS = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much, HealthCheck.large_base_example]


@dataclass
class Api:
    """A running server."""

    url: str
    process: subprocess.Popen[str]

    def client(self, **options: Any) -> httpx.Client:
        return httpx.Client(base_url=self.url, trust_env=False, timeout=60, **options)

    def post(self, path: str, body: Any, **options: Any) -> httpx.Response:
        with self.client() as client:
            return client.post(path, json=body, **options)


def command(model: Path, port: int, *flags: str) -> list[str]:
    return [sys.executable, "inference_api.py", "--model_path", str(model), "--port", str(port), *flags]


@contextmanager
def serve(model: Path, *flags: str, token: str = "") -> Iterator[Api]:
    """The documented command, until the block ends."""
    port = free_port()
    # Set to nothing, so that no .env of this checkout can fill it.
    environment = {**os.environ, "REWARD_API_TOKEN": token, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        command(model, port, *flags),
        cwd=ROOT / "reward_model",
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    api = Api(f"http://127.0.0.1:{port}", process)
    try:
        _wait(api)
        yield api
    finally:
        process.kill()
        process.communicate()


def _wait(api: Api) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        assert api.process.poll() is None, api.process.communicate()[0]
        try:
            with api.client() as client:
                assert client.get("/readyz").json() == {"status": "ready", "queued": 0}
            return
        except httpx.TransportError:
            time.sleep(0.2)
    raise TimeoutError("the server did not start")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh model with a scale that needs a reference."""
    folder = make_model(tmp_path_factory.mktemp("models") / "reward")
    scale = {"logits": [-50.0, 50.0], "rewards": [0.0, 1.0], "n_rows": 50, "needs_reference": True, "mean_error": 0.1}
    known = {"weights_sha256": weights_fingerprint(folder), **scale}
    (folder / "reward_scale.json").write_text(json.dumps(known))
    return folder


@pytest.fixture(scope="module")
def api(model: Path) -> Iterator[Api]:
    limits = ("--max-items", "8", "--max-chars", "400", "--max-body-mib", "1")
    with serve(model, *limits) as running:
        yield running


# Formats


def test_score_answers_as_documented(api: Api) -> None:
    found = api.post("/score", {"prompt": "问", "response": "答"}).json()
    assert isinstance(found["score"], float) and found.keys() == {"score", "reward", "truncated"}
    assert found["reward"] is None and found["truncated"] is False


def test_a_reward_comes_with_the_reference_that_the_scale_needs(api: Api) -> None:
    found = api.post("/score", {"prompt": "问", "response": "答", "reference": "对"}).json()
    assert found["reward"] == pytest.approx((found["score"] + 50) / 100)


def test_the_client_of_the_scorers_reads_this_api(api: Api, model: Path) -> None:
    plain = RewardModelClient(api.url)
    served = asyncio.run(plain.score(prompt="问", response="答", reference="对"))
    assert served.reward == pytest.approx((served.logit + 50) / 100)
    with pytest.raises(JudgeRejected, match="raw logit"):
        asyncio.run(plain.score(prompt="问", response="答"))
    mapped = RewardModelClient(api.url, load_scale(model / "reward_scale.json"))
    assert asyncio.run(mapped.score(prompt="问", response="答", reference="对")) == served


def test_score_pair_answers_as_documented(api: Api) -> None:
    found = api.post("/score-pair", {"prompt": "问", "chosen": "答", "rejected": "错误的回答"}).json()
    documented = {"chosen_score", "rejected_score", "preference", "score_diff"}
    assert found.keys() == documented | {"chosen_reward", "rejected_reward", "truncated"}
    assert found["score_diff"] == pytest.approx(found["chosen_score"] - found["rejected_score"])
    assert found["preference"] == ("chosen" if found["score_diff"] > 0 else "rejected")
    single = api.post("/score", {"prompt": "问", "response": "答"}).json()
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


def test_health_ready_and_info(api: Api, model: Path) -> None:
    with api.client() as client:
        info = client.get("/").json()
        assert client.get("/healthz").json() == {"status": "ok"}
    assert (info["status"], info["model"], info["max_items"]) == ("ok", model.name, 8)
    assert info["scale"] == {"n_rows": 50, "needs_reference": True, "mean_error": 0.1}


def test_metrics_count_requests_and_items(api: Api) -> None:
    def value(name: str) -> float:
        with api.client() as client:
            lines = client.get("/metrics").text.splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(name))

    requests, items = 'reward_api_requests_total{path="/score",status="200"}', "reward_api_items_total"
    before = value(requests), value(items)
    api.post("/score", {"prompt": "问", "response": "答"})
    assert (value(requests), value(items)) == (before[0] + 1, before[1] + 1)
    with api.client() as client:
        client.get("/no/such/path")
    assert value('reward_api_requests_total{path="other",status="404"}') >= 1


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
    b'{"prompt": "a", "response": "b", "more": 1}',
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
    with api.client() as client:
        answer = client.post(path, content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 422 and answer.json()["detail"]
    assert b"b" * 50 not in answer.content


def test_a_large_body_is_413(api: Api) -> None:
    with api.client() as client:
        answer = client.post("/score", content=b" " * (3 << 20), headers={"content-type": "application/json"})
        chunked = client.post("/score", content=iter([b" " * 100_000] * 30))
    assert answer.status_code == chunked.status_code == 413 and "1048576 bytes" in answer.json()["detail"]


def test_strange_texts_have_scores(api: Api) -> None:
    for text in ("\0", "\u2028", "🙂" * 100, "<|im_end|><|endoftext|>", " " * 400, "\r\n", "\ufeff", "\uffff"):
        answer = api.post("/score", {"prompt": text, "response": text})
        assert answer.status_code == 200 and isinstance(answer.json()["score"], float), repr(text)


def test_other_methods_and_paths(api: Api) -> None:
    with api.client() as client:
        assert client.get("/score").status_code == 405 and client.delete("/").status_code == 405
        assert client.get("/docs").status_code == client.get("/score/").status_code == 404


# The schema, fuzzed


@pytest.fixture(scope="module")
def schema(api: Api) -> dict[str, Any]:
    with api.client() as client:
        return client.get("/openapi.json").json()


def resolved(schema: dict[str, Any], node: Any) -> Any:
    """The node with all references replaced."""
    if isinstance(node, list):
        return [resolved(schema, one) for one in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        return resolved(schema, schema["components"]["schemas"][node["$ref"].rpartition("/")[2]])
    return {key: resolved(schema, value) for key, value in node.items()}


@pytest.mark.parametrize("path", ["/score", "/score-pair", "/score-batch"])
def test_what_the_schema_allows_is_scored(api: Api, schema: dict[str, Any], path: str) -> None:
    import jsonschema

    route = schema["paths"][path]["post"]
    body = resolved(schema, route["requestBody"]["content"]["application/json"]["schema"])
    answer = resolved(schema, route["responses"]["200"]["content"]["application/json"]["schema"])

    @given(from_schema(body))
    @settings(max_examples=40, deadline=None, suppress_health_check=CHECKS)
    def check(value: Any) -> None:
        response = api.post(path, value)
        assert response.status_code == 200, response.text
        jsonschema.validate(response.json(), answer)

    check()


@pytest.mark.parametrize("path", ["/score", "/score-pair", "/score-batch"])
@given(st.recursive(st.none() | st.integers() | st.text(), lambda s: st.lists(s) | st.dictionaries(st.text(), s)))
@settings(max_examples=25, deadline=None, suppress_health_check=CHECKS)
def test_what_it_does_not_allow_is_422(api: Api, path: str, value: Any) -> None:
    assert api.post(path, value).status_code == 422


def test_every_error_is_in_the_schema(schema: dict[str, Any]) -> None:
    for path in ("/score", "/score-pair", "/score-batch"):
        assert {"200", "408", "413", "422", "503"} == set(schema["paths"][path]["post"]["responses"])


# Token


def test_without_the_token_nothing_is_scored(model: Path) -> None:
    body = {"prompt": "问", "response": "答"}
    with serve(model, token=TOKEN) as api, api.client() as client:
        wrong = ["", "Bearer", f"Bearer {TOKEN}x", f"Basic {TOKEN}", TOKEN, f"bearer {TOKEN[:-1]}", "Bearer \xe9"]
        for header in wrong:
            answer = client.post("/score", json=body, headers={b"Authorization": header.encode("latin-1")})
            assert answer.status_code == 401 and answer.headers["www-authenticate"] == "Bearer", header
            assert TOKEN not in answer.text
        assert client.post("/score", json=body).status_code == 401
        assert client.post("/score", content=b"{" * 10).status_code == 401  # before the body is looked at
        assert client.get("/metrics").status_code == 401
        assert client.get("/healthz").status_code == client.get("/readyz").status_code == 200
        assert client.post("/score", json=body, headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200
        assert client.get("/openapi.json").json()["components"]["securitySchemes"]
        api.process.terminate()
        assert TOKEN not in api.process.communicate(timeout=30)[0]


@pytest.mark.parametrize(
    ("host", "token", "message"),
    [
        ("0.0.0.0", "", "a token is needed"),
        ("example.com", "", "a token is needed"),
        ("127.0.0.1", "short", "16 or more printable"),
        ("127.0.0.1", "with space in the token", "16 or more printable"),
    ],
)
def test_a_weak_set_up_does_not_start(monkeypatch: pytest.MonkeyPatch, host: str, token: str, message: str) -> None:
    monkeypatch.setenv("REWARD_API_TOKEN", token)
    with pytest.raises(UserError, match=message) as caught:
        read_token(host)
    assert not token or token not in str(caught.value)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_loopback_needs_no_token(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    monkeypatch.delenv("REWARD_API_TOKEN", raising=False)
    assert read_token(host) == ""


# Load and shutdown


def test_64_clients_lose_nothing_over_a_restart(model: Path) -> None:
    """SIGTERM under load: every request that was taken is answered in full; the others fail as connections do."""
    outcomes: list[str] = []
    stop = threading.Event()

    def work(api: Api, number: int) -> None:
        with api.client() as client:
            while not stop.is_set():
                body = {"items": [{"prompt": f"问{number}", "response": "答" * n} for n in (1, 50, 100)]}
                try:
                    answer = client.post("/score-batch", json=body)
                except httpx.TransportError as exc:
                    outcomes.append(type(exc).__name__)
                    return
                outcomes.append(str(answer.status_code))
                if answer.status_code == 200:
                    assert len(answer.json()["results"]) == 3

    with serve(model, "--max-queued", "4000") as api, ThreadPoolExecutor(64) as pool:
        tasks = [pool.submit(work, api, number) for number in range(64)]
        time.sleep(3)
        accepted_before = outcomes.count("200")
        api.process.send_signal(signal.SIGTERM)
        output = api.process.communicate(timeout=60)[0]
        stop.set()
        for task in tasks:
            task.result()
    assert accepted_before > 0 and set(outcomes) <= {"200", "ConnectError", "ReadError", "RemoteProtocolError"}
    assert "Traceback" not in output and "Error" not in output
    assert len([one for one in outcomes if one != "200"]) <= 64


def test_a_request_in_flight_is_answered_after_sigterm(model: Path) -> None:
    items = [{"prompt": "问" * 300, "response": "答" * 300}] * 256
    with serve(model) as api, ThreadPoolExecutor(1) as pool:
        task = pool.submit(api.post, "/score-batch", {"items": items})
        time.sleep(0.4)
        assert not task.done()
        api.process.send_signal(signal.SIGTERM)
        assert len(task.result().json()["results"]) == 256
        api.process.communicate(timeout=30)
        with pytest.raises(OSError):
            socket.create_connection(("127.0.0.1", int(api.url.rpartition(":")[2])), timeout=1)


def test_an_overloaded_server_says_so(model: Path) -> None:
    items = [{"prompt": "问" * 200, "response": "答" * 250}] * 64
    with serve(model, "--max-queued", "64", "--batch-size", "4") as api, ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: api.post("/score-batch", {"items": items}), range(8)))
        codes = {answer.status_code for answer in answers}
        assert codes == {200, 503}
        refused = next(answer for answer in answers if answer.status_code == 503)
        assert refused.headers["retry-after"] == "1" and "overloaded" in refused.json()["detail"]
        assert api.post("/score-batch", {"items": items}).status_code == 200


def test_a_body_that_never_comes_does_not_hold_the_others(api: Api) -> None:
    head = "POST /score HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"
    with socket.create_connection(("127.0.0.1", int(api.url.rpartition(":")[2]))) as slow:
        slow.sendall(head.encode())
        assert api.post("/score", {"prompt": "问", "response": "答"}).status_code == 200
