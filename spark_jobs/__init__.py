"""Spark jobs over a lake. Each module runs by itself under spark-submit; `report` runs them all."""
