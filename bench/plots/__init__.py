"""Pictures of the results, as PNG files."""
