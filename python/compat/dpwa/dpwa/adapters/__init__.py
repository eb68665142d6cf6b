"""Adapters for the models of frameworks."""
