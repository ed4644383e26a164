"""From a stream table and its windows to a weighted delta: plan, differentiate, run on Spark."""
