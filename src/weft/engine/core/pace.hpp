// Alone or with others? Asked again and again, and answered by the clock.
//
// Whether a second thread helps with a few microseconds of work depends on what nobody here can know: whether it is
// awake, and who else wants its core. So both ways are timed, and the one that is not in use is tried now and then. A
// thread that the system takes away for a moment costs more than hundreds of steps gain, and it seldom shows in a few
// trials: so gains and losses together are added up, and once the losses are too much, it is alone for a while, longer
// each time.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace weft {

class Pace {
  public:
    // Runs work(together), which does `units` of the same work, the way that is quicker of late.
    template <typename Work>
    void run(int64_t units, const Work& work) {
        const int64_t trial = std::max(kTrial, 4 * units);
        const bool trying = alone_ > 0 && left_ <= 0, together = together_ != trying;
        const auto begin = std::chrono::steady_clock::now();
        work(together);
        const double taken = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
        const bool waking = trying && together && 8 * tried_ < 3 * trial;  // the first ones wake who sleeps
        if (!waking) average(together ? with_others_ : alone_, taken / static_cast<double>(units));
        if (together) lost_ = std::max(-kSavings * alone_, lost_ + taken - alone_ * static_cast<double>(units));
        (trying ? tried_ : left_) += trying ? units : -units;
        if (lost_ > kPatience * alone_) {
            stay_alone();
        } else if (trying && tried_ >= trial) {
            if (with_others_ > 0.95 * alone_) return stay_alone();
            if (together_) pause_ = kOften;  // a long time without losses
            together_ = true;
            begin_anew(kLong);
        }
    }

  private:
    static constexpr int64_t kTrial = 16, kOften = 256, kLong = 1 << 13, kSeldom = 1 << 16;
    static constexpr double kPatience = 64, kSavings = 512;  // units alone: what may be lost, and what gains count for

    static void average(double& so_far, double taken) {
        so_far = so_far ? so_far + (std::min(taken, 2 * so_far) - so_far) / 8 : taken;
    }

    void stay_alone() {
        together_ = false;
        begin_anew(pause_);
        pause_ = std::min(2 * pause_, kSeldom);
        with_others_ = 0;
    }

    void begin_anew(int64_t units) {
        left_ = units;
        tried_ = 0;
        lost_ = 0;
    }

    bool together_ = false;
    int64_t left_ = kTrial, tried_ = 0, pause_ = kOften;  // units until the other way is tried; of this trial; alone
    double alone_ = 0, with_others_ = 0;  // seconds a unit, with what takes longest taken for twice as long as usual
    double lost_ = 0;                     // seconds, since it is together; gained, if negative
};

}  // namespace weft
