"""Do two texts mean the same mathematics? The comparison is math-verify's, in a child process with hard limits.

Guarantees: no text can hang, bloat or crash this process; what the answer does (too long, over the limit of processor
time or memory) makes it unequal, the same on a busy machine as on an idle one; what the reference or the child's start
does is a MathFault. Usable from any thread; one comparison at a time.
Units in \\text{...}, which math-verify drops, must be the same where both sides name one of UNITS. Not covered: other
units, and 1000 mg for 1 g.
"""

from __future__ import annotations

import atexit
import re
import threading
from dataclasses import dataclass
from pathlib import Path

from foundation.child import Child, Gone
from foundation.errors import AgentGRPOError
from sql_agent.scoring.answer_text import last_boxed

MAX_CHARS = 2000
CPU_S = 5.0  # an ordinary comparison takes 0.01 s; the first one after the start 0.1 s
WALL_S = 60.0  # only for a machine so busy that CPU_S does not pass: then it is a fault
MEMORY_BYTES = 2 << 30
WORKER = Path(__file__).with_name("math_worker.py")  # a file, not a module: -I keeps its folder from hiding packages
MARK = re.compile(r"####[ \t]*([^\n]*)")  # as GSM8K ends its answers
LEAD_IN = re.compile(r"(?:答案|结果|answer|result)(?:\s*(?:是|为|is|:|：|=))+\s*", re.I)
# A $ before a digit does not end a formula: "$9 * 2 = $18" is money.
FORMULA = re.compile(
    r"\$\$([^$]+)\$\$|(?<![\\$])\$(?=\S)([^$]+?)(?<=[^\s\\])\$(?![\d$])|\$[ \n]([^$]+)[ \n]\$(?!\d)"
    r"|\\\(((?:(?!\\\().)+?)\\\)|\\\[((?:(?!\\\[).)+?)\\\]",
    re.S,
)

UNIT_TEXT = re.compile(r"\\(?:text|textrm|mathrm|mbox|rm)\s*\{([^{}]*)\}")
# Each unit in the ways it is written; the first is its name.
UNITS = {
    spelling: unit
    for unit, spellings in {
        **{"kg": "千克 公斤", "g": "克 gram grams", "mg": "毫克", "μg": "微克 ug mcg", "iu": "国际单位"},
        **{"l": "升", "ml": "毫升", "mmol": "毫摩尔", "mol": "摩尔"},
        **{"km": "千米 公里", "m": "米", "cm": "厘米", "mm": "毫米"},
        **{"usd": "dollar dollars 美元 美金", "eur": "euro euros 欧元", "cny": "元 块 人民币 yuan rmb"},
        **{"cent": "cents 美分"},
        **{"s": "秒", "min": "分钟 minute minutes", "h": "小时 hour hours", "d": "天 日 day days"},
    }.items()
    for spelling in [unit, *spellings.split()]
}


class MathFault(AgentGRPOError):
    """No comparison could be made, and the answer is not to blame."""


@dataclass(frozen=True)
class MathVerdict:
    """Whether both are equal; if not, why."""

    equal: bool
    why: str = ""


def candidate(text: str) -> str:
    """What of an answer is compared: what follows its last ####, and of that (or of all) its last box, else its last
    formula, else what follows "answer is", else all.
    """
    if marked := MARK.findall(text):
        text = marked[-1]
    if boxed := last_boxed(text):
        return boxed
    formulas = [next(filter(None, groups), "") for groups in FORMULA.findall(text)]
    rest = formulas[-1] if formulas else LEAD_IN.split(text)[-1]
    return rest.strip().rstrip("。.!！;；")


def units(text: str) -> set[str]:
    r"""The units that stand in \\text{...} and its like."""
    words = [word for inner in UNIT_TEXT.findall(text) for word in re.findall(r"[^\W\d_]+", inner.replace("µ", "μ"))]
    return {UNITS[word.lower()] for word in words if word.lower() in UNITS}


class MathChecker:
    """One child process, started on first use and again after it was killed. Survives a fork by starting its own."""

    def __init__(self, *, cpu_s: float = CPU_S) -> None:
        self._cpu_s = cpu_s
        self._lock = threading.Lock()
        self._child: Child | None = None

    def compare(self, reference: str, answer: str) -> MathVerdict:
        """Compare the candidates of both texts. Raises MathFault."""
        expected, actual = candidate(reference), candidate(answer)
        if len(expected) > MAX_CHARS:
            raise MathFault(f"the reference has {len(expected)} characters; a formula has at most {MAX_CHARS}")
        if len(actual) > MAX_CHARS:
            return MathVerdict(False, f"{len(actual)} characters; a formula has at most {MAX_CHARS}")
        with self._lock:
            verdict = self._ask(expected, actual)
        ours, theirs = units(expected), units(actual)
        if verdict.equal and ours and theirs and ours != theirs:
            return MathVerdict(False, f"the unit is {', '.join(sorted(theirs))}, not {', '.join(sorted(ours))}")
        return verdict

    def _ask(self, expected: str, actual: str) -> MathVerdict:
        child = self._running()
        try:
            readable = child.ask({"reference": expected}, timeout_s=WALL_S)["ok"]
        except Gone as gone:
            self._check_time(gone)
            readable = False
        if not readable:
            raise MathFault(f"the reference {expected[:100]!r} cannot be read as mathematics within its limits")
        try:
            reply = child.ask({"answer": actual}, timeout_s=WALL_S)
        except Gone as gone:
            self._check_time(gone)
            return MathVerdict(False, f"not comparable within {self._cpu_s:g} s of processor time")
        return MathVerdict(reply["equal"], reply["why"])

    def _check_time(self, gone: Gone) -> None:
        """A child that ended did so over its request; one that was waited for in vain is nobody's answer."""
        if gone.kind == "timeout":
            raise MathFault(f"no comparison within {WALL_S:g} s; the machine is too busy") from gone

    def _running(self) -> Child:
        if self._child and not self._child.alive:
            self.close()
        if self._child is None:
            try:
                self._child = Child(["-I", str(WORKER), str(self._cpu_s), str(MEMORY_BYTES)], start_s=WALL_S)
            except Gone as gone:
                self._check_time(gone)
                raise MathFault(
                    "the process that compares mathematics did not start; is math-verify installed?"
                ) from gone
        return self._child

    def close(self) -> None:
        child, self._child = self._child, None
        if child:
            child.kill()


mathematician = MathChecker()  # of this process
atexit.register(mathematician.close)
