"""The bus: topics of ordered partitions behind one port, in memory, in one directory, or on Kafka."""
