"""Access to object stores and HDFS, whose files have addresses (`s3://bucket/name`)."""
