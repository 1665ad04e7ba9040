"""What an endpoint understands: the ladder of output forms, and two parameters that some models refuse.

json_schema (the server enforces the verdict's form) -> json_object (any JSON) -> text (the prompt alone asks for JSON).
The verdict is read in the same strict way on every rung.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

FORMS = ("json_schema", "json_object", "text")
REFUSED_FORM = re.compile(r"response_format|json_schema|json_object|json mode|structured output|guided", re.I)


@dataclass(frozen=True)
class Dialect:
    """How to write a request to one endpoint. `form` is a rung of FORMS."""

    form: str = FORMS[0]
    temperature: bool = True
    new_max_tokens: bool = False

    def parameters(self, *, max_tokens: int, name: str, schema: dict[str, Any]) -> dict[str, Any]:
        """The request's keys besides model and messages."""
        limit = "max_completion_tokens" if self.new_max_tokens else "max_tokens"
        keys: dict[str, Any] = {limit: max_tokens}
        if self.temperature:
            keys["temperature"] = 0
        if self.form == "json_schema":
            described = {"name": name, "strict": True, "schema": schema}
            keys["response_format"] = {"type": "json_schema", "json_schema": described}
        elif self.form == "json_object":
            keys["response_format"] = {"type": "json_object"}
        return keys

    def after_refusal(self, detail: str) -> Dialect | None:
        """The dialect to try after a 400 with this text; None when it names nothing that could be left out."""
        if REFUSED_FORM.search(detail) and self.form != FORMS[-1]:
            return replace(self, form=FORMS[FORMS.index(self.form) + 1])
        if "max_completion_tokens" in detail and not self.new_max_tokens:
            return replace(self, new_max_tokens=True)
        if "temperature" in detail and self.temperature:
            return replace(self, temperature=False)
        return None
