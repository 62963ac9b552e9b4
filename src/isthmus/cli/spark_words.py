"""Spark's settings on the command line."""

from __future__ import annotations

from isthmus.errors import ConfigError


def pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"--conf {text}: not of the form key=value")
    return key, value
