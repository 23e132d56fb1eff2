#!/bin/sh
# The engine's tests with a core that checks every access and every operation: AddressSanitizer and UBSan.
# Usage: tests/sanitize.sh [python]
set -eu
python=${1:-python3}
root=$(cd "$(dirname "$0")/.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
core=$root/src/weft/engine/core
common="-O1 -g -std=c++17 -fPIC -shared -fvisibility=hidden -fno-math-errno -Wno-psabi -pthread"
check="-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer"
variant=baseline
flags=""
if grep -q avx512dq /proc/cpuinfo 2>/dev/null; then
    variant=avx512
    flags="-mavx512f -mavx512dq -mavx512bw -mavx512vl -mfma"
fi
# shellcheck disable=SC2086
g++ $common $check $flags "$core/$variant.cpp" -o "$folder/sanitized.so"
export WEFT_ENGINE="$folder/sanitized.so" OMP_NUM_THREADS=2
export ASAN_OPTIONS=detect_leaks=0:detect_odr_violation=0 UBSAN_OPTIONS=print_stacktrace=1
export LD_PRELOAD="$(g++ -print-file-name=libasan.so):$(g++ -print-file-name=libubsan.so)"
"$python" -m pytest -p no:cacheprovider -p no:xdist "$root/tests/unit/test_engine.py" "$root/tests/unit/test_engine_run.py" \
    "$root/tests/unit/test_engine_stream.py" \
    "$root/tests/unit/test_engine_noise.py" "$root/tests/unit/test_engine_embedding.py" "$root/tests/unit/test_engine_readout.py" \
    "$root/tests/unit/test_engine_likeliest.py" "$root/tests/unit/test_optimize.py" \
    -k "not compiled and not workers and not variants"
