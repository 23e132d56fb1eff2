// bfloat16: the upper 16 bits of a float. Matrix products read two of them from each word of 32 bits, which stands in
// memory where a float would: the lower half is the element of an even depth, the upper half that of the next one.
//
// The instruction VDPBF16PS of x86 adds both products of a word to a float. Where the CPU has it, it runs; elsewhere
// the same bits are computed step by step:
//
//     sum = flush(fma(upper a, upper b, flush(sum)));  sum = flush(fma(lower a, lower b, sum))
//
// fma rounds once, to nearest even. flush replaces subnormal numbers by a zero of the same sign. Rounding to bfloat16
// is to nearest even too, and flushes as well; a NaN stays one.
//
// The instruction BFDOT of ARM, which runs where that CPU has it, adds the two products first, and rounds differently:
// its results are not those of x86.
#pragma once

#include <type_traits>

#include "vector.hpp"

namespace weft {

inline int64_t pairs(int64_t elements) { return (elements + 1) / 2; }

inline uint32_t bits_of(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits;
}

// The bits of x rounded to bfloat16: the lower half is zero.
inline uint32_t round_to_bfloat16(float x) {
    const uint32_t bits = bits_of(x), size = bits & 0x7fffffffu;
    if (size > 0x7f800000u) return (bits | 0x00400000u) & 0xffff0000u;  // a quiet NaN
    if (size < 0x00800000u) return bits & 0x80000000u;
    return (bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u;
}

inline float join_pair(float lower, float upper) {
    const uint32_t word = round_to_bfloat16(lower) >> 16 | round_to_bfloat16(upper);
    float pair;
    std::memcpy(&pair, &word, sizeof pair);
    return pair;
}

#if defined(__AVX512BF16__)

// Pairs of neighbours in a row; an odd element is paired with zero.
inline void join_neighbours(const float* from, int64_t count, float* to) {
    int64_t i = 0;
    for (; i + 32 <= count; i += 32)
        store(to + i / 2, (Vec<float>)_mm512_cvtne2ps_pbh(load(from + i + 16), load(from + i)));
    for (; i + 1 < count; i += 2) to[i / 2] = join_pair(from[i], from[i + 1]);
    if (i < count) to[i / 2] = join_pair(from[i], 0.0f);
}

// Pairs of the elements of two rows: to[i] = (lower[i], upper[i]).
inline void join_rows(const float* lower, const float* upper, int64_t count, float* to) {
    static constexpr struct {
        alignas(64) int16_t lanes[32];
    } kZip = {{0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
               8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31}};
    const __m512i zip = _mm512_load_si512(kZip.lanes);
    int64_t i = 0;
    for (; i + 16 <= count; i += 16) {
        const __m512i both = (__m512i)_mm512_cvtne2ps_pbh(load(upper + i), load(lower + i));
        store(to + i, (Vec<float>)_mm512_permutexvar_epi16(zip, both));
    }
    for (; i < count; ++i) to[i] = join_pair(lower[i], upper[i]);
}

inline Vec<float> begin_dot(Vec<float> sum) { return sum; }

// sum + the two products of *a and each word of b.
inline Vec<float> dot(Vec<float> sum, const float* a, Vec<float> b) {
    return _mm512_dpbf16_ps(sum, (__m512bh)_mm512_set1_epi32(static_cast<int>(bits_of(*a))), (__m512bh)b);
}

#elif defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)

inline void join_neighbours(const float* from, int64_t count, float* to) {
    int64_t i = 0;
    for (; i + 8 <= count; i += 8) {
        const bfloat16x8_t both = vcvtq_high_bf16_f32(vcvtq_low_bf16_f32(load(from + i)), load(from + i + 4));
        store(to + i / 2, (Vec<float>)both);
    }
    for (; i + 1 < count; i += 2) to[i / 2] = join_pair(from[i], from[i + 1]);
    if (i < count) to[i / 2] = join_pair(from[i], 0.0f);
}

inline void join_rows(const float* lower, const float* upper, int64_t count, float* to) {
    int64_t i = 0;
    for (; i + 4 <= count; i += 4) {
        const auto low = (uint16x8_t)vcvtq_low_bf16_f32(load(lower + i));
        const auto high = (uint16x8_t)vcvtq_low_bf16_f32(load(upper + i));
        store(to + i, (Vec<float>)vzip1q_u16(low, high));
    }
    for (; i < count; ++i) to[i] = join_pair(lower[i], upper[i]);
}

inline Vec<float> begin_dot(Vec<float> sum) { return sum; }

inline Vec<float> dot(Vec<float> sum, const float* a, Vec<float> b) {
    return vbfdotq_f32(sum, (bfloat16x8_t)b, (bfloat16x8_t)vdupq_n_f32(*a));
}

#else

inline void join_neighbours(const float* from, int64_t count, float* to) {
    for (int64_t i = 0; i + 1 < count; i += 2) to[i / 2] = join_pair(from[i], from[i + 1]);
    if (count % 2) to[count / 2] = join_pair(from[count - 1], 0.0f);
}

inline void join_rows(const float* lower, const float* upper, int64_t count, float* to) {
    for (int64_t i = 0; i < count; ++i) to[i] = join_pair(lower[i], upper[i]);
}

inline Vec<float> flush(Vec<float> x) {
    const Ints<float> size = bits(x) & 0x7fffffff;
    return from_bits(size < 0x00800000 ? bits(x) & ~0x7fffffff : bits(x));
}

inline Vec<float> fused_multiply_add(Vec<float> a, Vec<float> b, Vec<float> sum) {
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
    return a * b + sum;  // contracted: -ffp-contract=fast
#else
    for (int i = 0; i < kWidth<float>; ++i) sum[i] = __builtin_fmaf(a[i], b[i], sum[i]);
    return sum;
#endif
}

inline Vec<float> begin_dot(Vec<float> sum) { return flush(sum); }

inline Vec<float> dot(Vec<float> sum, const float* a, Vec<float> b) {
    const Ints<float> word = Ints<float>{} + static_cast<int32_t>(bits_of(*a)), upper = Ints<float>{} + -65536;
    sum = flush(fused_multiply_add(from_bits(word & upper), from_bits(bits(b) & upper), sum));
    return flush(fused_multiply_add(from_bits(word << 16), from_bits(bits(b) << 16), sum));
}

#endif

// Values as the upper halves of floats, and back. Other types have no halves.
template <typename T>
inline void compress(const T* from, int64_t count, uint16_t* to) {
    if constexpr (std::is_same<T, float>::value)
        for (int64_t i = 0; i < count; ++i) {
            const uint32_t bits = bits_of(from[i]), quiet = bits >> 16 | 0x40u;
            const uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
            to[i] = static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
        }
}
// Where value `index` is, from a pointer to such values that stands as one to T.
template <typename T>
inline T* half_at(T* base, int64_t index) {
    return reinterpret_cast<T*>(reinterpret_cast<uint16_t*>(base) + index);
}
template <typename T>
inline void expand(const uint16_t* from, int64_t count, T* to) {
    if constexpr (std::is_same<T, float>::value)
        for (int64_t i = 0; i < count; ++i) {
            const uint32_t bits = static_cast<uint32_t>(from[i]) << 16;
            std::memcpy(to + i, &bits, sizeof bits);
        }
}

// Pairs of the rows of a panel of floats, (depth, columns), in a panel of words, (pairs(depth), columns).
inline void join_depths(const float* panel, int64_t depth, int64_t columns, float* to) {
    int64_t k = 0;
    for (; k + 1 < depth; k += 2, to += columns) join_rows(panel + k * columns, panel + (k + 1) * columns, columns, to);
    for (int64_t j = 0; k < depth && j < columns; ++j) to[j] = join_pair(panel[k * columns + j], 0.0f);
}

}  // namespace weft
