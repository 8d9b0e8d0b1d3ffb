"""What instructions cost on a core: from llvm-mca's models, or timed on the processor at hand."""
