"""What every core folds alike of a job: its graph and progress, retries, running limits, and how queues are shared."""
