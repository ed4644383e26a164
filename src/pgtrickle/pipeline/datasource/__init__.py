"""The Spark data source `pgtrickle`: the content of a stream table, and its changes as a stream."""
