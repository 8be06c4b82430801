"""A kernel to machine code: its body cut into places, its variables placed, its instructions lowered, and the way from place to place."""
