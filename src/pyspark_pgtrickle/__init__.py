"""Spark looks for data sources in modules whose names begin with pyspark_: with this one, `format("pgtrickle")` needs
no registration."""

from pgtrickle.pipeline.datasource.source import StreamTableSource as DefaultSource

__all__ = ["DefaultSource"]
