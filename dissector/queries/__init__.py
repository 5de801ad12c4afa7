"""SQL over the tables of a lake: the text of queries, and the engine that runs them."""
