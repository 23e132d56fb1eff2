// The engine compiled for one instruction set; setup.py gives the flags.
#include "../../chain/core/interface.hpp"
#include "interface.hpp"
