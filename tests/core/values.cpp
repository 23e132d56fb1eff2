// Values of products, layers, streams and chains by a build of the engine, written to a file or compared with one that
// another build wrote: of another instruction set, for example.
//
// Usage: values LIBRARY PROGRAMS write|compare FILE. PROGRAMS is written by tests/core/write_programs.py. Exit code 0:
// all values are those of the file, up to rounding, and do not depend on the number of threads.
#include <dlfcn.h>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>
#include <string>

#include "../../src/weft/engine/core/gemm.hpp"
#include "small_values.hpp"

namespace {

using Values = std::vector<double>;

// The largest difference from another build, relative to the largest value. Layers amplify differences of rounding, and
// a value of an activation in int8 may become its neighbour.
const std::map<std::string, double> kTolerance = {{"double", 1e-12}, {"float", 1e-5}, {"bf16", 3e-3}, {"int8", 3e-3}};

struct Results {
    std::map<std::string, Values> sections;  // the name ends with the precision

    template <typename T>
    void add(const std::string& name, const std::vector<T>& values) {
        Values& section = sections[name];
        for (T value : values) section.push_back(static_cast<double>(value));
    }

    void write(const char* path) const {
        std::ofstream file(path);
        file.precision(17);
        for (const auto& [name, values] : sections) {
            file << name << ' ' << values.size();
            for (double value : values) file << ' ' << value;
            file << '\n';
        }
    }

    bool compare(const char* path) const {
        std::ifstream file(path);
        std::string name;
        size_t count, sections_of_file = 0;
        std::map<std::string, double> worst;
        bool right = true;
        while (file >> name >> count) {
            ++sections_of_file;
            Values wanted(count);
            for (double& value : wanted) file >> value;
            const auto found = sections.find(name);
            if (found == sections.end() || found->second.size() != count) {
                std::fprintf(stderr, "values: %s is not in both\n", name.c_str());
                return false;
            }
            double largest = 0, error = 0;
            for (size_t i = 0; i < count; ++i) {
                largest = std::max(largest, std::fabs(wanted[i]));
                const double apart = std::fabs(found->second[i] - wanted[i]);
                error = apart <= error ? error : apart;  // a NaN stays
            }
            error /= largest;
            const std::string precision = name.substr(name.rfind('/') + 1);
            worst[precision] = error <= worst[precision] ? worst[precision] : error;
            if (!(error <= kTolerance.at(precision))) {
                std::fprintf(stderr, "values: %s differs by %.3g of its largest value\n", name.c_str(), error);
                right = false;
            }
        }
        for (const auto& [precision, error] : worst)
            std::printf("values: %-6s differs by at most %.2g\n", precision.c_str(), error);
        return right && sections_of_file == sections.size();
    }
};

std::string name_of(weft::Precision precision, bool is_double) {
    if (precision == weft::Precision::bfloat16) return "bf16";
    if (precision == weft::Precision::int8) return "int8";
    return is_double ? "double" : "float";
}

template <typename T>
std::vector<T> random(int64_t count, uint64_t seed, double scale) {
    std::vector<T> found;
    for (float value : small_values(count, seed)) found.push_back(static_cast<T>(10 * scale * value));
    return found;
}

// The library's functions by their names in C.
struct Library {
    void* handle;
    int call(const char* name, const void* data) const {
        auto* function = reinterpret_cast<int (*)(const void*)>(dlsym(handle, name));
        if (!function) throw std::runtime_error(std::string("no function ") + name);
        return function(data);
    }
    void run(const char* name, const void* data) const {
        if (const int status = call(name, data))
            throw std::runtime_error(name + (": status " + std::to_string(status)));
    }
};

// The records of a call, one after the other.
struct Records {
    std::vector<int64_t> words;
    template <typename Record>
    void add(const Record& record) {
        const auto* from = reinterpret_cast<const int64_t*>(&record);
        words.insert(words.end(), from, from + sizeof(Record) / sizeof(int64_t));
    }
    template <typename T>
    void add_addresses(std::vector<std::vector<T>>& memory) {
        for (std::vector<T>& values : memory) words.push_back(reinterpret_cast<int64_t>(values.data()));
    }
};

// A cell's program in the library.
struct Cell {
    int64_t inputs, hidden, states, kept;
    std::vector<int64_t> sizes;  // elements of each parameter
    void* program;

