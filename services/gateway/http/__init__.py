"""HTTP in the gateway: its app and routes, who may ask, long-running answers, and what is asked of agents."""
