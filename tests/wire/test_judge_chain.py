"""Several endpoints, the ladder of output forms, limits, budget and cache, over real HTTP and real processes."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import sqlite3
import threading
import time
from collections.abc import Sequence
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from reward_client import (
    Budget,
    JudgeBudgetSpent,
    JudgeEndpoint,
    JudgeFault,
    JudgeFolderFault,
    JudgeItem,
    JudgeRejected,
    JudgeUnreachable,
    LLMJudge,
    Verdict,
    chain,
)
from reward_client.client import JudgeBadRequest, JudgeBusy
from reward_client.tries import Tries
from sql_agent.testing.server import (
    HANG,
    RESET,
    Answer,
    Handler,
    Reply,
    chat_reply,
    error_reply,
    in_turn,
    openai_server,
)
from tests.broken_addresses import broken_addresses

KEYS = ("sk-first-secret-0123", "sk-second-secret-4567")
SCORES = {"accuracy": 0.9, "completeness": 0.8, "clarity": 1, "professionalism": 1, "reason": "好"}
GOOD = chat_reply(json.dumps(SCORES))
OTHER = chat_reply(json.dumps({**SCORES, "accuracy": 0.3}))
HTML = Reply(body="<html>login</html>", content_type="text/html")


def item(answer: str = "用于高血压") -> JudgeItem:
    return JudgeItem(question="氨氯地平的适应症是什么？", reference="高血压", answer=answer)


def make(urls: Sequence[str], **options: Any) -> LLMJudge:
    endpoints = [
        JudgeEndpoint(api_key=SecretStr(key), base_url=url, model=f"judge-{n}", prompt_price=1, completion_price=2)
        for n, (url, key) in enumerate(zip(urls, KEYS, strict=False), start=1)
    ]
    return LLMJudge(endpoints, **{"timeout_s": 6.0, **options})


def grade(judge: LLMJudge, *answers: str) -> list[Verdict]:
    async def all_of_them() -> list[Verdict]:
        return [await judge.grade(item(answer)) for answer in answers or ("用于高血压",)]

    return asyncio.run(all_of_them())


# Failover


BROKEN: dict[str, Answer] = broken_addresses(GOOD) | {
    "wrong key": error_reply(401, "key"),
    "no such model": error_reply(404, "model"),
    "refuses the request": error_reply(400, "x"),
    "no verdict": chat_reply("8/10"),
    "refusal": chat_reply(None, refusal="I cannot grade this"),
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN.keys())
def test_the_next_endpoint_answers(broken: Answer) -> None:
    with openai_server(lambda _: broken) as first, openai_server(lambda _: GOOD) as second:
        (verdict,) = grade(make([first.base_url, second.base_url], timeout_s=3.0))
        assert verdict.overall == pytest.approx(0.89)
        assert [len(s.requests) for s in (first, second)] == [1, 1] and verdict.usage.calls == 2
        assert second.requests[0].headers["authorization"] == f"Bearer {KEYS[1]}"
        assert second.requests[0].json["model"] == "judge-2"


def test_an_endpoint_that_failed_is_left_alone_for_a_while() -> None:
    with openai_server(lambda _: error_reply(500, "x")) as first, openai_server(lambda _: GOOD) as second:
        grade(make([first.base_url, second.base_url]), "一", "二", "三")
        assert [len(s.requests) for s in (first, second)] == [1, 3]


def test_it_is_asked_again_after_it_has_cooled_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reward_client.chain.FIRST_COOL_DOWN_S", 0.3)
    with openai_server(in_turn(RESET, GOOD)) as first, openai_server(lambda _: OTHER) as second:
        judge = make([first.base_url, second.base_url])
        assert grade(judge, "一")[0].overall == pytest.approx(0.3)
        time.sleep(0.4)
        assert grade(judge, "二")[0].overall == pytest.approx(0.89)


def test_an_outage_of_thousands_of_calls_is_no_longer_a_cool_down_than_one_of_ten() -> None:
    known = chain._Known()
    for _ in range(3000):
        known.learn(JudgeUnreachable("connection refused"))
    assert 0 < known.cool_until_s - time.time() <= chain.MAX_COOL_DOWN_S


def test_all_down_is_a_fault_after_every_endpoint_had_its_tries() -> None:
    with openai_server(lambda _: error_reply(500, "x")) as first, openai_server(lambda _: HTML) as second:
        with pytest.raises(JudgeFault) as caught:
            grade(make([first.base_url, second.base_url], attempts=2))
        assert [len(s.requests) for s in (first, second)] == [2, 2] and caught.value.usage.calls == 4
    assert not any(key in str(caught.value) for key in KEYS)


def test_all_refused_ends_at_once() -> None:
    with (
        openai_server(lambda _: error_reply(401, "x")) as first,
        openai_server(lambda _: error_reply(404, "x")) as second,
    ):
        with pytest.raises(JudgeRejected):
            grade(make([first.base_url, second.base_url]))
        assert [len(s.requests) for s in (first, second)] == [1, 1]


def test_a_short_retry_after_is_waited_for_a_long_one_goes_on() -> None:
    short = in_turn(error_reply(429, "x", Retry_After="1"), GOOD)
    with openai_server(short) as first, openai_server(lambda _: OTHER) as second:
        assert grade(make([first.base_url, second.base_url]))[0].overall == pytest.approx(0.89)
        assert not second.requests and 1.0 <= first.requests[1].at_s - first.requests[0].at_s < 5.0
    with (
        openai_server(lambda _: error_reply(429, "x", Retry_After="600")) as first,
        openai_server(lambda _: OTHER) as second,
    ):
        judge = make([first.base_url, second.base_url])
        assert [v.overall for v in grade(judge, "一", "二")] == pytest.approx([0.3, 0.3])
        assert len(first.requests) == 1


def test_an_endless_429_without_a_time_goes_on_after_two_tries() -> None:
    with openai_server(lambda _: error_reply(429, "quota")) as first, openai_server(lambda _: OTHER) as second:
        assert grade(make([first.base_url, second.base_url]))[0].overall == pytest.approx(0.3)
        assert len(first.requests) == 2


def test_two_endpoints_that_are_busy_for_ever_are_not_asked_in_a_tight_loop() -> None:
    busy = error_reply(429, "quota")
    with openai_server(lambda _: busy) as first, openai_server(lambda _: busy) as second:
        with pytest.raises(JudgeUnreachable, match="429"):
            grade(make([first.base_url, second.base_url], timeout_s=3.0))
        # The first two pauses are shorter than half of the time, whatever is drawn.
        assert 3 <= len(first.requests) + len(second.requests) < 40


IN_TWO_HOURS = formatdate(time.time() + 7200, usegmt=True)


@pytest.mark.parametrize(
    ("asked_s", "blocked_s"),
    [("600", 600), ("9" * 30, 3600), (IN_TWO_HOURS, 3600)],
    ids=["minutes", "years", "date"],
)
def test_a_blocked_endpoint_without_another_is_a_fault_at_once_for_an_hour_at_most(
    asked_s: str, blocked_s: float
) -> None:
    with openai_server(lambda _: error_reply(429, "x", Retry_After=asked_s)) as server:
        judge = make([server.base_url])
        for answer in ("一", "二"):
            with pytest.raises(JudgeUnreachable, match="asks to wait"):
                grade(judge, answer)
        assert len(server.requests) == 1
    left_s = judge._chain.known[judge.endpoints[0].id].blocked_until_s - time.time()
    assert blocked_s / 2 < left_s <= blocked_s


# Ladder


def understands(*forms: str, answer: Answer = GOOD, silent: bool = False) -> Handler:
    """A server that knows these output forms; others it refuses, or answers with prose (`silent`)."""

    def handler(request: dict[str, Any]) -> Answer:
        form = request.get("response_format", {}).get("type", "text")
        if form in forms:
            return answer
        return chat_reply("I like it") if silent else error_reply(400, f"response_format type {form} is not supported")

    return handler


@pytest.mark.parametrize("silent", [False, True])
@pytest.mark.parametrize(("forms", "n"), [(["json_schema"], 1), (["json_object", "text"], 2), (["text"], 3)])
def test_preflight_finds_the_highest_rung_and_later_calls_keep_to_it(forms: list[str], n: int, silent: bool) -> None:
    with openai_server(understands(*forms, silent=silent)) as server:
        judge = make([server.base_url])
        asyncio.run(judge.preflight())
        assert len(server.requests) == n
        grade(judge)
        assert server.requests[-1].json.get("response_format", {}).get("type", "text") == forms[0]
        assert len(server.requests) == n + 1


def test_a_400_that_says_nothing_is_worked_around_at_preflight() -> None:
    def handler(request: dict[str, Any]) -> Answer:
        return error_reply(400, "bad request") if "response_format" in request else GOOD

    with openai_server(handler) as server:
        judge = make([server.base_url])
        asyncio.run(judge.preflight())
        grade(judge)
        assert "response_format" not in server.requests[-1].json


def test_parameters_that_a_model_refuses_are_left_out() -> None:
    def handler(request: dict[str, Any]) -> Answer:
        if "max_tokens" in request:
            return error_reply(400, "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.")
        return error_reply(400, "'temperature' does not support 0") if "temperature" in request else GOOD

    with openai_server(handler) as server:
        judge = make([server.base_url])
        assert grade(judge, "一", "二")[1].usage.calls == 1
        assert server.requests[-1].json["max_completion_tokens"] == 512


def test_preflight_asks_every_endpoint_and_names_the_wrong_one() -> None:
    with (
        openai_server(lambda _: GOOD) as first,
        openai_server(lambda _: error_reply(404, "no model judge-2")) as second,
        pytest.raises(JudgeRejected, match=r"judge-2 at .*HTTP 404"),
    ):
        asyncio.run(make([first.base_url, second.base_url]).preflight())


def test_preflight_warns_of_one_that_is_down_and_fails_when_all_are(caplog: pytest.LogCaptureFixture) -> None:
    with openai_server(lambda _: GOOD) as first, openai_server(lambda _: error_reply(500, "x")) as second:
        asyncio.run(make([first.base_url, second.base_url], attempts=1).preflight())
        assert "judge-2 at" in caplog.text
        with pytest.raises(JudgeUnreachable):
            asyncio.run(make([second.base_url], attempts=1).preflight())


# Limits


@pytest.mark.long
def test_a_server_with_fewer_places_is_not_asked_in_a_tight_loop() -> None:
    lock, open_now = threading.Lock(), 0

    def handler(_: dict[str, Any]) -> Answer:
        """Three at once are too many."""
        nonlocal open_now
        with lock:
            open_now += 1
            crowded = open_now > 2
        time.sleep(0.05)
        with lock:
            open_now -= 1
        return error_reply(429, "busy") if crowded else GOOD

    async def many(judge: LLMJudge) -> None:
        await asyncio.gather(*(judge.grade(item(f"高血压 {n}")) for n in range(40)))

    with openai_server(handler) as server:
        judge = make([server.base_url], concurrency=8, timeout_s=30.0)
        asyncio.run(many(judge))
        assert 40 < len(server.requests) < 40 * 5
    assert server.most_open <= 8


@pytest.mark.long
def test_requests_a_minute_are_kept_over_processes(tmp_path: Path) -> None:
    with openai_server(lambda _: GOOD) as server:
        forked(3, grade_some, server.base_url, tmp_path, 6, {"rpm": 300})
        starts = sorted(request.at_s for request in server.requests)
    assert len(starts) == 18
    # 300 a minute are one every 0.2 s. A stalled machine can hold up one call of each process between its start and the
    # server, and so only three: one of the first four shows when it started.
    assert any(starts[-1] - at >= (17 - n) * 0.2 - 0.3 for n, at in enumerate(starts[:4]))


def test_tokens_a_minute_are_kept_by_what_the_server_counts() -> None:
    reply = {**GOOD, "usage": {"prompt_tokens": 180, "completion_tokens": 20}}
    with openai_server(lambda _: reply) as server:
        grade(make([server.base_url], tpm=60_000), *"一二三四五六")
        first, *_, last = [request.at_s for request in server.requests]
    assert 5 * 0.2 - 0.2 <= last - first < 8  # 200 tokens of 1,000 a second; each start waits for its own estimate


# Budget


@pytest.mark.parametrize(
    ("budget", "n"),
    [(Budget(calls=3), 3), (Budget(tokens=6000), 2), (Budget(cost=0.01), 3)],
    ids=["calls", "tokens", "cost"],
)
def test_a_spent_budget_is_a_fault_and_no_call(budget: Budget, n: int) -> None:
    usage = {"prompt_tokens": 2000, "completion_tokens": 500}  # 0.003 at 1 and 2 a million
    with openai_server(lambda _: {**GOOD, "usage": usage}) as server:
        judge = make([server.base_url], budget=budget)
        with pytest.raises(JudgeBudgetSpent, match=r"reward.judge.budget_\w+ = .* are spent") as caught:
            grade(judge, *"一二三四五六")
        assert caught.value.kind == "judge_budget" and len(server.requests) == n
        assert grade(judge, "一")[0].cached  # what is known costs nothing
        with pytest.raises(JudgeBudgetSpent):
            grade(make([server.base_url], budget=budget, folder=judge._ledger.folder, run="same"), *"七八九十士")


def test_failed_calls_count_but_their_tokens_do_not() -> None:
    with openai_server(lambda _: error_reply(500, "x")) as server:
        judge = make([server.base_url], budget=Budget(calls=100, tokens=100_000), attempts=2)
        with pytest.raises(JudgeUnreachable):
            grade(judge)
        assert judge.spending.spent() == {"calls": 2, "tokens": 0, "cost": 0}


def test_the_preflight_is_charged() -> None:
    with openai_server(lambda _: GOOD) as server:
        judge = make([server.base_url], budget=Budget(calls=100))
        asyncio.run(judge.preflight())
        assert judge.spending.spent()["calls"] == len(server.requests) == 1


def test_the_budget_holds_over_processes(tmp_path: Path) -> None:
    with openai_server(lambda _: GOOD) as server:
        kinds = forked(4, grade_some, server.base_url, tmp_path, 5, {"budget": Budget(calls=7), "run": "r"})
        assert len(server.requests) == 7
        assert sorted(kind for kinds_of_one in kinds for kind in kinds_of_one) == ["judge_budget"] * 13 + ["ok"] * 7


def test_usage_and_cost_of_a_verdict() -> None:
    with openai_server(in_turn(chat_reply("8/10"), GOOD)) as server:
        (verdict, again) = grade(make([server.base_url]), "一", "一")
    assert verdict.usage.model_dump() == {
        "calls": 2, "cache_hits": 0, "prompt_tokens": 14, "completion_tokens": 10, "cost": pytest.approx(34e-6),
    }  # fmt: skip
    assert again.cached and again.usage.cache_hits == 1 and again.usage.tokens == 0


@pytest.mark.parametrize("counted", [10**9, 10**400], ids=["much", "beyond any float"])
@pytest.mark.parametrize("said", [json.dumps(SCORES), ""], ids=["verdict", "empty"])
def test_counts_that_cannot_be_cost_neither_budget_nor_time(counted: int, said: str) -> None:
    """Believed, one such reply would end the run's budget, or stop the endpoint for weeks."""
    lie = {**chat_reply(said), "usage": {"prompt_tokens": counted, "completion_tokens": counted}}
    started_s = time.monotonic()
    with openai_server(in_turn(lie, GOOD)) as server:
        judge = make([server.base_url], tpm=600_000, budget=Budget(tokens=1_000_000))
        verdicts = grade(judge, "一", "二")
    assert [v.overall for v in verdicts] == pytest.approx([0.89, 0.89]) and time.monotonic() - started_s < 10
    assert 0 < judge.spending.spent()["tokens"] < 20_000 and verdicts[0].usage.tokens < 100