    template <typename T>
    std::vector<std::vector<T>> parameters() const {
        std::vector<std::vector<T>> found;
        for (int64_t size : sizes) found.push_back(random<T>(size, found.size() + 1, 0.3));
        return found;
    }
};

std::vector<Cell> read_cells(const Library& library, const char* path) {
    std::ifstream file(path, std::ios::binary);
    auto number = [&] {
        int64_t value = 0;
        file.read(reinterpret_cast<char*>(&value), sizeof value);
        return value;
    };
    std::vector<Cell> cells(static_cast<size_t>(number()));
    for (Cell& cell : cells) {
        cell.inputs = number();
        cell.sizes.resize(static_cast<size_t>(number()));
        for (int64_t& size : cell.sizes) size = number();
        std::vector<int64_t> words(static_cast<size_t>(number()));
        for (int64_t& word : words) word = number();
        auto* header = reinterpret_cast<weft::abi::ProgramHeader<void>*>(words.data());
        cell.hidden = header->hidden_size;
        cell.states = header->states;
        cell.kept = (header->blocks + header->extra) * header->hidden_size;
        header->program = &cell.program;
        library.run("weft_new_program", words.data());
    }
    return cells;
}

// C = start + A B for all layouts of A and B.
template <typename T>
void multiply(Results& results, weft::Precision precision) {
    using weft::Gemm;
    for (const auto& [rows, columns, depth] : {std::array{70, 40, 1100}, {5, 16, 1}, {1, 97, 64}, {33, 7, 30}}) {
        const int64_t m = rows, n = columns, k = depth;
        const std::vector<T> a = random<T>(m * k, 1, 1), b = random<T>(k * n, 2, 1), start = random<T>(n, 3, 1);
        for (bool a_by_row : {true, false})
            for (bool b_by_row : {true, false}) {
                if (precision == weft::Precision::int8 && !a_by_row) continue;
                std::vector<T> c(static_cast<size_t>(m * n));
                weft::Gemms<T> products;
                products.add({.rows = m,
                              .columns = n,
                              .depth = k,
                              .a = a.data(),
                              .a_row = a_by_row ? k : 1,
                              .a_depth = a_by_row ? 1 : m,
                              .b = b.data(),
                              .b_depth = b_by_row ? n : 1,
                              .b_column = b_by_row ? 1 : k,
                              .c = c.data(),
                              .c_row = n,
                              .start = start.data()});
                products[0].precision = precision;
                weft::Workspace workspace;
                weft::Arena<T> arena;
                products.ask(arena);
                arena.settle(workspace);
                weft::Jobs jobs;
                products.pack(jobs, false);
                jobs.run(1);
                products.multiply(jobs);
                jobs.run(1);
                const std::string layout = std::to_string(a_by_row) + std::to_string(b_by_row);
                results.add("gemm/" + std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k) + "-" +
                                layout + "/" + name_of(precision, sizeof(T) == 8),
                            c);
            }
    }
}

// Outputs and last states of a layer over rows of different lengths and, unless in int8, all gradients.
template <typename T>
std::vector<T> run_layer(const Library& library, const Cell& cell, weft::Precision precision, int64_t rows,
                         bool reverse, int64_t threads) {
    constexpr int64_t kSteps = 9;
    const bool train = precision != weft::Precision::int8;
    std::vector<int64_t> lengths;
    int64_t tokens = 0;
    for (int64_t row = 0; row < rows; ++row) tokens += lengths.emplace_back(kSteps - row % 4);
    const int64_t H = cell.hidden, positions = rows * kSteps;
    auto zeros = [](int64_t count) { return std::vector<T>(static_cast<size_t>(count)); };
    std::vector<T> x = random<T>(positions * cell.inputs, 50, 1), d_x = zeros(positions * cell.inputs),
                   memory = zeros(tokens * cell.kept), outputs = zeros(positions * H),
                   d_outputs = random<T>(positions * H, 51, 1);
    std::vector<std::vector<T>> parameters = cell.parameters<T>(), d_parameters, first, last, d_first, d_last;
    for (const std::vector<T>& values : parameters) d_parameters.push_back(zeros(static_cast<int64_t>(values.size())));
    for (int64_t i = 0; i < cell.states; ++i) {
        first.push_back(random<T>(rows * H, 60 + static_cast<uint64_t>(i), 0.5));
        d_last.push_back(random<T>(rows * H, 70 + static_cast<uint64_t>(i), 1));
        last.push_back(zeros(rows * H));
        d_first.push_back(zeros(rows * H));
    }
    for (bool backward : {false, true}) {
        if (backward && !train) break;
        Records records;
        records.add(weft::abi::RunCall<T>{.is_double = sizeof(T) == 8,
                                          .threads = threads,
                                          .rows = rows,
                                          .steps = kSteps,
                                          .lengths = lengths.data(),
                                          .ids = nullptr,
                                          .x = x.data(),
                                          .d_x = backward ? d_x.data() : nullptr,
                                          .memory = memory.data(),
                                          .d_memory = nullptr,
                                          .outputs = outputs.data(),
                                          .d_outputs = backward ? d_outputs.data() : nullptr,
                                          .d_outputs_stride = H,
                                          .train = train,
                                          .precision = static_cast<int64_t>(precision),
                                          .half_kept = 0,
                                          .tables = 0,
                                          .layers = 1});
        records.add(weft::abi::Layer<T>{.directions = 1, .keep = 0, .seed = 0});
        records.add(weft::abi::Direction<T>{.program = cell.program,
                                            .inputs = cell.inputs,
                                            .reverse = reverse,
                                            .row_mask = nullptr,
                                            .step_mask = nullptr,
                                            .weights = nullptr});
        records.add_addresses(parameters);
        records.add_addresses(first);
        records.add_addresses(backward ? d_last : last);
        if (backward) records.add_addresses(d_parameters);
        if (backward) records.add_addresses(d_first);
        library.run(backward ? "weft_backward" : "weft_forward", records.words.data());
    }
    std::vector<T> all = outputs;
    for (const auto* values : {&last, &d_parameters, &d_first})
        for (const std::vector<T>& part : *values) all.insert(all.end(), part.begin(), part.end());
    all.insert(all.end(), d_x.begin(), d_x.end());
    return all;
}

