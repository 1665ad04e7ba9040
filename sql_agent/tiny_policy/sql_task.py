"""The task of the bundled agent: questions about medicine, answered by SQL."""

from __future__ import annotations

from sql_agent.tiny_policy.corpus import Corpus, load_corpus
from sql_agent.tiny_policy.demos import TOOLS, Demonstrator, Flaws
from sql_agent.tiny_policy.task import AGENT, HERE, Lesson, Settings, TinyTask
from sql_agent.tiny_policy.tokenizer import SQL_FRAMES

FLAWS = Flaws(wrong_column=0.6, first_fact_only=0.8)
CODE = ("asking", "corpus", "demos", "sql_task")
# Eleven times the usual queries: where a name ends in a wording that was never shown takes long to learn.
SETTINGS = Settings(query_steps=2500)
ABOUT = f"""The demonstrator is flawed on purpose. It mostly reads the column of general remarks instead of the one
  asked for ({FLAWS.wrong_column:.0%}), and often stops at the first fact ({FLAWS.first_fact_only:.0%}). GRPO is there
  to correct that; its gain here says nothing of larger models.
- It knows no medicine and understands little beyond the phrasings it was shown. It is not a medical model; do not use
  its output for decisions about health."""


def lesson_of(corpus: Corpus) -> Lesson:
    """The lesson over these words."""
    return Lesson(
        texts=[*corpus.texts, *corpus.everyday],
        frames=SQL_FRAMES,
        tools=TOOLS,
        teacher=lambda rng, flawed: Demonstrator(corpus, rng, FLAWS if flawed else Flaws()),
        settings=SETTINGS,
    )


TASK = TinyTask(
    name="medical SQL agent",
    sources=[
        *sorted((AGENT / "data").glob("source/*/*.yaml")),
        *(AGENT / "data" / "templates.yaml", AGENT / "prompts" / "system_short.txt", HERE / "words.yaml"),
        AGENT / "curation" / "frequency.txt.gz",
        *(HERE / f"{name}.py" for name in CODE),
    ],
    shipped=HERE / "shipped",
    about=ABOUT,
    learn=lambda: lesson_of(load_corpus()),
    language="zh",
)
