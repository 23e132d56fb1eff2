#!/bin/sh
# The variants of the engine for aarch64, built by a cross compiler and run under qemu-user: products, layers, streams
# and chains (tests/core/values.cpp) beside the values of the build that runs here. Each variant runs on a CPU that has
# its instructions and none of the next one.
# Usage: tests/long/aarch64.sh [python]; WORKERS is the number of compilers at once, CROSS the compiler
# (aarch64-linux-gnu-g++; "clang++ --target=aarch64-linux-gnu" does, too), CXX that of this machine (g++).
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
case ${1:-python3} in /*) python=$1 ;; *) python=$(command -v "${1:-python3}") ;; esac
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$root"
PYTHONPATH=$root/src "$python" -m weft.abi

cpu_of() {
    case $1 in
        neon) echo cortex-a72 ;;
        neon_dot) echo cortex-a76 ;;
        neon_bf16) echo max ;;
        *) echo "aarch64.sh: no CPU is known for $1" >&2 && exit 2 ;;
    esac
}

# A line for each variant: its name and the flags that setup.py builds it with.
"$python" - >"$folder/variants" <<'END'
import platform, runpy, setuptools

platform.machine = lambda: "aarch64"
setuptools.setup = lambda **_: None
found = runpy.run_path("setup.py")
for name, flags in found["VARIANTS"].items():
    print(name, *found["FLAGS"], *flags)
END
while read -r variant flags; do
    command="@${CROSS:-aarch64-linux-gnu-g++} $flags -Werror"
    printf '%s.so:\n\t%s -fPIC -shared %s -o $@\n' "$variant" "$command" "$root/src/weft/engine/core/$variant.cpp"
    printf '%s.values:\n\t%s %s -o $@ -ldl\n' "$variant" "$command" "$root/tests/core/values.cpp"
done <"$folder/variants" >"$folder/makefile"
targets=$(sed -n 's/^\(neon[a-z0-9_.]*\):$/\1/p' "$folder/makefile")
# shellcheck disable=SC2086
make --silent --jobs "${WORKERS:-1}" --directory "$folder" $targets

"${CXX:-g++}" -O1 -std=c++20 -Wall -Wextra -Wno-psabi -pthread tests/core/values.cpp -o "$folder/values" -ldl
"$python" -m tests.core.write_programs "$folder/programs"
build=$("$python" -c "from weft.machine import engine_build; print(engine_build().file)")
"$folder/values" "$build" "$folder/programs" write "$folder/reference"
while read -r variant _; do
    echo "aarch64.sh: $variant"
    qemu-aarch64 -L /usr/aarch64-linux-gnu -cpu "$(cpu_of "$variant")" "$folder/$variant.values" \
        "$folder/$variant.so" "$folder/programs" compare "$folder/reference" </dev/null
done <"$folder/variants"