@pytest.mark.parametrize("counted", [-1_000_000, "-1", 0.5, [1]])
def test_counts_that_are_none_give_nothing_back_to_the_budget(counted: Any) -> None:
    lie = {**GOOD, "usage": {"prompt_tokens": counted, "completion_tokens": 1}}
    with openai_server(lambda _: lie) as server:
        judge = make([server.base_url], attempts=1, budget=Budget(tokens=1_000_000))
        (verdict,) = grade(judge)
    assert verdict.overall == pytest.approx(0.89) and verdict.usage.tokens == 0
    assert judge.spending.spent()["tokens"] > 100


# Cache


def forked(n: int, work: Any, *args: Any) -> list[Any]:
    """Run `work(queue, k, *args)` in n forked processes, as runners are, and return what each one puts."""
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    children = [context.Process(target=work, args=(queue, k, *args)) for k in range(n)]
    for child in children:
        child.start()
    results = [queue.get(timeout=60) for _ in children]
    for child in children:
        child.join(30)
    return results


def grade_some(queue: Any, k: int, url: str, folder: Path, n: int, options: dict[str, Any]) -> None:
    kinds = []
    for number in range(n):
        try:
            grade(make([url], folder=folder, timeout_s=30.0, **options), f"答案 {k} {number}")
            kinds.append("ok")
        except JudgeFault as fault:
            kinds.append(fault.kind)
    queue.put(kinds)


