"""The sources become the documented tables, byte for byte the same each time, or an error that names entries."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from foundation.errors import UserError
from sql_agent.data.build_database import build_database

DRUG = {
    "med_name": "甲药",
    "component": "甲酸盐",
    "form": ["片剂", "胶囊剂"],
    "dosage": ["每次1片"],
    "indication": ["高血压", "心绞痛"],
    "adverse_reactions": ["恶心"],
    "contraindications": ["对本品过敏"],
    "precautions": ["孕妇慎用"],
    "drug_interactions": ["与乙药合用增强作用"],
    "mechanism_action": "阻断受体。",
    "description": "一种药。",
    "cate_name": "降压药",
    "storage": ["密封"],
    "pack": "5mg/片",
    "company_name": None,
}
DISEASE = {
    "disease_name": "甲病",
    "overview": "一种病。",
    "clinical_manif": ["头痛"],
    "complication": ["脑出血"],
    "epidemiology": "常见。",
    "examination": ["量血压"],
    "treatment": ["服药"],
    "cause": ["遗传"],
    "diagnosis": ["血压升高"],
    "differ_diag": ["乙病"],
    "prevention": ["限盐"],
    "prognosis": "良好。",
}


def write_sources(folder: Path, drugs: Any = None, diseases: Any = None) -> Path:
    for name, content in (("drugs", [DRUG] if drugs is None else drugs), ("diseases", diseases or [DISEASE])):
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / "a.yaml").write_text(yaml.safe_dump(content, allow_unicode=True), encoding="utf-8")
    return folder


def read(path: Path, sql: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as db:
        return db.execute(sql).fetchall()


def test_columns_are_the_documented_ones(tmp_path: Path) -> None:
    build_database(write_sources(tmp_path / "s"), tmp_path / "m.db")
    drugs = (
        "id med_name med_name_initial med_barcode med_approval component form dosage indication adverse_reactions "
        "contraindications precautions company_name description mechanism_action cate_name drug_interactions storage "
        "pack period approve_code status created_at"
    )
    diseases = (
        "id disease_name overview clinical_manif complication epidemiology examination treatment cause diagnosis "
        "differ_diag prevention prognosis create_at update_at"
    )
    assert [row[1] for row in read(tmp_path / "m.db", "PRAGMA table_info(drugs_info)")] == drugs.split()
    assert [row[1] for row in read(tmp_path / "m.db", "PRAGMA table_info(disease)")] == diseases.split()
    tables = read(tmp_path / "m.db", "SELECT name FROM sqlite_master ORDER BY name")
    assert tables == [("disease",), ("drugs_info",)]


def test_cells(tmp_path: Path) -> None:
    build_database(write_sources(tmp_path / "s"), tmp_path / "m.db")
    columns = "id, med_name_initial, form, indication, company_name, status, med_barcode, med_approval, period"
    assert read(tmp_path / "m.db", f"SELECT {columns}, approve_code FROM drugs_info") == [
        (1, "JY", "片剂；胶囊剂", "高血压；心绞痛", None, 1, None, None, None, None)
    ]
    assert read(tmp_path / "m.db", "SELECT overview, cause FROM disease") == [("一种病。", "遗传")]


def test_ids_follow_file_name_and_position(tmp_path: Path) -> None:
    source = write_sources(tmp_path / "s", [DRUG | {"med_name": "乙药"}, DRUG | {"med_name": "丙药"}])
    early = yaml.safe_dump([DRUG | {"med_name": "丁药"}], allow_unicode=True)
    (source / "drugs" / "A.yaml").write_text(early, encoding="utf-8")
    build_database(source, tmp_path / "m.db")
    names = read(tmp_path / "m.db", "SELECT id, med_name FROM drugs_info ORDER BY id")
    assert names == [(1, "丁药"), (2, "乙药"), (3, "丙药")]


def test_same_sources_give_the_same_bytes(tmp_path: Path) -> None:
    source = write_sources(tmp_path / "s")
    for name in ("one.db", "two.db", "one.db"):
        build_database(source, tmp_path / name)
    assert (tmp_path / "one.db").read_bytes() == (tmp_path / "two.db").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.db", "s", "two.db"]


@pytest.mark.parametrize(
    ("drugs", "message"),
    [
        ([{k: v for k, v in DRUG.items() if k != "pack"}], r"a\.yaml entry 1 \(甲药\): pack is missing"),
        ([DRUG | {"colour": "red"}], "colour is unknown"),
        ([DRUG, DRUG], r"entry 2 \(甲药\): the name is a duplicate"),
        ([DRUG, DRUG | {"med_name": "复方甲药"}], "the name is a part of '复方甲药'"),
        ([DRUG | {"med_name": "甲病"}], "the name is a duplicate"),
        ([DRUG | {"form": ["片剂；胶囊剂"]}], "form holds '片剂；胶囊剂'"),
        ([DRUG | {"description": "一；二"}], "description holds"),
        ([DRUG | {"form": []}], "at least one item"),
        ([DRUG | {"form": "片剂"}], "must be a list"),
        ([DRUG | {"form": [5]}], "form holds 5; every item must be a trimmed, quoted text"),
        ([DRUG | {"form": ["片剂", "片剂"]}], "repeats '片剂'"),
        ([DRUG | {"pack": None}], "pack holds None"),
        (["甲药"], "expected a mapping"),
        ({"med_name": "甲药"}, "expected a list"),
    ],
)
def test_faulty_sources_are_named(tmp_path: Path, drugs: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        build_database(write_sources(tmp_path / "s", drugs), tmp_path / "m.db")
    assert not (tmp_path / "m.db").exists()


def test_all_faults_at_once_and_the_old_file_stays(tmp_path: Path) -> None:
    build_database(write_sources(tmp_path / "s"), tmp_path / "m.db")
    before = (tmp_path / "m.db").read_bytes()
    write_sources(tmp_path / "s", [DRUG | {"form": []}, DRUG | {"med_name": "乙药", "pack": ""}])
    (tmp_path / "s" / "drugs" / "b.yaml").write_text("- [unclosed", encoding="utf-8")
    (tmp_path / "s" / "drugs" / "c.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(UserError) as caught:
        build_database(tmp_path / "s", tmp_path / "m.db")
    text = str(caught.value)
    assert all(part in text for part in ("entry 1 (甲药): form", "entry 2 (乙药): pack", "b.yaml", "c.yaml"))
    assert (tmp_path / "m.db").read_bytes() == before


def test_a_folder_without_sources_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no \\*.yaml file"):
        build_database(tmp_path, tmp_path / "m.db")
