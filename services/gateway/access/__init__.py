"""Who may ask the gateway for what: tokens, sessions of browsers, roles, and failed attempts."""
