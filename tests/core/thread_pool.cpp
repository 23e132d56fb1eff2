// A driver for the threads of the engine, compiled and run by tests/unit/test_engine_threads.py.
//
// Usage: thread_pool overflow. Exit code 0: every piece of work was done exactly once.
#include <cstdio>
#include <cstring>

#include "../../src/weft/engine/core/team.hpp"

namespace {

// Many short turns, each of whose pieces must be done once.
bool share_work(weft::Team& team, int64_t threads, int turns) {
    constexpr int64_t kPieces = 24;
    bool right = true;
    team.gather(threads, [&] {
        for (int turn = 0; turn < turns; ++turn) {
            std::atomic<int> done[kPieces] = {};
            team.share(kPieces, [&](int64_t first, int64_t last) {
                for (int64_t i = first; i < last; ++i) ++done[i];
            });
            for (const std::atomic<int>& count : done) right = right && count == 1;
        }
    });
    return right;
}

int overflow() {
    weft::Team team((uint64_t(1) << 32) - 50);
    return share_work(team, 2, 200) ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc == 2 && !std::strcmp(argv[1], "overflow")) return overflow();
    std::fprintf(stderr, "usage: thread_pool overflow\n");
    return 2;
}
