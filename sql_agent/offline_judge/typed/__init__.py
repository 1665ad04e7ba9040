"""Short answers: the truth is a number, a date, yes or no, a name, or several, and the answer a sentence of any words.

1. `truths` reads from a query's rows (or a reference) which values the question asks for, `columns` from which columns.
   A status, or two numbers that are compared, may be a yes or a no: `verdicts_of_cells`.
2. `wordings` brings the answer to the form that the question asks for (a unit, a share, "none" for 0), `forms` lists
   the ways to say each value. `asides` cuts what only says more of the same thing.
3. A yes or no is what all clauses say of the question's words: `yes_no`.
4. Of other values `reading` finds those that the answer tells, in their order, and goes through its clauses. One that
   tells a value may hold a few other words; any other has to be a frame (courtesy, a source, the question again).
5. What speaks against the answer: a doubt or a denial (`doubted`), another name or thing in the place of one that the
   question has (`replaced`), another value (`rivals`), values of rows exchanged (`exchanged_rows`).
6. `grading` pays 1 or 0, of a list or a set F1 of the values told.

Texts are in the normal form of `values.plain`, a `question` too, but where they are called raw.
Guarantees: pure functions, linear in the text. Not covered: a doubt in words of no list.
"""

from sql_agent.offline_judge.typed.grading import typed_value
from sql_agent.offline_judge.typed.truths import Truth, is_value, kind_of_cells, kind_of_texts, truth_of

__all__ = ["Truth", "is_value", "kind_of_cells", "kind_of_texts", "truth_of", "typed_value"]
