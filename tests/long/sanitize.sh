#!/bin/sh
# The tests of the engine and of the chains with a core that checks every access and every operation: AddressSanitizer and
# UndefinedBehaviorSanitizer, for each instruction set that this CPU has.
# Usage: tests/long/sanitize.sh [python [variant...]]; WORKERS is the number of test processes, CXX the compiler (g++).
set -eu
python=${1:-python3}
[ $# -gt 0 ] && shift
root=$(cd "$(dirname "$0")/../.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
core=$root/src/weft/engine/core
PYTHONPATH=$root/src "$python" -m weft.abi
compiler=${CXX:-g++}
common="-O1 -g1 -std=c++20 -fPIC -shared -fvisibility=hidden -fno-math-errno -Wall -Wextra -Wno-psabi -pthread"
check="-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer"

flags_of() {
    case $1 in
        avx512_bf16) echo "-mavx512f -mavx512dq -mavx512bw -mavx512vl -mavx512bf16 -mavx512vnni -mfma" ;;
        avx512) echo "-mavx512f -mavx512dq -mavx512bw -mavx512vl -mfma" ;;
        avx2) echo "-mavx2 -mfma" ;;
        neon_bf16) echo "-march=armv8.2-a+dotprod+bf16" ;;
        neon_dot) echo "-march=armv8.2-a+dotprod" ;;
        baseline | neon) ;;
        *) echo "sanitize.sh: $1 is no variant of setup.py" >&2 && exit 2 ;;
    esac
}

if [ $# -eq 0 ]; then
    grep -q avx512_bf16 /proc/cpuinfo 2>/dev/null && set -- "$@" avx512_bf16
    grep -q avx512dq /proc/cpuinfo 2>/dev/null && set -- "$@" avx512
    grep -q avx2 /proc/cpuinfo 2>/dev/null && set -- "$@" avx2
    case $(uname -m) in
        aarch64 | arm64)
            grep -qw bf16 /proc/cpuinfo 2>/dev/null && set -- "$@" neon_bf16
            grep -qw asimddp /proc/cpuinfo 2>/dev/null && set -- "$@" neon_dot
            set -- "$@" neon
            ;;
        *) set -- "$@" baseline ;;
    esac
fi
# One make job for each variant, WORKERS of them at a time.
for variant in "$@"; do
    flags=$(flags_of "$variant")
    printf '%s.so:\n\t@%s %s %s %s %s -o $@\n' "$variant" "$compiler" "$common" "$check" "$flags" "$core/$variant.cpp"
    targets="${targets:-} $variant.so"
done >"$folder/makefile"
# shellcheck disable=SC2086
make --silent --jobs "${WORKERS:-1}" --directory "$folder" $targets

# All tests with the first variant; with the others those of the arithmetic, which is what they differ in. Tests that
# limit memory, start other processes or compare with another build do not go with a sanitizer.
unless="compiled or workers or variants or instruction or running_out or memory or build or abi or threads or missing"
which="not ($unless)"
export OMP_NUM_THREADS=2 ASAN_OPTIONS=detect_leaks=0:detect_odr_violation=0 UBSAN_OPTIONS=print_stacktrace=1
preload="$("$compiler" -print-file-name=libasan.so):$("$compiler" -print-file-name=libubsan.so)"
for variant in "$@"; do
    echo "sanitize.sh: $variant"
    WEFT_ENGINE="$folder/$variant.so" LD_PRELOAD="$preload" \
        "$python" -m pytest -p no:cacheprovider -n "${WORKERS:-1}" "$root"/tests/unit/engine/test_engine*.py \
        "$root/tests/unit/training/test_optimize.py" "$root/tests/brute/test_chain.py" "$root/tests/brute/test_crf.py" -k "$which"
    which="(every_cell or test_engine_stream or test_engine_top_k or test_chain) and not ($unless)"
done
