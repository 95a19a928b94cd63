"""Data sets as batches of images and labels, and their corruptions."""
