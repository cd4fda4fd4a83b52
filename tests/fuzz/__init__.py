"""Fuzzing: `make fuzz`. Mail made from a grammar, and mutated, is read in processes with limits on time and memory."""