template <typename T>
bool run_layers(Results& results, const Library& library, const std::vector<Cell>& cells, weft::Precision precision) {
    for (size_t c = 0; c < cells.size(); ++c)
        for (int64_t rows : {1, 3, 23}) {
            const std::string name = "layer/" + std::to_string(c) + "-" + std::to_string(rows);
            const bool reverse = rows == 3;
            const std::vector<T> values = run_layer<T>(library, cells[c], precision, rows, reverse, 1);
            if (values != run_layer<T>(library, cells[c], precision, rows, reverse, 3)) {
                std::fprintf(stderr, "values: %s depends on the threads\n", name.c_str());
                return false;
            }
            results.add(name + "/" + name_of(precision, sizeof(T) == 8), values);
        }
    return true;
}

// The weights of a cell as a stream reads them.
void* pack(const Library& library, const Cell& cell, std::vector<std::vector<float>>& parameters, int64_t by_id,
           weft::Precision precision) {
    int64_t bytes = 0;
    void* weights = nullptr;
    Records records;
    records.add(weft::abi::PackWeightsCall<float>{.is_double = 0,
                                                  .program = cell.program,
                                                  .inputs = cell.inputs,
                                                  .by_id = by_id,
                                                  .precision = static_cast<int64_t>(precision),
                                                  .bytes = &bytes,
                                                  .weights = &weights});
    records.add_addresses(parameters);
    library.run("weft_pack_weights", records.words.data());
    return weights;
}

// Logits of some steps of a stream of two layers.
void run_stream(Results& results, const Library& library, Cell first, Cell second, weft::Precision precision) {
    constexpr int64_t kRows = 7;
    const int64_t V = first.inputs, H = first.hidden;
    std::vector<std::vector<float>> one = first.parameters<float>(), two = second.parameters<float>(), states;
    const std::vector<float> weight = random<float>(V * H, 80, 1), bias = random<float>(V, 81, 1);
    void* stream = nullptr;
    Records records;
    records.add(weft::abi::StreamCall<float>{.is_double = 0,
                                             .rows = kRows,
                                             .by_id = 1,
                                             .layers = 2,
                                             .vocabulary = V,
                                             .weight = weight.data(),
                                             .bias = bias.data(),
                                             .precision = static_cast<int64_t>(precision),
                                             .stream = &stream});
    void* packed[] = {pack(library, first, one, 1, precision), pack(library, second, two, 0, precision)};
    for (void* weights : packed) records.add(weft::abi::StreamLayer<float>{.weights = weights});
    library.run("weft_new_stream", records.words.data());
    for (void* weights : packed) library.run("weft_free_weights", weights);  // the stream keeps them
    const size_t parts = static_cast<size_t>(first.states + second.states);
    for (size_t i = 0; i < 2 * parts; ++i) states.emplace_back(static_cast<size_t>(kRows * H));
    std::vector<float> logits(static_cast<size_t>(kRows * V));
    for (int64_t step = 0; step < 6; ++step) {
        int64_t ids[kRows];
        for (int64_t row = 0; row < kRows; ++row) ids[row] = (5 * row + step) % V;
        Records call;
        call.add(weft::abi::StreamStepCall<void>{.stream = stream, .threads = 1, .x = ids, .result = logits.data()});
        call.add_addresses(states);
        library.run("weft_stream_step", call.words.data());
        for (size_t i = 0; i < parts; ++i) states[i].swap(states[parts + i]);
        results.add("stream/" + name_of(precision, false), logits);
    }
    library.run("weft_free_stream", stream);
}

