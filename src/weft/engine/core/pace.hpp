// Alone or with others? Asked again and again, and answered by the clock.
//
// Whether a second thread helps with a few microseconds of work depends on what nobody here can know: whether it is
// awake, and who else wants its core. So both ways are timed. The one that is not in use is tried now and then, less
// and less often as long as it loses.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace weft {

class Pace {
  public:
    // Runs work(together), with `together` as is quicker of late.
    template <typename Work>
    void run(const Work& work) {
        const bool trying = left_ < kTrial;
        const bool together = together_ != trying;
        const auto begin = std::chrono::steady_clock::now();
        work(together);
        const double taken = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
        if (!trying)
            average(usual_, taken);
        else if (left_ < kTrial - kWaking)  // the first ones wake whoever sleeps
            average(tried_, taken);
        // One that the system held up is not the way's fault, but a trial that has lost need not go on.
        if (--left_ == 0 || (trying && taken > 32 * usual_)) decide();
    }

  private:
    static constexpr int kTrial = 16, kWaking = 6, kOften = 256, kSeldom = 1 << 16;

    static void average(double& so_far, double taken) {
        so_far = so_far ? so_far + (std::min(taken, 2 * so_far) - so_far) / 8 : taken;
    }

    void decide() {
        const bool better = left_ == 0 && tried_ < 0.95 * usual_;
        if (better) {
            together_ = !together_;
            usual_ = tried_;
        }
        pause_ = better ? kOften : std::min(2 * pause_, kSeldom);
        left_ = pause_ + kTrial;
        tried_ = 0;
    }

    bool together_ = false;
    int left_ = 2 * kTrial, pause_ = kOften;  // runs until the next decision; the last kTrial go the other way
    double usual_ = 0, tried_ = 0;
};

}  // namespace weft
