"""The report while a run goes: the same page over HTTP, with the latest groups and rollouts, and a search over all.

Guarantees: it reads the run's files and nothing else, so the run does not know of it: new lines of rollouts.jsonl once,
the pictures drawn anew when metrics.jsonl has grown; where files go or are made anew it answers 503 once and reads them
again; what a model wrote is escaped, and the page may ask this address alone. On this machine a page of another name
(DNS rebinding) is refused. Not covered: TLS.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from foundation import run_folder
from foundation.console import duration
from foundation.errors import UserError
from foundation.grouping import grouped
from foundation.http_gate import Gate, RequestMetrics, Traffic
from sql_agent.evaluation.folder import RESULTS
from sql_agent.run_report import facts, page
from sql_agent.run_report.cases import transcript
from sql_agent.run_report.folder import EVALUATION, Entry, read_run, rollouts_after

logger = logging.getLogger(__name__)
MOST_GROUPS, MOST_ROLLOUTS, MOST_SIDES = 8, 30, 16
MAX_BODY_BYTES, BODY_TIMEOUT_S = 1024, 5.0
DRAWN = (run_folder.SUMMARY, run_folder.CONFIG, run_folder.METRICS, f"{EVALUATION}/{RESULTS}")


@dataclass(frozen=True)
class Group:
    """The rollouts of one question in one step; `numbers` are their places in rollouts.jsonl."""

    step: int
    numbers: list[int]
    entries: list[Entry]

    @property
    def question(self) -> str:
        return self.entries[0].record().question

    @property
    def rewards(self) -> list[float]:
        return [entry.reward for entry in self.entries if entry.reward is not None]

    @property
    def mean(self) -> float | None:
        return fmean(self.rewards) if self.rewards else None


class LiveRun:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.forget()
        self.run = read_run(folder, played=self._follow())

    def forget(self) -> None:
        """Read everything again from now on."""
        self._drawn = ("unread", "")
        self._rollouts: list[Entry] = []
        self._read_to = 0
        self._sought = ""
        self._hits = deque[int](maxlen=MOST_ROLLOUTS)
        self._searched = 0

    @property
    def version(self) -> str:
        """Another one when the page has to be drawn anew."""
        files = [self._folder / name for name in DRAWN]
        return "-".join(f"{file.stat().st_mtime_ns}.{_size(file)}" for file in files if file.is_file())

    def page(self) -> str:
        """The page, drawn anew where a file that it shows has changed."""
        version = self.version
        if self._drawn[0] != version:
            self.run = read_run(self._folder, played=self._follow())
            self._drawn = version, page.render(page.build(self.run), pngs=[], live=version)
        return self._drawn[1]

    def _follow(self) -> list[Entry]:
        if _size(self._folder / run_folder.ROLLOUTS) < self._read_to:  # the file was made anew
            self.forget()
        new_rollouts, self._read_to = rollouts_after(self._folder, self._read_to, [])
        self._rollouts += new_rollouts
        return self._rollouts

    def now(self, words: str) -> str:
        """What is newest: how far the run is, groups of the last step, and the rollouts that hold `words`."""
        rollouts = self._follow()
        return page.filled(
            "now.html.j2",
            line=self._line(),
            groups=_groups(rollouts),
            rollouts=[(n, rollouts[n], rollouts[n].record()) for n in self._matching(words)],
            n_rollouts=len(rollouts),
            words=words,
        )

    def _matching(self, words: str) -> list[int]:
        """The newest rollouts whose line holds the words, whatever their case. Each line is searched once."""
        sought = json.dumps(words, ensure_ascii=False)[1:-1].casefold()
        if sought != self._sought:
            self._sought, self._searched = sought, 0
            self._hits.clear()
        for n in range(self._searched, len(self._rollouts)):
            if not sought or sought in self._rollouts[n].line().decode(errors="replace").casefold():
                self._hits.append(n)
        self._searched = len(self._rollouts)
        return list(reversed(self._hits))

    def _line(self) -> str:
        """Status, steps, and how long it may take yet: the mean step so far times those left."""
        done, planned = facts.steps(self.run)
        line = f"{facts.status(self.run)}, step {done}" + (f" of {planned}" if planned else "")
        took = [row["seconds"] for row in self.run.rows("train")[-10:] if "seconds" in row]
        if took and planned > done and not self.run.summary:
            line += f", about {duration(fmean(took) * (planned - done))} left at {fmean(took):.1f} s a step"
        return line

    def transcripts(self, numbers: list[int]) -> str:
        """Rollouts side by side. Raises IndexError for a number that is none."""
        rollouts = self._follow()
        if not numbers or not all(0 <= n < len(rollouts) for n in numbers):
            raise IndexError(numbers)
        shown = numbers[:MOST_SIDES]
        sides = [transcript(f"rollout {n}", rollouts[n]) for n in shown]
        return page.filled("sides.html.j2", sides=sides, left=len(numbers) - len(shown))


def _size(file: Path) -> int:
    return file.stat().st_size if file.is_file() else 0


def _groups(rollouts: list[Entry]) -> list[Group]:
    """The groups of the latest step, those with the widest rewards first: they teach most."""
    played = [(n, entry) for n, entry in enumerate(rollouts) if entry.side == "train" and entry.group]
    last = max((entry.step for _, entry in played), default=0)
    numbers = grouped((n for n, entry in played if entry.step == last), lambda n: rollouts[n].group)
    groups = [Group(last, of_group, [rollouts[n] for n in of_group]) for of_group in numbers.values()]
    groups.sort(key=lambda group: min(group.rewards, default=0.0) - max(group.rewards, default=0.0))
    return groups[:MOST_GROUPS]


class LiveView:
    def __init__(self, folder: Path) -> None:
        self._live = LiveRun(folder)
        self._one = threading.Lock()  # one reader of the files at a time: Starlette answers in threads

    def _page(self, _: Request) -> Response:
        with self._one:
            return HTMLResponse(self._live.page())

    def _now(self, request: Request) -> Response:
        with self._one:
            body = self._live.now(request.query_params.get("q", "")[:200].strip())
            return HTMLResponse(body, headers={"X-Page": self._live.version})

    def _transcripts(self, request: Request) -> Response:
        try:
            numbers = [int(n) for n in request.query_params.getlist("n")]
            with self._one:
                return HTMLResponse(self._live.transcripts(numbers))
        except (ValueError, IndexError):
            return JSONResponse({"detail": "n must be numbers of rollouts"}, status_code=404)

    def app(self, traffic: Traffic, *, token: str, local: bool) -> Starlette:
        """The ASGI application; `local`: nobody but this machine asks, by its own names."""
        paths = {"/": self._page, "/now": self._now, "/transcripts": self._transcripts}
        gate = Middleware(
            Gate,
            token=token,
            open_paths=frozenset(),
            known_paths=frozenset(paths),
            max_body_bytes=MAX_BODY_BYTES,
            body_timeout_s=BODY_TIMEOUT_S,
            metrics=RequestMetrics("live_report"),
            traffic=traffic,
        )

        def unread(_request: Request, exc: Exception) -> Response:
            with self._one:
                self._live.forget()
            why = f"a file of the run cannot be read ({exc!r:.300}). Ask again if it was just made anew, else mend it"
            logger.warning("%s", why)
            return JSONResponse({"detail": why}, status_code=503)

        names = ["localhost", "127.0.0.1", "[::1]"] if local else ["*"]
        trusted_hosts = Middleware(TrustedHostMiddleware, allowed_hosts=names)
        return Starlette(
            routes=[Route(path, route) for path, route in paths.items()],
            middleware=[trusted_hosts, gate],
            exception_handlers=dict.fromkeys((OSError, ValueError, UserError), unread),
        )
