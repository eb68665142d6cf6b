"""For Keras 3, on any of its backends."""
