"""Writing machine code: LLVM's builder for 32-lane vectors, what is built of it for any use, and the engine that runs it."""
