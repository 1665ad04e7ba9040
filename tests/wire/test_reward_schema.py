"""The scoring API against its own OpenAPI: what the schema allows is answered as it says, all else is 422.

A few examples by default; the full number is marked slow.
"""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis_jsonschema import from_schema

from tests.reward_api import Api

PATHS = ["/score", "/score-pair", "/score-batch"]
CHECKS = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much, HealthCheck.large_base_example]
EFFORTS = [25, pytest.param(300, marks=pytest.mark.slow)]
JSON = st.recursive(st.none() | st.integers() | st.text(), lambda s: st.lists(s) | st.dictionaries(st.text(), s))


@pytest.fixture(scope="module")
def schema(api: Api) -> dict[str, Any]:
    return api.http.get("/openapi.json").json()


def resolved(schema: dict[str, Any], node: Any) -> Any:
    """The node with all references replaced."""
    if isinstance(node, list):
        return [resolved(schema, one) for one in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        return resolved(schema, schema["components"]["schemas"][node["$ref"].rpartition("/")[2]])
    return {key: resolved(schema, value) for key, value in node.items()}


@pytest.mark.parametrize("n_examples", EFFORTS)
@pytest.mark.parametrize("path", PATHS)
def test_what_the_schema_allows_is_scored(api: Api, schema: dict[str, Any], path: str, n_examples: int) -> None:
    route = schema["paths"][path]["post"]
    body = resolved(schema, route["requestBody"]["content"]["application/json"]["schema"])
    answer = resolved(schema, route["responses"]["200"]["content"]["application/json"]["schema"])

    @given(from_schema(body))
    @settings(max_examples=n_examples, deadline=None, suppress_health_check=CHECKS)
    def check(value: Any) -> None:
        response = api.post(path, value)
        assert response.status_code == 200, response.text
        jsonschema.validate(response.json(), answer)

    check()


@pytest.mark.parametrize("n_examples", EFFORTS)
@pytest.mark.parametrize("path", PATHS)
def test_what_it_does_not_allow_is_422(api: Api, path: str, n_examples: int) -> None:
    @given(JSON)
    @settings(max_examples=n_examples, deadline=None, suppress_health_check=CHECKS)
    def check(value: Any) -> None:
        assert api.post(path, value).status_code == 422

    check()


@pytest.mark.parametrize("path", ["/", "/healthz", "/readyz"])
def test_what_is_open_answers_as_the_schema_says(api: Api, schema: dict[str, Any], path: str) -> None:
    answer = resolved(schema, schema["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]["schema"])
    jsonschema.validate(api.http.get(path).json(), answer)


def test_every_error_is_in_the_schema(schema: dict[str, Any]) -> None:
    for path in PATHS:
        assert {"200", "408", "413", "422", "503"} == set(schema["paths"][path]["post"]["responses"])
