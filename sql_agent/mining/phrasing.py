"""Mined questions in the words of a language model.

Guarantees: a question takes the model's words only where they keep its values and figures, where the answer can still
be graded, and where the same model, shown these words and the tables alone, writes SQL that finds the reference's rows;
every other question keeps its own words, and the reasons are counted. An endpoint that fails FAULTS times on end is
asked no more. What was asked stands in a file, so that a command that was killed does not ask it again.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path

from foundation.files import append_lines
from reward_client import JudgeEndpoint, JudgeFault
from reward_client.client import post_chat
from sql_agent.environment.database import Database
from sql_agent.mining.questions import Mined, database_of, unfit, without_leaks
from sql_agent.mining.recipe import long_prompt
from sql_agent.mining.schema import Schema, is_sayable
from sql_agent.mining.state import Settled
from sql_agent.records import Question
from sql_agent.scoring.result_match import is_ordered, same_results

AT_ONCE, TIMEOUT_S, FAULTS, MAX_CHARS = 8, 60.0, 5, 400
FAILED = "no answer of the endpoint"
SAY = {
    "en": "Say this question as a person would who knows the subject and not the database. Keep every name, number and "
    "date exactly as it is written, and what is asked. Reply with the question alone.\n\n{question}",
    "zh": "请像熟悉业务、不了解数据库的人那样重新表述这个问题。名称、数字和日期必须原样保留，所问内容不变。"
    "只回复问题本身。\n\n{question}",
}
READ = "\n\nCall no tool: reply with the SELECT alone. Round averages, and sums of fractions, to two places in SQL.\n\n"


@dataclass
class Phraser:
    """Asks one endpoint. `why` counts what became of questions, "" for phrased ones; `ended`: its last fault."""

    endpoint: JudgeEndpoint
    language: str
    tables: str
    database: Database
    file: Path
    why: Counter[str] = field(default_factory=Counter[str])
    ended: str = ""
    _faults: int = 0

    async def all(self, questions: list[Question]) -> list[Question]:
        """The questions, those that pass in new words."""
        room = asyncio.Semaphore(AT_ONCE)
        lines = self.file.read_text(encoding="utf-8").splitlines() if self.file.is_file() else []
        answers = {line["question"]: (line["text"], line["why"]) for line in map(json.loads, lines)}

        async def phrase(question: Question) -> Question:
            async with room:
                text, why = answers.get(question.question) or await self._ask(question)
            self.why[why] += 1
            return question if why else question.model_copy(update={"question": text})

        return await asyncio.gather(*map(phrase, questions))

    async def _ask(self, question: Question) -> tuple[str, str]:
        if self._faults >= FAULTS:
            return "", FAILED
        try:
            text = (await self._reply(SAY[self.language].format(question=question.question))).strip().strip('"')
            why = await self._refusal(question, text)
        except JudgeFault as exc:
            self._faults, self.ended = self._faults + 1, str(exc)
            return "", FAILED
        self._faults = 0
        append_lines(self.file, [{"question": question.question, "text": text, "why": why}])
        return text, why

    async def _reply(self, text: str) -> str:
        payload = {"messages": [{"role": "user", "content": text}]}
        return (await post_chat(self.endpoint, payload, timeout_s=TIMEOUT_S)).text

    async def _refusal(self, question: Question, text: str) -> str:
        """Why the new words are none of this question, or ""."""
        if len(text) > MAX_CHARS or not is_sayable(text):
            return "not one line of text"
        figures = [sorted(re.findall(r"\d+", words)) for words in (question.question, text)]
        if figures[0] != figures[1] or any(str(value) not in text for value in question.meta["values"]):
            return "a value that is lost or new"
        wanted = await self.database.query(question.sql[0])
        if why := unfit(text, wanted):
            return why
        result = await self.database.query(await self._reply(f"{self.tables}{READ}{text}"))
        same = result.ok and same_results(wanted.rows, result.rows, ordered=is_ordered(question.sql[0]))
        return "" if same else "words that lead to another result"


def phrased(mined: Mined, schema: Schema, settled: Settled, endpoint: JudgeEndpoint, *, file: Path) -> Mined:
    """The same questions in the endpoint's words where these pass; `phrased` says how many. Raises DatabaseFault."""
    with database_of(schema, settled.database) as database:
        phraser = Phraser(endpoint, settled.language, long_prompt(schema, settled), database, file)
        every = asyncio.run(phraser.all([question for split in mined.splits.values() for question in split]))
    remaining = iter(every)
    splits = {name: [next(remaining) for _ in split] for name, split in mined.splits.items()}
    reasons = ", ".join(f"{n} x {why}" for why, n in phraser.why.most_common() if why)
    summary = f"in the words of {endpoint.model}: {phraser.why['']} of {len(every)}"
    if reasons:
        summary += f"; in their own: {reasons}"
    if phraser.ended:
        summary += f" ({phraser.ended})"
    return replace(mined, splits=without_leaks(splits, mined.dropped), phrased=summary)
