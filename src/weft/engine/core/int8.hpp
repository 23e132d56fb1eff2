// int8: weights with a scale for each row of the weight, and activations with a scale for each row, found as they come.
//
//     scale = max |w| / 127, q = round(w / scale) to nearest even: w is about scale * q
//
// A word of 32 bits, which stands in memory where a float would, holds four neighbours in depth; the lowest byte comes
// first. An instruction adds the four products of a word to an integer; such sums are exact, so they are the same
// wherever they are computed. VPDPBUSD of x86 wants activations in 0 to 255, so they are stored as q + 128; what the
// 128 adds to a sum does not depend on the activations and is subtracted at the end. SDOT of ARM takes q itself.
//
// A panel begins with two rows: the scale and the excess, kExcess times the sum of q, of each column. A row of
// activations begins with its scale. If it holds an infinity or a NaN, the scale is NaN, and so are the results.
#pragma once

#include "vector.hpp"

namespace weft {

constexpr int64_t kPanelHead = 2, kRowHead = 1;  // words before the first four depths

#if defined(__ARM_FEATURE_DOTPROD)
constexpr int32_t kExcess = 0;  // what is added to an activation
#else
constexpr int32_t kExcess = 128;
#endif

inline int64_t quads(int64_t elements) { return (elements + 3) / 4; }

// x rounded to a whole number, which must be below 2^22. The sum is of the rounded product that x is: `hold` keeps the
// compiler from fusing the two.
inline Vec<float> round_vector(Vec<float> x) {
    hold(x);
    const Vec<float> magic = all(12582912.0f);
    return x + magic - magic;
}

// 127 / largest, or 0 for a row of zeros.
inline float inverse_scale(float largest) { return largest > 0.0f ? 127.0f / largest : 0.0f; }

// sum + the four products of each word of activations and of weights.
inline Ints<float> dot_bytes(Ints<float> sum, int32_t activations, Ints<float> weights) {
#if defined(__AVX512VNNI__)
    return (Ints<float>)_mm512_dpbusd_epi32((__m512i)sum, _mm512_set1_epi32(activations), (__m512i)weights);
#elif defined(__ARM_FEATURE_DOTPROD)
    return vdotq_s32(sum, (int8x16_t)weights, (int8x16_t)vdupq_n_s32(activations));
#else
    for (int byte = 0; byte < 4; ++byte) {
        const int32_t factor = activations >> 8 * byte & 255;
        sum += factor * (weights << (24 - 8 * byte) >> 24);
    }
    return sum;
#endif
}

// A row of activations: its scale, then words.
inline void quantize_row(const float* from, int64_t count, float* to) {
    constexpr int W = kWidth<float>;
    Vec<float> most{}, check{};
    int64_t i = 0;
    for (; i + W <= count; i += W) {
        const Vec<float> x = load(from + i);
        most = larger<float>(x < 0.0f ? -x : x, most);
        check += x * 0.0f;
    }
    float largest_value = largest<float>(most), checked = total<float>(check)[0];
    for (int64_t j = i; j < count; ++j) {
        const float size = from[j] < 0.0f ? -from[j] : from[j];
        largest_value = size > largest_value ? size : largest_value;
        checked += from[j] * 0.0f;
    }
    const float inverse = inverse_scale(largest_value);
    to[0] = largest_value / 127.0f + checked;  // checked is 0, or NaN
    uint8_t* bytes = reinterpret_cast<uint8_t*>(to + kRowHead);
    for (int64_t j = 0; j < count; j += W) {
        Vec<float> x{};
        if (j + W <= count)
            x = load(from + j);
        else
            for (int64_t lane = 0; lane < count - j; ++lane) x[lane] = from[j + lane];
        x = checked == 0.0f ? x : Vec<float>{};
        const Ints<float> q = __builtin_convertvector(round_vector(x * inverse), Ints<float>) + kExcess;
        typedef uint8_t Bytes __attribute__((vector_size(W)));
        const Bytes narrow = __builtin_convertvector(q, Bytes);
        const int64_t some = quads(count - j) * 4;
        std::memcpy(bytes + j, &narrow, static_cast<size_t>(some < W ? some : W));
    }
}

// A panel of elements, (depth, Columns), as words, with its head.
template <int Columns>
inline void quantize_panel(const float* panel, int64_t depth, float* to) {
    constexpr int W = kWidth<float>;
    for (int c = 0; c < Columns; c += W) {
        Vec<float> most{}, inverse;
        for (int64_t k = 0; k < depth; ++k) {
            const Vec<float> w = load(panel + k * Columns + c);
            most = larger<float>(w < 0.0f ? -w : w, most);
        }
        for (int lane = 0; lane < W; ++lane) inverse[lane] = inverse_scale(most[lane]);
        Ints<float> sum{};
        for (int64_t k = 0; k < depth; k += 4) {
            Ints<float> word{};
            for (int64_t byte = 0; byte < 4 && k + byte < depth; ++byte) {
                const Vec<float> w = load(panel + (k + byte) * Columns + c);
                const Ints<float> q = __builtin_convertvector(round_vector(w * inverse), Ints<float>);
                sum += q;
                word |= (q & 255) << static_cast<int32_t>(8 * byte);
            }
            store(to + (kPanelHead + k / 4) * Columns + c, from_bits(word));
        }
        store(to + c, most / 127.0f);
        store(to + Columns + c, from_bits(sum * kExcess));
    }
}

// The kernel: R rows of activations, `stride` apart, times P panels of V vectors and `words` rows, the head included.
// start(r, p) points to what is added to row r in panel p.
template <int R, int P, int V, typename Start>
inline void byte_kernel(const float* a, int64_t stride, const float* panels, int64_t words, const Start& start,
                        float* c, int64_t c_stride) {
    constexpr int W = kWidth<float>, columns = V * W;
    const int64_t apart = words * columns;
    Ints<float> sum[R][P * V] = {};
    const float* b = panels + kPanelHead * columns;
    for (int64_t k = 0; k < words - kPanelHead; ++k, b += columns)
        for (int p = 0; p < P; ++p)
            for (int v = 0; v < V; ++v) {
                Ints<float> word = bits(load(b + p * apart + v * W));
                hold(word);
                for (int r = 0; r < R; ++r) {
                    int32_t activations;
                    std::memcpy(&activations, a + r * stride + kRowHead + k, sizeof activations);
                    sum[r][p * V + v] = dot_bytes(sum[r][p * V + v], activations, word);
                }
            }
    for (int p = 0; p < P; ++p)
        for (int v = 0; v < V; ++v) {
            const float* head = panels + p * apart + v * W;
            const Vec<float> scale = load(head);
            const Ints<float> excess = bits(load(head + columns));
            for (int r = 0; r < R; ++r) {
                const float* from = start(r, p);
                Vec<float> product =
                    __builtin_convertvector(sum[r][p * V + v] - excess, Vec<float>) * (scale * a[r * stride]);
                hold(product);
                store(c + r * c_stride + p * columns + v * W, product + (from ? load(from + v * W) : Vec<float>{}));
            }
        }
}

}  // namespace weft
