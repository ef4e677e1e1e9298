"""CARBYNE's plans: how late each task of a job may start, inside the job's share. Knows no records."""
