// The interface between Python and C++: one named record for each call, with the fields of engine/abi.py in their
// order.
//
// Python packs a record into memory, eight bytes for each field, and C++ reads that memory as the structure. Where a
// call has lists, further records follow the first one, and each list's length is a field of a record before it. T is
// the type of the values, float or double. A pointer to nothing is nullptr: what it would point to is not there or not
// wanted.
//
// The text of every structure and enumeration is hashed. Python hashes its own, and refuses a library with another
// hash.
#pragma once

#include <cstdint>

namespace weft::abi {

// FNV-1a of a text without its white space.
inline uint64_t hash_text(const char* text) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *text; ++text)
        if (*text != ' ' && *text != '\n') hash = (hash ^ static_cast<unsigned char>(*text)) * 0x100000001b3u;
    return hash;
}

// The sum of the hashes of all that is declared below; a sum, since it does not depend on the order of initialization.
inline uint64_t& layout() {
    static uint64_t sum = 0;
    return sum;
}
inline bool add_layout(const char* text) {
    layout() += hash_text(text);
    return true;
}

// Macros, because only the preprocessor knows the names of fields. A record is declared for any type T of values.
#define WEFT_RECORD(name, ...)                       \
    template <typename T>                            \
    struct name __VA_ARGS__;                         \
    static_assert(sizeof(name<float>) % 8 == 0, ""); \
    inline const bool name##Known = abi::add_layout(#name #__VA_ARGS__)
#define WEFT_ENUM(kind, name, ...)   \
    kind name : int64_t __VA_ARGS__; \
    inline const bool name##Known = abi::add_layout(#name #__VA_ARGS__)

}  // namespace weft::abi

namespace weft {

// What every function of the library returns.
WEFT_ENUM(enum class, Status,
          {ok, out_of_memory,
           id_out_of_range,      // a token id is outside of the vocabulary
           length_out_of_range,  // a length is negative or longer than there are steps
           cannot_sample,        // a stream without ids or without an output layer
           failed});

// The precision of matrix products: of the values as they are; of operands rounded to bfloat16, or, without a backward
// pass, to int8 with a scale for each row. Sums are of the type of the values.
WEFT_ENUM(enum class, Precision, {exact, bfloat16, int8});

// Where the values of a program are. The compiler of programs numbers them.
WEFT_ENUM(enum, Buffer,
          {INPUT,   GATES,   EXTRA,    VECTORS, OUTPUT,      ROW_MASK,  STEP_MASK, STATE,   NEW_STATE,  PRODUCT,
           OPERAND, SCRATCH, D_OUTPUT, D_STATE, D_NEW_STATE, D_PRODUCT, D_OPERAND, D_INPUT, D_PRODUCTS, OPERANDS});
constexpr int BUFFERS = OPERANDS + 1;

WEFT_ENUM(enum class, Op, {copy, add,  sub,    mul,          div,    maximum,   minimum,    lt,          le,
                           eq,   neg,  abs,    sqrt,         rsqrt,  exp,       log,        tanh,        sigmoid,
                           relu, mean, select, multiply_add, d_tanh, d_sigmoid, accumulate, mean_product});

}  // namespace weft

