// The chain recursions compiled for one instruction set; setup.py gives the flags.
#include "interface.hpp"
