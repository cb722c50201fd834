"""Every picture of the book, drawn by code."""
