"""The bus on Kafka, and the topics that it needs there."""
