"""The configuration, by itself."""

from .dpwa import DpwaConfiguration

__all__ = ["DpwaConfiguration"]
