// A driver for the threads of the engine, compiled and run by tests/unit/engine/test_engine_threads.py.
//
// Usage: thread_pool overflow|throws|no_threads. Exit code 0: every piece of work was done exactly once.
#include <sys/resource.h>
#include <unistd.h>
#include <cstdio>
#include <cstring>
#include <stdexcept>

#include "../../src/weft/engine/core/thread_pool.hpp"

namespace {

// Many short turns, each of whose pieces must be done once.
bool share_work(weft::ThreadPool& pool, int64_t threads, int turns) {
    constexpr int64_t kPieces = 24;
    bool right = true;
    pool.run(threads, [&] {
        for (int turn = 0; turn < turns; ++turn) {
            std::atomic<int> done[kPieces] = {};
            pool.parallel_for(kPieces, [&](int64_t first, int64_t last) {
                for (int64_t i = first; i < last; ++i) ++done[i];
            });
            for (const std::atomic<int>& count : done) right = right && count == 1;
        }
    });
    return right;
}

int overflow() {
    weft::ThreadPool pool((uint64_t(1) << 32) - 50);
    return share_work(pool, 2, 200) ? 0 : 1;
}

// A piece that throws ends neither the process nor the pool; parallel_for() throws what it threw.
int throws() {
    weft::ThreadPool pool;
    for (int piece = 0; piece < 8; ++piece) {
        bool caught = false;
        try {
            pool.run(2, [&] {
                pool.parallel_for(8, [&](int64_t first, int64_t last) {
                    if (first <= piece && piece < last) throw std::bad_alloc();
                });
            });
        } catch (const std::bad_alloc&) {
            caught = true;
        }
        if (!caught || !share_work(pool, 2, 5)) return 1;
    }
    try {
        weft::parallel(4, 2, [](int64_t i) {
            if (i == 3) throw std::runtime_error("a piece");
        });
    } catch (const std::runtime_error&) {
        return 0;
    }
    return 1;
}

// Where the system gives no more threads, those that there are do the work.
int no_threads() {
    std::FILE* file = std::fopen("/proc/self/statm", "r");
    long pages = 0;
    if (!file || std::fscanf(file, "%ld", &pages) != 1) return 1;
    std::fclose(file);
    const auto bytes = static_cast<rlim_t>(pages * sysconf(_SC_PAGESIZE) + (1 << 20));  // less than a thread's stack
    const rlimit limit{bytes, bytes};
    if (setrlimit(RLIMIT_AS, &limit)) return 1;
    std::atomic<int> done{0};
    weft::parallel(64, 64, [&](int64_t) { ++done; });
    weft::ThreadPool pool;
    return done == 64 && share_work(pool, 64, 5) ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
    const char* const name = argc == 2 ? argv[1] : "";
    if (!std::strcmp(name, "overflow")) return overflow();
    if (!std::strcmp(name, "throws")) return throws();
    if (!std::strcmp(name, "no_threads")) return no_threads();
    std::fprintf(stderr, "usage: thread_pool overflow|throws|no_threads\n");
    return 2;
}
