"""What the benchmarks share: a server, a line, percentiles, the closing JSON line."""
