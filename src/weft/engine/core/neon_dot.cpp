// The engine compiled for one instruction set; setup.py gives the flags.
#include "../../chains/core/interface.hpp"
#include "interface.hpp"
