"""`pgtrickle demo`: the product on its own PostgreSQL and Spark, with a shop workload."""
