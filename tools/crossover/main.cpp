#include "command.hpp"

int main(int count, char** values) { return crossover::program::run_program(count, values); }