def grade_together(judge: LLMJudge, n: int) -> list[Verdict | BaseException]:
    async def all_of_them() -> list[Verdict | BaseException]:
        return await asyncio.gather(*(judge.grade(item()) for _ in range(n)), return_exceptions=True)

    return asyncio.run(all_of_them())


def test_the_same_item_four_times_at_once_is_one_call() -> None:
    with openai_server(lambda _: Reply(body=GOOD, pause_s=0.5)) as server:
        verdicts = grade_together(make([server.base_url]), 4)
        assert len(server.requests) == 1
    assert sorted(v.usage.calls for v in verdicts if isinstance(v, Verdict)) == [0, 0, 0, 1]


@pytest.mark.parametrize(("status", "kind"), [(500, JudgeUnreachable), (400, JudgeBadRequest)])
def test_a_fault_is_shared_by_those_who_waited_for_it_and_not_kept(status: int, kind: type[JudgeFault]) -> None:
    with openai_server(in_turn(Reply(status=status, body="x", pause_s=0.5), GOOD)) as server:
        judge = make([server.base_url], attempts=1)
        faults = grade_together(judge, 3)
        assert len(server.requests) == 1
        assert sorted(f.usage.calls for f in faults if isinstance(f, JudgeFault) and type(f) is kind) == [0, 0, 1]
        assert grade(judge)[0].usage.calls == 1


