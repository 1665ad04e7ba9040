"""The container files: their linter and schema, the lock's versions, no rights and no secrets, commands that there are.

Whether they build and run takes a container engine: docs/42-containers.md says how far that was tried.
"""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml

from sql_agent.cli import COMMANDS
from sql_agent.config import load_recipe
from tests.typed import params

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "containers"
COMPOSE = yaml.safe_load((FOLDER / "compose.yaml").read_text())
OWN = {name: service for name, service in COMPOSE["services"].items() if name != "postgres"}
BIN = Path(sys.executable).parent


def run(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_image_lints_and_both_compose_files_have_their_form() -> None:
    run(BIN / "hadolint", FOLDER / "Containerfile")
    run(BIN / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", *FOLDER.glob("compose*.yaml"))


def test_what_is_installed_is_the_locks_and_the_setups() -> None:
    text = (FOLDER / "Containerfile").read_text()
    found = re.search(r"^UV_VERSION=(.+)$", (ROOT / "utils/setup.sh").read_text(), re.MULTILINE)
    assert found and f"uv=={found[1]}" in text and "uv sync --frozen" in text
    assert "python:3.12-" in text and "python3.12" in text
    shipped = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert all((ROOT / name).exists() for name in shipped) and not {".env", "runs", "containers"} & shipped


@pytest.mark.parametrize("name", COMPOSE["services"])
def test_a_service_has_no_rights_and_no_secret_but_by_a_file(name: str) -> None:
    service = COMPOSE["services"][name]
    assert (
        service["read_only"] and service["cap_drop"] == ["ALL"] and "no-new-privileges:true" in service["security_opt"]
    )
    assert "user" in service or "\nUSER 10001:10001\n" in (FOLDER / "Containerfile").read_text()
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))
    told = yaml.safe_dump({key: value for key, value in service.items() if key != "secrets"})
    assert not re.search(r"(TOKEN|PASSWORD|KEY): (?!/run/secrets/)|://\w+:\w+@", told)
    assert set(service.get("secrets", [])) <= set(COMPOSE["secrets"])


def test_every_secret_comes_from_an_ignored_folder() -> None:
    assert {Path(secret["file"]).parent.name for secret in COMPOSE["secrets"].values()} == {"secrets"}
    assert "containers/secrets/" in (ROOT / ".gitignore").read_text().splitlines()


@pytest.mark.parametrize("name", OWN)
def test_a_service_runs_a_command_with_flags_that_there_are(name: str) -> None:
    program, command, *arguments = OWN[name]["command"]
    assert program == "agentgrpo" and command in COMMANDS
    assert params(command, *arguments)


def test_the_recipe_that_is_left_out_is_there() -> None:
    found = re.findall(r"RECIPE:-(\w+)", (FOLDER / "compose.yaml").read_text())
    assert found and all(load_recipe(recipe) for recipe in found)


def test_secrets_become_variables(tmp_path: Path) -> None:
    script = (FOLDER / "with-secrets").read_text().replace("/run/secrets", str(tmp_path))
    (tmp_path / "A_TOKEN").write_text("it's $HOME; `x`\n")
    done = subprocess.run(["sh", "-c", script, "sh", "printenv", "A_TOKEN"], capture_output=True, text=True)
    assert done.stdout == "it's $HOME; `x`\n"


def test_health_checks_ask_what_the_service_listens_on() -> None:
    for name, service in COMPOSE["services"].items():
        if check := service.get("healthcheck"):
            port = next((one for one in service["command"] if one.startswith("--port=")), "") if name in OWN else ""
            assert port.removeprefix("--port=") in " ".join(check["test"]), name


def test_machines_of_kubernetes_have_the_locks_ray_and_no_rights() -> None:
    spec = yaml.safe_load((FOLDER / "raycluster.yaml").read_text())["spec"]
    assert spec["rayVersion"] == version("ray")
    for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
        pod = group["template"]["spec"]
        (container,) = pod["containers"]
        assert pod["securityContext"]["runAsUser"] == 10001 and pod["securityContext"]["runAsNonRoot"]
        assert container["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
        assert group["rayStartParams"]["num-gpus"] == container["resources"]["limits"]["nvidia.com/gpu"]


@pytest.mark.parametrize(
    ("told", "error"),
    [
        ({}, "RAY_HEAD=10.0.0.1:6379 needs RAY_NODE_IP"),
        ({"RAY_NODE_IP": "10.0.0.2"}, "no ~/.ray/auth_token: copy the one of 10.0.0.1:6379"),
        ({"RAY_PORT": "0"}, "RAY_PORT=0: must be 1 to 65535"),
    ],
)
def test_a_machine_that_cannot_join_says_why_and_stops_nothing(
    told: dict[str, str], error: str, tmp_path: Path
) -> None:
    env = {"PATH": f"{BIN}:/usr/bin:/bin", "HOME": str(tmp_path), "RAY_HEAD": "10.0.0.1:6379", **told}
    done = subprocess.run(["bash", ROOT / "restart_ray.sh"], env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and error in done.stderr and not done.stdout


def test_the_script_for_slurm_is_bash() -> None:
    run("bash", "-n", FOLDER / "slurm.sh")
