// Files that are no plug-in for this version, one for each value of KIND.

#include <crossover/crossover.h>

#include "toy.h"

#define KIND_WRONG_VERSION 1
#define KIND_REFUSES 2
#define KIND_DUPLICATE 3
#define KIND_EMPTY 4

#if KIND != 0
const crossover_plugin* crossover_plugin_entry(void) {
  static struct toy_tables tables[2];
  static const crossover_operation* operations[2];
  static crossover_plugin plugin;
  plugin = (crossover_plugin){sizeof plugin, CROSSOVER_ABI_VERSION, 2, operations};
  // The second is refused, so the first must not be there either.
  toy_fill(&tables[0], "bystander", "v1");
  toy_fill(&tables[1], "fp8_block_linear", "v1");
  operations[0] = &tables[0].operation;
  operations[1] = &tables[1].operation;
  if (KIND == KIND_WRONG_VERSION) plugin.abi_version = CROSSOVER_ABI_VERSION + 1;
  if (KIND == KIND_EMPTY) plugin.operation_count = 0;
  return KIND == KIND_REFUSES ? NULL : &plugin;
}
#endif
