"""Bridge: nodes that do not reach the bus, over MQTT."""
