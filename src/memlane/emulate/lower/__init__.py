"""Compiles a kernel to machine code: splits its body into segments, places its variables, lowers its instructions and connects the
segments."""
