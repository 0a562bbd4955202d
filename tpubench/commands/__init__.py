"""The commands' bodies: each parses nothing, prints its own text, and returns its exit code."""
