"""Where deltas are computed and consolidated: Spark, the layout of its input, bulk loads."""
