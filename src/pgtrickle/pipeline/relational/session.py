"""Settings of a Spark session that evaluates compiled queries.

There are as many tasks as cores. Spark estimates the size of a table from its compressed files: without a correction it
would broadcast the four columns of six million rows that TPC-H 5 reads. Joins of a large table with few keys read it
through a Bloom filter of these keys: TPC-H 17 takes less than half the time, no query longer.
"""

from __future__ import annotations

from pgtrickle.pipeline.expressions import CONF

_MB = 1 << 20


def session_conf(cores: int) -> dict[str, str]:
    """`cores`: of all executors together. Results depend only on the settings of `expressions.CONF`."""
    return {
        **CONF,
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.files.maxPartitionBytes": str(128 * _MB),
        "spark.sql.autoBroadcastJoinThreshold": str(32 * _MB),
        "spark.sql.sources.fileCompressionFactor": "4",  # size of rows in memory / size of their files
        "spark.sql.join.preferSortMergeJoin": "false",
        "spark.sql.optimizer.runtime.bloomFilter.applicationSideScanSizeThreshold": str(_MB),
        "spark.connect.session.planCache.enabled": "false",
    }
