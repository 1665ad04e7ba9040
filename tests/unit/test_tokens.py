"""Token ids as bytes and as lists: the same rows, batches and audit, whatever the calls of a rollout; broken chains."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from typing import Any

import pytest
from agentlightning.adapter.triplet import LlmProxyTraceToTriplet
from agentlightning.types import Attempt, Rollout, Span
from hypothesis import given
from hypothesis import strategies as st

from agl_plugin.audit import schema
from agl_plugin.audit.facts import rollout_rows
from agl_plugin.audit.schema import stored_calls, unpack
from agl_plugin.audit.spans import seen_rollout
from agl_plugin.proxy import tokens
from agl_plugin.proxy.answers import Request
from agl_plugin.proxy.spans import CALL_SPAN
from agl_plugin.proxy.tokens import Packer, Prompt
from agl_plugin.update.adapter import n_missing, read_calls, scored_calls
from agl_plugin.update.batch import build_batch
from tests.spans import reward_span, span

Json = dict[str, Any]


def answers(rng: random.Random, n: int) -> list[Json]:
    """A rollout's answers in the order in which they came: histories that go on, were rewritten from some place on,
    begin anew, and several at once that go on from the same."""
    made: list[Json] = []
    histories: list[list[int]] = [[]]
    for number in range(n):
        history = rng.choice(histories[-3:])
        kept = rng.choice([len(history), len(history), rng.randint(0, len(history)), 0])
        prompt = history[:kept] + [rng.randrange(2**32) for _ in range(rng.randint(0 if kept else 1, 4))]
        sampled = [rng.randrange(5) for _ in range(rng.randint(1, 3))]
        given = [{"logprob": -rng.random() * 30} for _ in sampled]
        choice = {"index": 0, "token_ids": sampled, "message": {"role": "assistant", "content": "说"}}
        choice |= {"finish_reason": rng.choice(["stop", "length"]), "logprobs": {"content": given} if kept else None}
        made.append({"id": f"c{number}", "prompt_token_ids": prompt, "choices": [choice]})
        histories.append(prompt + sampled)
    return made


def spans_of(made: list[Json], *, packs: bool, rng: random.Random) -> list[Span]:
    """As the gateway writes them; the store numbers some that came together in the order of their starts."""
    packer = Packer()
    body = {"messages": [{"role": "user", "content": "q" * 500}], "temperature": 1.0}
    request = Request(body, True, "ro-1", (lambda answer: packer.packed("at-1", answer)) if packs else None)
    order = sorted(range(len(made)), key=lambda place: place + rng.random() * 2)
    found = [span(CALL_SPAN, request.notes(answer), seq=order.index(n)) for n, answer in enumerate(made)]
    return [*found, reward_span(0.5, seq=len(made) + 1, n_calls=len(made))]


@pytest.mark.long
@given(st.integers(0, 10**9), st.integers(1, 12), st.booleans())
def test_rows_batches_and_audit_are_the_same_in_both_forms(seed: int, n: int, merge: bool) -> None:
    rng = random.Random(seed)
    made = answers(rng, n)
    given: list[Any] = []
    for packs in (False, True):
        spans = spans_of(made, packs=packs, rng=random.Random(seed))
        assert packs == all(tokens.NEW in (one.attributes or {}) for one in spans[:-1])
        rng.shuffle(spans)
        calls = scored_calls(spans)
        told: dict[str, Any] = {"max_prompt_tokens": 9, "max_response_tokens": 14, "pad_id": 0}
        rollouts: Any = {"a": ("q", 0.5, calls), "b": ("q", 0.25, calls[:1])}
        batch = build_batch(rollouts, merge=merge, **told)
        given.append((calls, batch, audited(spans, calls)))
    (plain, one, kept), (packed, other, kept_packed) = given
    by_id = {call.facts["response_id"]: call for call in packed}
    for call in plain:
        same = by_id[call.facts["response_id"]]
        assert list(call.prompt) == list(same.prompt) and call.sampled == same.sampled
        assert (call.log_probs, call.finish_reason) == (same.log_probs, same.finish_reason)
    assert list(one.data.batch.keys()) == list(other.data.batch.keys())
    for name, values in one.data.batch.items():
        assert values.numpy().tobytes() == other.data.batch[name].numpy().tobytes(), name
    assert str(one.rows) == str(other.rows) and str(one.metrics) == str(other.metrics)
    assert kept == kept_packed
    wanted = {answer["id"]: (answer["prompt_token_ids"], answer["choices"][0]["token_ids"]) for answer in made}
    assert {name: call[:2] for name, call in kept.items()} == wanted


def audited(spans: list[Span], calls: list[Any]) -> dict[str, Any]:
    """The calls of the rollout as an audit file gives them back."""
    attempt = Attempt(attempt_id="at-1", rollout_id="ro-1", sequence_id=1, start_time=0.0, status="succeeded")
    rollout = Rollout(rollout_id="ro-1", input={}, start_time=0.0, status="succeeded")
    with closing(sqlite3.connect(":memory:")) as file:
        file.row_factory = sqlite3.Row
        schema.make(file)
        seen = seen_rollout(rollout, [attempt], spans, calls)
        schema.add(file, rollout_rows([seen], {"ro-1": {}}, run_id="run"), step=1)
        return {
            row["response_id"]: (prompt, unpack(row["sampled_ids"]), row["log_probs"])
            for row, prompt in stored_calls(file, "at-1")
        }


def a_chain() -> list[Span]:
    """Three calls, each of which goes on from the one before."""
    prompts = [[1, 2], [1, 2, 3, 4], [1, 2, 3, 4, 5, 6]]
    made: list[Json] = [
        {"id": f"c{n}", "prompt_token_ids": ids, "choices": [{"token_ids": [ids[-1] + 1]}]}
        for n, ids in enumerate(prompts)
    ]
    return spans_of(made, packs=True, rng=random.Random(0))


def test_the_audit_keeps_a_prompt_whole_where_the_call_before_is_not_kept() -> None:
    calls = scored_calls(a_chain())
    assert audited([], calls[2:]) == {"c2": ([1, 2, 3, 4, 5, 6], [7], None)}
    assert audited([], calls[1:])["c2"] == ([1, 2, 3, 4, 5, 6], [7], None)


def changed(**told: Any) -> Any:
    def change(spans: list[Span]) -> None:
        assert spans[1].attributes is not None
        spans[1].attributes.update({getattr(tokens, name): value for name, value in told.items()})

    return change


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda spans: spans.pop(1), "call c2 goes on from call c1, which is not there"),
        (changed(AFTER="c2"), "goes on from itself"),
        (changed(AFTER="c1"), "call c1 goes on from itself"),
        (changed(SHARED=4), "call c1 shares 4 tokens with call c0, which has 3"),
        (changed(SHARED=-1), "shares -1 tokens"),
        (changed(SHARED="3"), "must be numbers"),
        (changed(NEW=tokens.pack(tokens.array_of([9]))), "the prompt of call c1 is not the one that was packed"),
        (changed(SAMPLED=tokens.pack(tokens.array_of([9]))), "the prompt of call c2 is not the one that was packed"),
        (changed(NEW="!"), "base64"),
        (changed(NEW="AAAA"), "buffer size"),
        (changed(LOG_PROBS=7), "int in the place of packed numbers"),
    ],
)
def test_a_broken_chain_leaves_the_rollout_out_by_name(change: Any, why: str) -> None:
    spans = a_chain()
    assert len(scored_calls(spans)) == 3 and not n_missing(spans)
    change(spans)
    calls, told = read_calls(spans)
    assert calls == [] and why in told
    assert scored_calls(spans[:-1] + [reward_span(0.5, seq=9)]) == []
    assert n_missing(spans) == ("not there" in why)


def test_agent_lightnings_own_reader_takes_plain_spans() -> None:
    spans = spans_of(answers(random.Random(1), 4), packs=False, rng=random.Random(0))
    theirs, ours = LlmProxyTraceToTriplet().adapt(spans), scored_calls(spans)
    assert len(theirs) == 4
    for one, other in zip(theirs, ours, strict=True):
        assert (one.prompt["token_ids"], one.response["token_ids"]) == (list(other.prompt), other.sampled)


def test_a_gateway_that_was_started_again_begins_with_a_whole_prompt() -> None:
    answer: Json = {"id": "c0", "prompt_token_ids": [1, 2], "choices": [{"token_ids": [3]}]}
    later = {**answer, "id": "c1", "prompt_token_ids": [1, 2, 3, 4]}
    one, fresh = Packer(), Packer()
    assert tokens.AFTER not in one.packed("at-1", answer) and one.packed("at-1", later)[tokens.AFTER] == "c0"
    assert tokens.AFTER not in fresh.packed("at-1", later) and tokens.AFTER not in one.packed("at-2", later)


def test_what_a_gateway_remembers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "MOST_TOKENS", 10)
    packer = Packer()
    answer: Json = {"id": "c0", "prompt_token_ids": [1, 2, 3], "choices": [{"token_ids": [4]}]}
    for attempt in ("a", "b", "c"):
        packer.packed(attempt, answer)
    assert tokens.AFTER not in packer.packed("a", answer) and packer.packed("c", answer)[tokens.AFTER] == "c0"


@pytest.mark.parametrize(
    "change",
    [
        {"prompt_token_ids": None}, {"prompt_token_ids": []}, {"prompt_token_ids": [2**32]},
        {"prompt_token_ids": ["1"]}, {"prompt_token_ids": [1.5]}, {"id": None}, {"choices": []},
        {"choices": [{"token_ids": [1]}, {"token_ids": [2]}]}, {"choices": [{}]},
        {"choices": [{"token_ids": [1], "logprobs": {"content": [{"logprob": float("nan")}]}}]},
    ],
)  # fmt: skip
def test_what_cannot_be_packed_is_written_as_it_came(change: Json) -> None:
    answer: Json = {"id": "c0", "prompt_token_ids": [1], "choices": [{"token_ids": [2]}]}
    assert Packer().packed("at", answer) and Packer().packed("at", answer | change) == {}


def test_packed_spans_grow_with_what_is_new() -> None:
    """Neither messages nor lists of ids are in them."""
    size = {packs: [len(s.model_dump_json()) for s in long_spans(packs)] for packs in (False, True)}
    assert size[True][-1] < 1.1 * size[True][1] and size[False][-1] > 3 * size[False][1]


def long_spans(packs: bool) -> list[Span]:
    ids = [[*range(100_000, 100_100 + 50 * n)] for n in range(20)]
    made: list[Json] = [
        {"id": f"c{n}", "prompt_token_ids": one, "choices": [{"token_ids": [7]}]} for n, one in enumerate(ids)
    ]
    return spans_of(made, packs=packs, rng=random.Random(0))[:-1]


def test_a_prompt_is_a_sequence_of_ints() -> None:
    one = Prompt.of([1, 2, 3], [4])
    two = Prompt.of([1, 2, 3, 4, 5, 6], [7], before=one)
    assert (two.n_shared, list(two.new), len(two), two[-1], two[4:], two[2:5], two[::-2]) == (
        4, [5, 6], 6, 6, [5, 6], [3, 4, 5], [6, 4, 2],
    )  # fmt: skip
    assert two == [1, 2, 3, 4, 5, 6] and [*two] == two[:] and Prompt.of(two, [7]) is two and two[9:] == []
