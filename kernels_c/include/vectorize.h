/* vectorize.h: the mark of loops that the compiler may vectorise; why it leaves all others stands in
 * docs/performance.md.
 *
 * A marked loop counts in int or int64_t, and no address in it is made of a counter that was masked (i & 7, i % 8) or
 * cut to a narrower type: such a loop is what the compiler gets wrong. Additions of floats keep their order all the
 * same. */
#ifndef IE_VECTORIZE_H
#define IE_VECTORIZE_H

#if defined(__AMDGCN__) || defined(__NVPTX__) /* their threads are the lanes */
#define IE_VECTORIZE
#elif !defined(IE_VECTORIZE) /* scripts/flags_bench.py measures what the marks are worth */
#define IE_VECTORIZE _Pragma("clang loop vectorize(enable) interleave(enable)")
#endif
/* For a loop that is worth four vectors at a time. */
#define IE_VECTORIZE_BY_4 _Pragma("clang loop vectorize(enable) interleave_count(4)")

#endif
