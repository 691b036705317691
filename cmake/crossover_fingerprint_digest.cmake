# cmake -DFILES=a|b -DFLAGS=… -DCOMPILER=… -DFUNCTION=ns::f -DOUTPUT=out.cpp -P: writes a source whose function returns the
# digest, the first 32 of SHA-256's hex digits. Called by crossover_fingerprint.

string(REPLACE "|" ";" files "${FILES}")
set(text "${COMPILER}\n${FLAGS}\n")
foreach(file IN LISTS files)
  file(SHA256 ${file} digest)
  string(APPEND text "${digest}\n")
endforeach()
string(SHA256 digest "${text}")
string(SUBSTRING ${digest} 0 32 digest)
string(REGEX REPLACE "::[^:]*$" "" namespace "${FUNCTION}")
string(REGEX REPLACE "^.*::" "" function "${FUNCTION}")
file(WRITE ${OUTPUT}.new "#include <string_view>

namespace ${namespace} {
std::string_view ${function}();
std::string_view ${function}() { return \"${digest}\"; }
}  // namespace ${namespace}
")
file(COPY_FILE ${OUTPUT}.new ${OUTPUT} ONLY_IF_DIFFERENT)
file(TOUCH_NOCREATE ${OUTPUT})
file(REMOVE ${OUTPUT}.new)
