#include "crossover/tuner/tuner.hpp"
