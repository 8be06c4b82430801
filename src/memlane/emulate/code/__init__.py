"""Generates machine code: LLVM's builder for 32-lane vectors, building blocks for any use, and the engine that loads the result."""
