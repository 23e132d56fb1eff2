// Vectors as the compiler's own vector types, and the functions a cell needs on them.
//
// Everything is written once for a scalar type T; the width follows from the instruction set the file is compiled
// for. exp, log, tanh and the logistic sigmoid are polynomials and rational functions good to about one unit in
// the last place or two. NaN goes through, infinities give their limits: comparisons are arranged so that NaN
// falls to the side that keeps it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#if defined(__AVX__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif
#include <utility>

namespace weft {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
#elif defined(__AVX__)
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif

template <typename T>
struct Lanes;
template <>
struct Lanes<float> {
    typedef float Vector __attribute__((vector_size(kVectorBytes)));
    typedef int32_t Integers __attribute__((vector_size(kVectorBytes)));
    using Integer = int32_t;
};
template <>
struct Lanes<double> {
    typedef double Vector __attribute__((vector_size(kVectorBytes)));
    typedef int64_t Integers __attribute__((vector_size(kVectorBytes)));
    using Integer = int64_t;
};
template <typename T>
using Vec = typename Lanes<T>::Vector;
template <typename T>
using Ints = typename Lanes<T>::Integers;
template <typename T>
constexpr int kWidth = kVectorBytes / static_cast<int>(sizeof(T));

template <typename T>
inline Vec<T> load(const T* from) {
    Vec<T> value;
    std::memcpy(&value, from, sizeof value);  // one unaligned load
    return value;
}
template <typename T>
inline void store(T* to, Vec<T> value) {
    std::memcpy(to, &value, sizeof value);
}
template <typename T>
inline Vec<T> all(T value) {
    return value - Vec<T>{};  // minus zero vector keeps -0.0 and NaN as they are
}

inline Ints<float> bits(Vec<float> x) { return (Ints<float>)x; }
inline Ints<double> bits(Vec<double> x) { return (Ints<double>)x; }
inline Vec<float> from_bits(Ints<float> x) { return (Vec<float>)x; }
inline Vec<double> from_bits(Ints<double> x) { return (Vec<double>)x; }

// Whether a comparison holds in any lane.
template <typename V>
inline bool any(V holds) {
#if defined(__AVX512F__)
    return _mm512_test_epi32_mask((__m512i)holds, (__m512i)holds) != 0;
#elif defined(__AVX__)
    return !_mm256_testz_si256((__m256i)holds, (__m256i)holds);
#else
    int64_t parts[sizeof(V) / sizeof(int64_t)], found = 0;
    std::memcpy(parts, &holds, sizeof holds);
    for (int64_t part : parts) found |= part;
    return found != 0;
#endif
}

// x, but at most or at least `bound`. A NaN stays one: the instructions return their second operand for it. (Their
// forms without a mask give false warnings with gcc.)
template <typename T>
inline Vec<T> at_most(Vec<T> x, T bound) {
#if defined(__AVX512F__)
    if constexpr (sizeof(T) == sizeof(float))
        return (Vec<T>)_mm512_maskz_min_ps(0xffff, (__m512)all(bound), (__m512)x);
    else
        return (Vec<T>)_mm512_maskz_min_pd(0xff, (__m512d)all(bound), (__m512d)x);
#else
    return x > bound ? all(bound) : x;
#endif
}
template <typename T>
inline Vec<T> at_least(Vec<T> x, T bound) {
#if defined(__AVX512F__)
    if constexpr (sizeof(T) == sizeof(float))
        return (Vec<T>)_mm512_maskz_max_ps(0xffff, (__m512)all(bound), (__m512)x);
    else
        return (Vec<T>)_mm512_maskz_max_pd(0xff, (__m512d)all(bound), (__m512d)x);
#else
    return x < bound ? all(bound) : x;
#endif
}

// Keeps a vector in a register: the compiler would reload it for each of a few rows.
template <typename V>
inline void hold(V& vector) {
#if defined(__AVX512F__)
    asm("" : "+v"(vector));
#elif defined(__AVX__)
    asm("" : "+x"(vector));
#elif defined(__aarch64__)
    asm("" : "+w"(vector));
#else
    (void)vector;
#endif
}

// The lanes of x in pairs at distance S: each gets the other's.
template <typename T, int S, int... Lane>
inline Vec<T> swap_lanes(Vec<T> x, std::integer_sequence<int, Lane...>) {
#if defined(__clang__)
    return __builtin_shufflevector(x, x, (Lane ^ S)...);
#else
    return __builtin_shuffle(x, Ints<T>{(Lane ^ S)...});
#endif
}
// All lanes joined into one, which each of them then is.
template <typename T, int S, typename Join>
inline Vec<T> join_lanes(Vec<T> x, const Join& join) {
    x = join(x, swap_lanes<T, S>(x, std::make_integer_sequence<int, kWidth<T>>{}));
    if constexpr (S > 1) x = join_lanes<T, S / 2>(x, join);
    return x;
}
template <typename T>
inline Vec<T> total(Vec<T> x) {
    return join_lanes<T, kWidth<T> / 2>(x, [](Vec<T> a, Vec<T> b) { return a + b; });
}
template <typename T>
inline Vec<T> larger(Vec<T> a, Vec<T> b) {
    return a > b ? a : b;
}
template <typename T>
inline T largest(Vec<T> x) {
    return join_lanes<T, kWidth<T> / 2>(x, larger<T>)[0];
}

// Horner's rule, highest coefficient first.
template <typename T, int N>
inline Vec<T> polynomial(Vec<T> x, const T (&coefficients)[N]) {
    Vec<T> sum = all(coefficients[0]);
    for (int i = 1; i < N; ++i) sum = sum * x + coefficients[i];
    return sum;
}

template <typename T>
struct Exponent;  // x = n ln2 + r, exp(x) = 2^n exp(r)
template <>
struct Exponent<float> {
    static constexpr float log2e = 1.44269504088896341f, high = 0.693359375f, low = -2.12194440e-4f;
    static constexpr float top = 89.0f, bottom = -104.0f, bound = 87.0f;
    static constexpr float magic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to a whole number
    static constexpr int mantissa = 23, bias = 127;
    static Vec<float> of_rest(Vec<float> r) {
        const float c[] = {1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f,
                           4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f};
        return polynomial<float>(r, c) * (r * r) + r + 1.0f;
    }
};
template <>
struct Exponent<double> {
    static constexpr double log2e = 1.44269504088896340736, high = 6.93145751953125e-1, low = 1.42860682030941723212e-6;
    static constexpr double top = 710.0, bottom = -746.0, bound = 708.0;
    static constexpr double magic = 6755399441055744.0;
    static constexpr int mantissa = 52, bias = 1023;
    static Vec<double> of_rest(Vec<double> r) {  // Taylor to r^13: |r| < 0.35 leaves 4e-18
        const double c[] = {1.0 / 6227020800.0, 1.0 / 479001600.0, 1.0 / 39916800.0, 1.0 / 3628800.0,
                            1.0 / 362880.0,     1.0 / 40320.0,     1.0 / 5040.0,     1.0 / 720.0,
                            1.0 / 120.0,        1.0 / 24.0,        1.0 / 6.0,        0.5};
        return polynomial<double>(r, c) * (r * r) + r + 1.0;
    }
};

template <typename T>
inline Vec<T> exp_vector(Vec<T> x) {
    using E = Exponent<T>;
    x = at_least<T>(at_most<T>(x, E::top), E::bottom);
    Vec<T> shifted = x * E::log2e + E::magic;
    Ints<T> n = bits(shifted) - bits(all(E::magic));
    Vec<T> whole = shifted - E::magic;
    Vec<T> rest = x - whole * E::high;
    rest = rest - whole * E::low;
    // In two halves, so that 2^n passes smoothly into infinity above and into subnormals below.
    Ints<T> half = n >> 1;
    Vec<T> scale1 = from_bits((half + E::bias) << E::mantissa);
    Vec<T> scale2 = from_bits((n - half + E::bias) << E::mantissa);
    return E::of_rest(rest) * scale1 * scale2;
}

// exp(x) of -bound <= x <= bound, which needs neither infinity nor subnormals.
template <typename T>
inline Vec<T> exp_within(Vec<T> x) {
    using E = Exponent<T>;
    const Vec<T> shifted = x * E::log2e + E::magic, whole = shifted - E::magic;
    const Ints<T> power =
        (bits(shifted) << E::mantissa) + bits(all(T(1)));  // the low bits of `shifted` are the whole number
    Vec<T> rest = x - whole * E::high;
    rest = rest - whole * E::low;
    return E::of_rest(rest) * from_bits(power);
}

// 1 / (1 + exp(-x)): beyond the bound it is 0 or 1.
template <typename T>
inline Vec<T> sigmoid_vector(Vec<T> x) {
    using E = Exponent<T>;
    const Vec<T> within = at_least<T>(at_most<T>(x, E::bound), -E::bound);
    const Vec<T> value = T(1) / (T(1) + exp_within<T>(-within));
    return x < -E::bound ? Vec<T>{} : value;
}

inline Vec<float> tanh_vector(Vec<float> x) {
    const float bound = 7.90531110763549805f;  // beyond it the result is 1
    const Vec<float> a = at_least<float>(at_most<float>(x, bound), -bound);
    Vec<float> s = a * a;
    const float p[] = {-2.76076847742355e-16f, 2.00018790482477e-13f, -8.60467152213735e-11f, 5.12229709037114e-08f,
                       1.48572235717979e-05f,  6.37261928875436e-04f, 4.89352455891786e-03f};
    const float q[] = {1.19825839466702e-06f, 1.18534705686654e-04f, 2.26843463243900e-03f, 4.89352518554385e-03f};
    return a * polynomial<float>(s, p) / polynomial<float>(s, q);
}

inline Vec<double> tanh_vector(Vec<double> x) {
    Vec<double> size = x < 0.0 ? -x : x;
    Vec<double> large = 1.0 - 2.0 / (exp_vector<double>(size + size) + 1.0);
    Vec<double> s = x * x;  // Cephes, |x| < 0.625
    const double p[] = {-9.64399179425052238628e-1, -9.92877231001918586564e1, -1.61468768441708447952e3};
    const double q[] = {1.0, 1.12811678491632931402e2, 2.23548839060100448583e3, 4.84406305325125486048e3};
    Vec<double> small = x + x * s * polynomial<double>(s, p) / polynomial<double>(s, q);
    return size < 0.625 ? small : (x < 0.0 ? -large : large);
}

template <typename T>
struct Logarithm;
template <>
struct Logarithm<float> {
    static constexpr int32_t one = 0x3f800000, mask = 0x007fffff;
    static constexpr float tiny = 1.17549435e-38f, lift = 8388608.0f, lifted = 23.0f;
};
template <>
struct Logarithm<double> {
    static constexpr int64_t one = 0x3ff0000000000000, mask = 0x000fffffffffffff;
    static constexpr double tiny = 2.2250738585072014e-308, lift = 4503599627370496.0, lifted = 52.0;
};

// log x = e ln2 + log m, m near 1: log m = 2 atanh(z), z = (m - 1) / (m + 1).
template <typename T>
inline Vec<T> log_vector(Vec<T> x) {
    using L = Logarithm<T>;
    Vec<T> small = x < L::tiny ? all(T(1)) : Vec<T>{};
    Vec<T> y = x < L::tiny ? x * L::lift : x;
    Ints<T> exponent = (bits(y) >> Exponent<T>::mantissa) - Exponent<T>::bias;
    Vec<T> m = from_bits((bits(y) & L::mask) | L::one);
    Vec<T> e = __builtin_convertvector(exponent, Vec<T>);
    e = m > T(1.41421356237309504880) ? e + T(1) : e;
    m = m > T(1.41421356237309504880) ? m * T(0.5) : m;
    e = e - small * L::lifted;
    Vec<T> z = (m - T(1)) / (m + T(1)), s = z * z;
    const T c[] = {T(1) / 21, T(1) / 19, T(1) / 17, T(1) / 15, T(1) / 13,
                   T(1) / 11, T(1) / 9,  T(1) / 7,  T(1) / 5,  T(1) / 3};
    Vec<T> value = z * s * polynomial<T>(s, c) * T(2) + z * T(2) + e * Exponent<T>::low + e * Exponent<T>::high;
    const T infinity = T(__builtin_inf()), nothing = T(__builtin_nan(""));
    value = x == infinity ? all(infinity) : value;
    value = x == T(0) ? all(-infinity) : value;
    value = x < T(0) ? all(nothing) : value;
    return x != x ? x : value;
}

inline Vec<float> sqrt_vector(Vec<float> x) {
    for (int i = 0; i < kWidth<float>; ++i) x[i] = __builtin_sqrtf(x[i]);
    return x;
}
inline Vec<double> sqrt_vector(Vec<double> x) {
    for (int i = 0; i < kWidth<double>; ++i) x[i] = __builtin_sqrt(x[i]);
    return x;
}

}  // namespace weft
