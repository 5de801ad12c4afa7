"""Spark jobs over a lake: each module that runs by itself is for spark-submit."""
