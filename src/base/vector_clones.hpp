#pragma once
// Loops compiled for several vector widths, chosen when the program starts. Only element-wise loops and sums whose lanes are
// written out carry the macro, and contraction is off, so the bits are the same on every machine. Functions called inside carry
// SM_INLINE_IN_CLONES.

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define SM_VECTOR_CLONES __attribute__((target_clones("avx512f", "avx2", "default"), optimize("O3", "fp-contract=off")))
#define SM_INLINE_IN_CLONES __attribute__((always_inline)) inline
#else
#define SM_VECTOR_CLONES
#define SM_INLINE_IN_CLONES inline
#endif
