# Builds fuzz_dv_commands: with clang a libFuzzer program, else a program that takes files (for AFL++, built with its compilers and
# run with "@@").
add_executable(fuzz_dv_commands tests/fuzz/dv_commands.cpp)
target_link_libraries(fuzz_dv_commands PRIVATE pumice_engine)
set_target_properties(fuzz_dv_commands PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PUMICE_SITE}")
add_dependencies(fuzz_dv_commands pumice_glslang)
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  target_compile_definitions(fuzz_dv_commands PRIVATE PUMICE_LIBFUZZER)
  target_compile_options(fuzz_dv_commands PRIVATE -fsanitize=fuzzer)
  target_link_options(fuzz_dv_commands PRIVATE -fsanitize=fuzzer)
endif()
