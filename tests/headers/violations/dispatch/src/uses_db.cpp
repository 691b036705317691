#include "crossover/db/store.hpp"
