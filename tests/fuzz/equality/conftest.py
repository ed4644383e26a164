"""The engine of the Spark tests."""

from __future__ import annotations

from tests.spark.conftest import engine

__all__ = ["engine"]
