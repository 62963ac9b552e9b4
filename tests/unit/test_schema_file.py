"""The JSON Schema in docs is the one that the loader goes by."""

from __future__ import annotations

import json
from pathlib import Path

from isthmus.config.schema import json_schema

PUBLISHED = Path(__file__).parents[2] / "docs" / "configuration.schema.json"


def test_the_published_schema_is_current() -> None:
    assert json.loads(PUBLISHED.read_text()) == json_schema()