// Rows of scaled scores, each padded to a multiple of 8.
struct Scaled {
    weft::Workspace memory;
    double* data;
    Scaled(int64_t rows, int64_t count, const std::function<double(int64_t, int64_t)>& value, double padding = 0) {
        const int64_t padded = (count + 7) / 8 * 8;
        data = memory.elements<double>(rows * padded);
        for (int64_t row = 0; row < rows; ++row)
            for (int64_t k = 0; k < padded; ++k) data[row * padded + k] = k < count ? value(row, k) : padding;
    }
};

// Sums over all paths and best paths of some chains.
void run_chains(Results& results, const Library& library) {
    for (int64_t K : {3, 17, 40}) {
        constexpr int64_t kRows = 3, kPositions = 60;
        const std::vector<double> start = random<double>(K, 90, 3), A = random<double>(K * K, 91, 3),
                                  end = random<double>(K, 92, 3), table = random<double>(kPositions * K, 93, 3);
        const int64_t begins[] = {0, 20, 21}, lengths[] = {20, 1, 39};
        std::vector<int64_t> ids(kPositions), dead(kRows), path(kPositions);
        for (size_t t = 0; t < ids.size(); ++t) ids[t] = static_cast<int64_t>(t);
        const auto at = [K](const std::vector<double>& values) {
            return [&values, K](int64_t row, int64_t k) { return std::exp(values[static_cast<size_t>(row * K + k)]); };
        };
        const Scaled start_scaled(1, K, at(start)), end_scaled(1, K, at(end)), scores(kPositions, K, at(table)),
            transition(K, K, at(A)), transposed(K, K, [&](int64_t j, int64_t i) { return at(A)(i, j); });
        const Scaled padded(
            K, K, [&](int64_t i, int64_t j) { return A[static_cast<size_t>(i * K + j)]; }, -HUGE_VAL);
        const std::vector<double> peaks(kPositions);
        std::vector<double> log_z(kRows), score(kRows), posterior(static_cast<size_t>(kPositions * K)), pairs(A.size()),
            first(start.size()), last(end.size()), sums(table.size());
        Records records;
        records.add(weft::abi::ChainProblem<double>{.rows = kRows,
                                                    .states = K,
                                                    .threads = 2,
                                                    .positions = kPositions,
                                                    .table_rows = kPositions,
                                                    .rows_are_shared = 0,
                                                    .begins = begins,
                                                    .lengths = lengths,
                                                    .ids = ids.data(),
                                                    .start = start.data(),
                                                    .transition = A.data(),
                                                    .end = end.data(),
                                                    .table = table.data(),
                                                    .start_scaled = start_scaled.data,
                                                    .transition_scaled = transition.data,
                                                    .transposed_scaled = transposed.data,
                                                    .end_scaled = end_scaled.data,
                                                    .table_scaled = scores.data,
                                                    .table_peaks = peaks.data(),
                                                    .start_end_peak = 0,
                                                    .transition_peak = 0,
                                                    .weights = nullptr});
        Records viterbi = records;
        records.add(weft::abi::ChainResults<double>{.log_z = log_z.data(),
                                                    .dead = dead.data(),
                                                    .posterior = posterior.data(),
                                                    .cavity = nullptr,
                                                    .first = first.data(),
                                                    .pairs = pairs.data(),
                                                    .last = last.data(),
                                                    .table = sums.data()});
        viterbi.add(weft::abi::ViterbiResults<double>{
            .transition_padded = padded.data, .states = path.data(), .score = score.data()});
        library.run("weft_chain_sum", records.words.data());
        library.run("weft_chain_viterbi", viterbi.words.data());
        const std::string name = "chains/" + std::to_string(K);
        for (const auto& [part, values] : {std::pair{"log_z", &log_z},
                                           {"posterior", &posterior},
                                           {"first", &first},
                                           {"pairs", &pairs},
                                           {"last", &last},
                                           {"table", &sums},
                                           {"score", &score}})
            results.add(name + "-" + part + "/double", *values);
        results.add(name + "-path/double", path);
    }
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 5) {
        std::fprintf(stderr, "usage: values LIBRARY PROGRAMS write|compare FILE\n");
        return 2;
    }
    const Library library{dlopen(argv[1], RTLD_NOW)};
    if (!library.handle) {
        std::fprintf(stderr, "values: %s\n", dlerror());
        return 2;
    }
    using weft::Precision;
    Results results;
    const std::vector<Cell> cells = read_cells(library, argv[2]);
    multiply<double>(results, Precision::exact);
    bool right = run_layers<double>(results, library, cells, Precision::exact);
    for (Precision precision : {Precision::exact, Precision::bfloat16, Precision::int8}) {
        multiply<float>(results, precision);
        right = right && run_layers<float>(results, library, cells, precision);
        run_stream(results, library, cells[0], cells[1], precision);
    }
    run_chains(results, library);
    if (!right) return 1;
    if (std::string(argv[3]) == "compare") return results.compare(argv[4]) ? 0 : 1;
    results.write(argv[4]);
    return 0;
}
