"""Where the counting and clock layers meet a kernel: what they add to its instructions, and the arrays that they write to."""
