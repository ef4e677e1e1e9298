"""What-if: a recorded log decided again under other settings, in virtual time; what came from outside stays."""
