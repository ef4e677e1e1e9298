"""MQTT: how nodes at the edge are reached. Sessions with a broker behind one port, in memory or a real one."""