namespace weft::abi {

// ---- weft_new_program: a cell's step, forward and backward.
// The header; for each product a ProductHeader and its ProductBlocks; backward_order indices; three times code (to run,
// to train, backward): a CodeHeader, Places, constants, and for each segment a SegmentHeader, loads, stores,
// Instructions; then ParameterShapes, VectorSources, vector_sums lists, InputVectors, WeightGradients, input_sums
// indices, vector_gradients lists. A list is a ListHeader and its indices.

WEFT_RECORD(ProgramHeader, {
    int64_t hidden_size;  // H
    int64_t blocks;       // of H columns in the projected input
    int64_t states;       // parts of the state
    int64_t products;
    int64_t backward_order;  // indices of products, in the order of the backward pass
    int64_t parameters;      // weight_ih and bias_ih are the first two
    int64_t vectors;         // parameters that are used element by element
    int64_t vector_sums;     // further rows of the table of vectors: sums of some of the first
    int64_t input_vectors;   // vectors that are added to the bias of the projected input
    int64_t extra;           // blocks a token that training keeps beside the projected input
    int64_t d_products;      // blocks a token of gradients of products
    int64_t operands;        // blocks a token of operands that are computed again
    int64_t weight_gradients;
    int64_t input_sums;        // for each input block the sum that is its bias's gradient, or -1
    int64_t vector_gradients;  // for each vector the sums that make up its gradient
    void** program;            // where the handle goes
});
WEFT_RECORD(ProductHeader, {
    int64_t blocks;
    int64_t state;           // the part of the state that is the operand as it stands, or -1
    int64_t operand_buffer;  // where the backward pass finds the operand of all steps
    int64_t operand_part;
    int64_t operand_block;
});
WEFT_RECORD(ProductBlock, {
    int64_t input_block;  // what the product is added to: a block of the projected input, or -1
    int64_t vector;       // or a row of the table of vectors, or -1
    int64_t parameter;    // the weight: H rows of this parameter from `start` on, or columns if it is transposed
    int64_t start;
    int64_t transposed;
});
WEFT_RECORD(CodeHeader, {
    int64_t places;
    int64_t constants;  // doubles
    int64_t sums;       // over rows and steps
    int64_t registers;
    int64_t segments;    // one more than there are products
    int64_t whole_rows;  // whether an instruction needs all units of a row at once
});
WEFT_RECORD(Place, {
    int64_t buffer;
    int64_t part;  // which product, for the buffers that have one part a product
    int64_t block;
});
WEFT_RECORD(SegmentHeader, {
    int64_t loads;  // indices of places
    int64_t stores;
    int64_t instructions;
});
WEFT_RECORD(Instruction, {
    int64_t op;
    int64_t uniform;  // the same on all lanes of a row
    int64_t target;   // entries of the table of places, constants, sums and registers
    int64_t a;
    int64_t b;
    int64_t c;
});
WEFT_RECORD(ParameterShape, {
    int64_t elements;
    int64_t row;  // elements in a row
});
WEFT_RECORD(VectorSource, {
    int64_t parameter;
    int64_t start;
    int64_t single;  // one element for all units
});
WEFT_RECORD(InputVector, {
    int64_t block;
    int64_t vector;
});
WEFT_RECORD(WeightGradient, {
    int64_t product;
    int64_t buffer;  // the place of the gradient of its first block
    int64_t part;
    int64_t block;
    int64_t blocks;
    int64_t parameter;
    int64_t start;
    int64_t transposed;
});
WEFT_RECORD(ListHeader, { int64_t length; });

// ---- weft_forward, weft_backward: layers over time.
// The call; if there are tables, an EmbeddingInput and its Tables; for each layer a Layer and its Directions; then
// addresses: for each direction its parameters and its states before; for each direction its states after, or backward
// their gradients; and backward for each direction the gradients of its parameters and of its states before. A state's
// part is (B, H).

WEFT_RECORD(RunCall, {
    int64_t is_double;
    int64_t threads;
    int64_t rows;              // B
    int64_t steps;             // T
    const int64_t* lengths;    // (B), or nullptr: every row has T steps
    const int64_t* ids;        // (B, T) token ids that the first layer reads
    T* x;                      // (B, T, I) or the values that it reads; neither, if it reads tables
    T* d_x;                    // (B, T, I) their gradient
    T* memory;                 // embedded rows (B, T, E); for each layer, to train, what each direction keeps for the
                               // backward pass, and its outputs (B, T, sum of H), except those of the last
    T* d_memory;               // gradients of the embedded rows, if any is wanted, and of the outputs in `memory`
    T* outputs;                // (B, T, sum of H) of the last layer
    T* d_outputs;              // their gradient: (B, T, sum of H) with rows d_outputs_stride apart
    int64_t d_outputs_stride;  // 0: one value for all
    int64_t train;             // whether values are kept for the backward pass
    int64_t precision;         // of products: Precision; those of doubles are exact
    int64_t tables;
    int64_t layers;
});
WEFT_RECORD(Layer, {
    int64_t directions;  // passes side by side over the same rows
    int64_t keep;        // dropout on what it reads: keep probability times 2^32; 0: no dropout
    int64_t seed;
});
WEFT_RECORD(Direction, {
    void* program;
    int64_t inputs;   // features of x, or the size of the vocabulary
    int64_t reverse;  // each row from its own end to its beginning
    T* row_mask;      // (B, H)
    T* step_mask;     // (B, T, states * H)
});

// ---- weft_embedding: rows of tables side by side, and dropout.
// The call, an EmbeddingInput, Tables. Backward, `values` and the tables are gradients.

WEFT_RECORD(EmbeddingCall, {
    int64_t is_double;
    int64_t threads;
    int64_t backward;
    int64_t positions;  // how many rows are read from each table: B * T
    int64_t steps;      // T
    T* values;          // (B, T, E)
    int64_t tables;
});
WEFT_RECORD(EmbeddingInput, {
    int64_t dropout_width;  // dropout is on the first columns
    int64_t keep;           // keep probability times 2^32; 0: no dropout
    int64_t seed;
    int64_t shared_over_time;  // the same mask at all steps of a row
});
WEFT_RECORD(Table, {
    T* values;  // (rows, width)
    int64_t rows;
    int64_t width;
    const int64_t* ids;         // (B, T), or nullptr: the number of the batch row
    int64_t accumulate;         // backward: the gradient is added to what is there
    const T* zero_probability;  // (rows): how often each id is read as 0
    int64_t seed;               // of the draws for that
});

// ---- weft_dropout

WEFT_RECORD(DropoutCall, {
    int64_t is_double;
    int64_t threads;
    int64_t rows;
    int64_t steps;  // 0: each of rows * width elements for itself; else the same mask at all steps of a row
    int64_t width;
    int64_t keep;  // keep probability times 2^32
    int64_t seed;
    const T* source;  // (rows, steps, width) or (rows, width)
    T* target;        // the same shape
});

// ---- weft_cross_entropy, weft_cross_entropy_backward: an output layer and its loss.

WEFT_RECORD(CrossEntropyCall, {
    int64_t is_double;
    int64_t threads;
    int64_t rows;            // B
    int64_t steps;           // T
    int64_t inputs;          // I
    int64_t classes;         // V
    const T* x;              // (B, T, I)
    const T* weight;         // (V, I)
    const T* bias;           // (V) or nullptr
    const int64_t* targets;  // (B, T)
    const int64_t* lengths;  // (B), or nullptr: every row has T steps
    int64_t ignore_index;    // the target of positions that have no loss
    int64_t keep;            // dropout on x: keep probability times 2^32; 0: no dropout
    int64_t seed;
    int64_t shared_over_time;  // the same mask at all steps of a row
    double label_smoothing;
    int64_t precision;        // of products: Precision; those of doubles are exact
    int64_t sum;              // whether only the sum of all losses is wanted
    T* losses;                // (B, T), or one value
    T* d_logits;              // (targets that count, V): the derivative of each loss; nullptr: no backward pass
    const T* d_losses;        // backward: (B, T), d_losses_stride apart
    int64_t d_losses_stride;  // 1, or 0: one value for all
    T* d_x;
    T* d_weight;
    T* d_bias;
});

// ---- weft_pack_output_layer, weft_top_k

WEFT_RECORD(PackCall, {
    int64_t is_double;
    int64_t threads;
    int64_t classes;  // V
    int64_t inputs;   // I
    const T* weight;  // (V, I)
    const T* bias;    // (V) or nullptr
    T* packed;        // (I + 1) * V elements, V rounded up to 64
});
WEFT_RECORD(TopKCall, {
    int64_t is_double;
    int64_t threads;
    int64_t rows;     // R
    int64_t inputs;   // I
    int64_t classes;  // V
    int64_t k;
    const T* x;    // (R, I)
    T* packed;     // as weft_pack_output_layer has filled it
    T* values;     // (R, k) log-probabilities, best first
    int64_t* ids;  // (R, k)
});

// ---- weft_gradient_norm, weft_optimizer_step

WEFT_RECORD(ParameterState, {
    int64_t size;  // elements of each
    T* weight;
    const T* gradient;
    T* exp_avg;     // moving average of the gradient, or momentum; nullptr: the gradient itself counts
    T* exp_avg_sq;  // moving average of its square; nullptr: no Adam
    T* ema;         // moving average of the weight, or nullptr
});
WEFT_RECORD(StepSize, {
    double size;
    double bias_correction;  // the root of 1 - beta2^step
});
WEFT_RECORD(NormCall, {
    int64_t is_double;
    int64_t threads;
    int64_t parameters;
    const void* states;  // ParameterStates
    double* norm;        // L2 norm of all gradients as one vector
});
WEFT_RECORD(OptimizerCall, {
    int64_t is_double;
    int64_t threads;
    int64_t parameters;
    const void* states;  // ParameterStates
    const void* sizes;   // a StepSize for each
    double gradient_scale;
    double weight_scale;  // 1 - rate * weight decay
    double beta1;
    double beta2;
    double eps;
    double ema_decay;
});

// ---- weft_new_stream, weft_stream_step, weft_stream_sample

// The call; for each layer a StreamLayer and the addresses of its parameters. All of it is copied.
WEFT_RECORD(StreamCall, {
    int64_t is_double;
    int64_t rows;   // B
    int64_t by_id;  // whether the first layer reads token ids
    int64_t layers;
    int64_t vocabulary;  // V; 0: no output layer
    const T* weight;     // (V, H)
    const T* bias;       // (V) or nullptr
    int64_t precision;   // of products: Precision; those of doubles are exact
    void** stream;       // where the handle goes
});
WEFT_RECORD(StreamLayer, {
    void* program;
    int64_t inputs;
});
// The call; the addresses of the parts of all layers' states before, each (B, H), and of those after.
WEFT_RECORD(StreamStepCall, {
    void* stream;
    int64_t threads;
    const void* x;  // ids (B) or values (B, I)
    void* result;   // logits (B, V) or, without an output layer, (B, H)
});
// The call; the addresses of the parts of all layers' states, which change in place.
WEFT_RECORD(SampleCall, {
    void* stream;
    int64_t threads;
    int64_t* ids;            // (B): the tokens to read first; changes
    int64_t steps;           // N
    const double* uniforms;  // (B, N) in [0, 1)
    double temperature;
    int64_t top_k;  // 0: all
    double top_p;
    double min_p;      // 0: all
    double typical_p;  // 1: all
    double repetition_penalty;
    double presence_penalty;
    double frequency_penalty;
    int64_t bias_count;
    const int64_t* bias_ids;
    const double* bias;          // what is added to the log-probabilities of these ids; -infinity: never chosen
    const int64_t* seen_begins;  // (B + 1): where the tokens of each row's text so far begin; nullptr: no penalties
    const int64_t* seen_ids;
    const int64_t* seen_counts;  // how often each was generated; 0: only the prompt has it
    int64_t end;                 // the token that ends a row, or -1
    int64_t* tokens;             // (B, N), -1 from a row's end on
});

// ---- weft_peak

WEFT_RECORD(PeakCall, {
    int64_t threads;
    double* flops;  // additions and multiplications a second
});

// ---- weft_chain_sum: a ChainProblem and ChainResults; weft_chain_viterbi: a ChainProblem and a ViterbiResults.
// B chains over P positions, K states, N rows of scores. Scaled scores are exp(score - peak), rows padded to a multiple
// of 8 and aligned to 64 bytes.

WEFT_RECORD(ChainProblem, {
    int64_t rows;    // B
    int64_t states;  // K
    int64_t threads;
    int64_t positions;         // P
    int64_t table_rows;        // N
    int64_t rows_are_shared;   // 0 where no two positions have the same row of the table
    const int64_t* begins;     // (B) the first position of each chain
    const int64_t* lengths;    // (B)
    const int64_t* ids;        // (P) the row of the table at each position
    const double* start;       // (K) log scores
    const double* transition;  // (K, K) from, to
    const double* end;         // (K)
    const double* table;       // (N, K)
    const double* start_scaled;
    const double* transition_scaled;
    const double* transposed_scaled;  // to, from
    const double* end_scaled;
    const double* table_scaled;
    const double* table_peaks;  // (N)
    double start_end_peak;      // the peaks of start and end together
    double transition_peak;
    const double* weights;  // (B) what each chain counts for in the sums, or nullptr: 1
});
WEFT_RECORD(ChainResults, {
    double* log_z;      // (B)
    int64_t* dead;      // (B) the position in the chain from which on no path is possible, or -1
    double* posterior;  // (P, K)
    double* cavity;     // (P, K) the same without the position's own score
    double* first;      // weighted sums: (K)
    double* pairs;      // (K, K)
    double* last;       // (K)
    double* table;      // (N, K)
});
WEFT_RECORD(ViterbiResults, {
    const double* transition_padded;  // (K, K padded to a multiple of 8 with -inf), aligned to 64 bytes
    int64_t* states;                  // (P)
    double* score;                    // (B)
});

#undef WEFT_RECORD
#undef WEFT_ENUM

// Reads the records of a call one after the other.
class Reader {
  public:
    explicit Reader(const void* data) : next_(static_cast<const char*>(data)) {}
    template <typename Record>
    const Record& take() {
        return *take<Record>(1);
    }
    template <typename Record>
    const Record* take(int64_t count) {
        const auto* found = reinterpret_cast<const Record*>(next_);
        next_ += count * static_cast<int64_t>(sizeof(Record));
        return found;
    }

  private:
    const char* next_;
};

}  // namespace weft::abi
