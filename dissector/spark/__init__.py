"""Spark as the engine of reports: a session, the tables of a lake, tasks for captures."""
