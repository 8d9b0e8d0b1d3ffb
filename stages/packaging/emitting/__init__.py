"""What every kernel is written with: the composite that is lowered, what lowering gives, index
arithmetic, loops that become vectors, items of work, and LLVM IR that several kinds of kernel call.
"""
