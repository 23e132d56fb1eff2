// The engine compiled for one instruction set; setup.py gives the flags.
#include "interface.hpp"
#include "../../chains/core/interface.hpp"
