"""What a run and an evaluation left, as data frames and pictures. Files are read when asked for: a run may go on."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foundation import run_folder
from foundation.errors import UserError
from foundation.files import read_lines
from sql_agent.config import HOME

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

    from sql_agent.evaluation.results import EvalReport

CURVES = {"train": "rollout/reward_mean", "val": "val/reward_mean"}


@dataclass(frozen=True)
class Plot:
    """A figure that a notebook shows; `figure` is matplotlib's."""

    figure: Figure

    def _repr_png_(self) -> bytes:
        data = io.BytesIO()
        self.figure.savefig(data, format="png", dpi=110, bbox_inches="tight")
        return data.getvalue()

    def save(self, path: str | Path) -> None:
        """Write the picture; its suffix says in which format."""
        self.figure.savefig(path, bbox_inches="tight")


@dataclass(frozen=True)
class Run:
    """A run folder. `Run(folder)` opens any; `Run.newest()` the last one."""

    folder: Path

    def __post_init__(self) -> None:
        object.__setattr__(self, "folder", Path(self.folder).expanduser().resolve())
        if not (self.folder / run_folder.CONFIG).is_file():
            raise UserError(
                f"{self.folder}: no run folder (no {run_folder.CONFIG}); a run prints its folder at its end"
            )

    @classmethod
    def newest(cls, runs: str | Path = "runs") -> Run:
        """The run below `runs` that began last. Raises UserError where there is none."""
        folders = [path.parent for path in (HOME / runs).glob(f"*/{run_folder.CONFIG}")]
        if not folders:
            raise UserError(f"{HOME / runs}: no run there; train one with api.train")
        return cls(max(folders, key=lambda folder: folder.stat().st_mtime))

    @property
    def summary(self) -> dict[str, Any]:
        """summary.json: status, rewards, counts, times. Raises UserError while the run goes on, or was killed."""
        return self._json(run_folder.SUMMARY)

    @property
    def config(self) -> dict[str, Any]:
        """The whole configuration of the run."""
        return self._json(run_folder.CONFIG)

    @property
    def status(self) -> str:
        """finished, interrupted or failed; "" without a summary: it goes on, or was killed."""
        return self.summary["status"] if (self.folder / run_folder.SUMMARY).is_file() else ""

    @property
    def checkpoints(self) -> list[Path]:
        """Its checkpoints, the oldest first."""
        return run_folder.steps_of(self.folder / run_folder.CHECKPOINTS)

    @property
    def report(self) -> Path:
        """The page of the run, made anew. Raises UserError."""
        from sql_agent.run_report.file import write_report

        return write_report(self.folder)

    def metrics(self, kind: str = "") -> pandas.DataFrame:
        """metrics.jsonl, a row for each step, validation and checkpoint; `kind` train, val, checkpoint or probe."""
        return frame(self._rows(run_folder.METRICS, "kind", kind, "checkpoint", "probe")).dropna(
            axis="columns", how="all"
        )

    def rollouts(self, mode: str = "") -> pandas.DataFrame:
        """rollouts.jsonl, a row for each rollout; `mode` train or val. Unscored ones have no reward, and a reason."""
        return frame(self._rows(run_folder.ROLLOUTS, "mode", mode))

    def plot(self) -> Plot:
        """The mean reward by step, in training and on validation questions."""
        figure, axes = _axes("step", "mean reward")
        metrics = read_lines(self.folder / run_folder.METRICS)
        for kind, name in CURVES.items():
            if rows := [row for row in metrics if row["kind"] == kind and name in row]:
                axes.plot([row["step"] for row in rows], [row[name] for row in rows], marker="o", ms=3, label=kind)
        axes.legend()
        return Plot(figure)

    def _rows(self, name: str, key: str, wanted: str, *others: str) -> list[dict[str, Any]]:
        known = ("train", "val", *others)
        if wanted not in ("", *known):
            raise UserError(f"{key} {wanted!r}: there is {', '.join(known)}; leave it out for all rows")
        return [row for row in read_lines(self.folder / name) if wanted in ("", row[key])]

    def _json(self, name: str) -> dict[str, Any]:
        try:
            return json.loads((self.folder / name).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise UserError(f"{self.folder / name}: is not there; the run goes on, or was killed") from None

    def _repr_html_(self) -> str:
        return f"<code>Run {self.folder.name}: {self.status or 'no summary yet'}</code>"


@dataclass(frozen=True)
class Evaluation:
    """A folder of `agentgrpo evaluate`."""

    folder: Path

    @property
    def results(self) -> EvalReport:
        """All figures, typed."""
        from sql_agent.evaluation.folder import RESULTS
        from sql_agent.evaluation.results import EvalReport

        return EvalReport.read(self.folder / RESULTS)

    @property
    def rewards(self) -> pandas.DataFrame:
        """Mean reward with its 95 % interval, by model, split and decoding; unscored trials are in none."""
        return frame(
            {
                "model": model,
                "split": key.rpartition("/")[0],
                "decoding": key.rpartition("/")[2],
                "reward": reward.mean,
                "low": reward.low,
                "high": reward.high,
                "questions": reward.n,
                "unscored": sum(figures.unscored.values()),
            }
            for model, of_model in self.results.models.items()
            for key, figures in of_model.items()
            for reward in [figures.measures["reward"]]
        )

    def trials(self) -> pandas.DataFrame:
        """A row for each episode."""
        from sql_agent.evaluation.folder import TRIALS

        return frame(read_lines(self.folder / TRIALS))

    def plot(self) -> Plot:
        """The mean rewards with their intervals."""
        rows = self.rewards
        figure, axes = _axes("", "mean reward")
        names = ["\n".join(texts) for texts in rows[["model", "split", "decoding"]].to_numpy()]
        errors = [rows.reward - rows.low, rows.high - rows.reward]
        axes.bar(names, rows.reward, yerr=errors, capsize=4, color="#4c78a8")
        return Plot(figure)


def frame(rows: Any) -> pandas.DataFrame:
    """A data frame of rows. Raises UserError where pandas is not installed."""
    try:
        import pandas
    except ModuleNotFoundError:
        raise UserError("pandas is not installed, and data frames are its; pip install pandas") from None
    return pandas.DataFrame.from_records(list(rows))


def _axes(x: str, y: str) -> tuple[Figure, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.2))
    axes = figure.add_subplot()
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(alpha=0.3)
    return figure, axes
