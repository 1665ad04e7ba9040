"""The faults of judging, as one small tree.

JudgeFault               no verdict: the item stays unscored (it is never a 0)
 |-- JudgeUnreachable    connection refused, timeout, 5xx, rate limit that outlasts the budget
 |-- JudgeRejected       401, 403, 404: wrong key, address or model name; found at preflight
 +-- JudgeUnparsable     an answer came, but no valid verdict could be read from it
"""

from __future__ import annotations


class JudgeFault(Exception):
    """No verdict could be had. `kind` is the short name counted in run summaries."""

    kind = "judge_fault"


class JudgeUnreachable(JudgeFault):
    """The endpoint did not answer in time, or answered with a server error."""

    kind = "judge_unreachable"


class JudgeRejected(JudgeFault):
    """The endpoint refuses this key, address or model: no retry can help."""

    kind = "judge_rejected"


class JudgeUnparsable(JudgeFault):
    """The endpoint answered, but not with a verdict of the agreed form."""

    kind = "judge_unparsable"
