"""Recipes: the schema, and the shipped TOML files beside it."""
