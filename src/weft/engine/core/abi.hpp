// The interface between Python and C++: the records and enumerations of src/weft/abi.py, which are declared there and
// come here as records.hpp, and their reader.
#pragma once

#include "records.hpp"  // written by setup.py or `python -m weft.abi`

namespace weft {

constexpr int BUFFERS = OPERANDS + 1;

}  // namespace weft

namespace weft::abi {

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
