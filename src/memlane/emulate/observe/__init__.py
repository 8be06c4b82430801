"""Connect the counting and clock layers to a kernel: code added to its instructions, and the arrays that it writes to."""
