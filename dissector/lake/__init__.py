"""Tables out: Parquet files that appear in a lake whole or not at all."""
