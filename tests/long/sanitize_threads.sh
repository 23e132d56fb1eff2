#!/bin/sh
# The thread pool, a stream and a layer under ThreadSanitizer, by C++ drivers: Python and torch are not made for it.
# Usage: tests/long/sanitize_threads.sh [python]; CXX is the compiler (g++).
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
compiler=${CXX:-g++}
PYTHONPATH=$root/src "${1:-python3}" -m weft.abi
export TSAN_OPTIONS=halt_on_error=1
for driver in thread_pool stream layer; do
    "$compiler" -O1 -g1 -std=c++20 -Wall -Wextra -Wno-psabi -pthread -fsanitize=thread \
        "$root/tests/core/$driver.cpp" -o "$folder/$driver"
done
for test in "thread_pool overflow" "thread_pool throws" "stream" "layer"; do
    echo "sanitize_threads.sh: $test"
    # shellcheck disable=SC2086
    "$folder/"$test
done
