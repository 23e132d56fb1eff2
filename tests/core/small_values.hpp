// Reproducible values for the drivers of this folder.
#pragma once

#include "../../src/weft/engine/core/dropout.hpp"

// Values between -0.1 and 0.1, the same on every CPU: one operation rounds.
inline std::vector<float> small_values(int64_t count, uint64_t seed) {
    std::vector<float> found(static_cast<size_t>(count));
    for (float& value : found) {
        const auto whole = static_cast<int64_t>((seed = weft::mix(seed + 1)) >> 40) - (1 << 23);
        value = static_cast<float>(whole) * (0.2f / (1 << 24));
    }
    return found;
}
