"""Stragglers: tasks that run far longer than others of their stage, and the second attempts that are made of them."""
