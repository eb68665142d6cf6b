"""Frameworks' models."""
