"""Inputs nobody would write, given to everything that reads what comes from outside.

mutations    what is done to an input: to its bytes, its tokens, its structure
engine       one input of a reader, and what counts as a failure
readers      the table of readers: a corpus, a way to mutate it, what is called
watch        many inputs, in a process that is watched, because a library may crash or hang
"""
