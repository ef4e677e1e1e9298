"""Altruism: what each job asks for of its share."""
