"""The tiny policy of this recipe: warmed up for SQL and for word problems, by the flawed teachers of both."""

from __future__ import annotations

from pathlib import Path

from recipes.math_cpu.tiny import TASK as MATH
from sql_agent.tiny_policy.mixed import mixed
from sql_agent.tiny_policy.sql_task import TASK as SQL
from sql_agent.tiny_policy.task import Settings

SETTINGS = Settings(echo_steps=150, query_steps=320, clean_steps=600, flawed_steps=300)
TASK = mixed("SQL and math agents", [(SQL, 0.6), (MATH, 0.4)], settings=SETTINGS, sources=[Path(__file__).resolve()])
