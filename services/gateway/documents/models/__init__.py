"""Answers of the gateway as models, of which /openapi.json is made; tests hold recorded answers against them."""