def test_a_rollout_that_is_given_up_takes_no_verdict_from_the_others() -> None:
    async def one_gives_up(judge: LLMJudge) -> Verdict:
        first, second = (asyncio.create_task(judge.grade(item())) for _ in range(2))
        await asyncio.sleep(0.2)
        first.cancel()
        return await second

    with openai_server(lambda _: Reply(body=GOOD, pause_s=0.5)) as server:
        assert asyncio.run(one_gives_up(make([server.base_url]))).overall == pytest.approx(0.89)
        assert len(server.requests) == 1


def killed_while_asking(queue: Any, _k: int, url: str, folder: Path) -> None:
    threading.Timer(0.3, lambda: queue.put("asked")).start()
    grade(make([url], folder=folder, timeout_s=60.0))


def test_a_killed_process_does_not_hold_the_others_up(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    with openai_server(in_turn(HANG, GOOD)) as server:
        queue = context.Queue()
        child = context.Process(target=killed_while_asking, args=(queue, 0, server.base_url, tmp_path))
        child.start()
        queue.get(timeout=30)
        child.kill()
        child.join(30)
        (verdict,) = grade(make([server.base_url], folder=tmp_path))
    assert verdict.overall == pytest.approx(0.89)


def test_verdicts_stay_for_the_next_run_and_depend_on_model_rubric_and_content(tmp_path: Path) -> None:
    with openai_server(lambda _: GOOD) as server:
        for _ in range(2):
            grade(make([server.base_url], folder=tmp_path))
        assert len(server.requests) == 1
        grade(make([server.base_url], folder=tmp_path, language="en"))
        grade(make([server.base_url], folder=tmp_path), "另一个")
        (endpoint,) = make([server.base_url]).endpoints
        grade(LLMJudge(endpoint.model_copy(update={"model": "judge-9"}), folder=tmp_path))
        assert len(server.requests) == 4


def test_a_verdict_of_the_second_endpoint_is_kept_too(tmp_path: Path) -> None:
    with openai_server(lambda _: RESET) as first, openai_server(lambda _: OTHER) as second:
        urls = [first.base_url, second.base_url]
        assert [v.overall for v in grade(make(urls, folder=tmp_path), "一", "一")] == pytest.approx([0.3, 0.3])
        assert len(second.requests) == 1


def test_no_key_is_in_the_folder(tmp_path: Path) -> None:
    with openai_server(lambda _: GOOD) as server:
        grade(make([server.base_url], folder=tmp_path, budget=Budget(calls=9)))
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert KEYS[0].encode() not in written and "用于高血压".encode() not in written


def test_a_folder_that_cannot_be_used_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    (damaged / "judge.db").write_bytes(b"no database" * 1000)
    for folder in (tmp_path / "file", damaged):
        with openai_server(lambda _: GOOD) as server, pytest.raises(JudgeFolderFault, match="cannot be used"):
            grade(make([server.base_url], folder=folder))
        assert not server.requests


@pytest.mark.parametrize(
    "kept",
    [
        "[]",
        '{"criteria": {"accuracy": 7}}',
        '{"verdict": 1}',
        "1",
        json.dumps({"text": "A reply that was read once: {}", "model": "m", "finish_reason": "stop"}),
    ],
)
def test_a_kept_reply_that_is_not_read_any_more_is_asked_for_anew_and_counted(tmp_path: Path, kept: str) -> None:
    with openai_server(lambda _: GOOD) as server:
        judge = make([server.base_url], folder=tmp_path)
        (first,) = grade(judge)
        with sqlite3.connect(tmp_path / "judge.db") as db:
            db.execute("UPDATE kept SET value = ? WHERE key LIKE 'value:%'", [kept])
        db.close()
        again, after = (grade(judge)[0] for _ in range(2))
        assert len(server.requests) == 2 and again.overall == after.overall == first.overall
        assert (again.usage.calls, again.cached, after.usage.calls, after.cached) == (1, False, 0, True)


def test_a_busy_server_that_names_its_time_may_be_asked_as_often_as_the_time_allows() -> None:
    tries = Tries(["one"], timeout_s=1e6, attempts=2)
    pauses = [tries.pause_s(JudgeBusy("busy", 1.0)) for _ in range(1100)]
    assert all(pause is not None and 1 <= pause < 2 for pause in pauses)
