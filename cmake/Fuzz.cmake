# Builds a program fuzz_NAME from each tests/fuzz/NAME.cpp; the target fuzz_targets builds all. With clang they use libFuzzer, with other
# compilers tests/fuzz/driver.cpp, which takes the same arguments.
#
# Targets link pumice_parsers: cpp/core and cpp/shader once more, compiled to report their coverage. That leaves the engine as the sanitized
# tests use it. A target that needs more of the engine is in ENGINE_TARGETS, with the sources to compile for coverage.
set(ENGINE_TARGETS dv_commands)
set(dv_commands_SOURCES cpp/dv/commands/*.cpp)

if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  set(COVERAGE_OPTIONS -fsanitize=fuzzer-no-link)
  set(FUZZ_DRIVER "")
else()
  set(COVERAGE_OPTIONS -fsanitize-coverage=trace-pc,trace-cmp)
  set(FUZZ_DRIVER tests/fuzz/driver.cpp)
endif()

file(GLOB_RECURSE PARSER_SOURCES CONFIGURE_DEPENDS cpp/core/*.cpp cpp/shader/*.cpp)
list(FILTER PARSER_SOURCES EXCLUDE REGEX "/cpp/shader/glslang/")
add_library(pumice_parsers STATIC EXCLUDE_FROM_ALL ${PARSER_SOURCES} "${CMAKE_CURRENT_BINARY_DIR}/embedded_shaders.cpp")
target_include_directories(pumice_parsers PUBLIC cpp)
target_link_libraries(pumice_parsers PUBLIC Threads::Threads ${CMAKE_DL_LIBS})
target_compile_options(pumice_parsers PRIVATE ${COVERAGE_OPTIONS})
set_target_properties(pumice_parsers PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)  # half the time; groups as in pumice_engine

add_custom_target(fuzz_targets)
file(GLOB FUZZ_SOURCES CONFIGURE_DEPENDS tests/fuzz/*.cpp)
list(FILTER FUZZ_SOURCES EXCLUDE REGEX "/driver\\.cpp$")
foreach(source IN LISTS FUZZ_SOURCES)
  get_filename_component(name "${source}" NAME_WE)
  add_executable(fuzz_${name} EXCLUDE_FROM_ALL "${source}" ${FUZZ_DRIVER})
  if(name IN_LIST ENGINE_TARGETS)
    file(GLOB sources CONFIGURE_DEPENDS ${${name}_SOURCES})
    add_library(fuzz_${name}_sources OBJECT EXCLUDE_FROM_ALL ${sources})
    target_include_directories(fuzz_${name}_sources PRIVATE cpp)
    target_compile_options(fuzz_${name}_sources PRIVATE ${COVERAGE_OPTIONS})
    target_link_libraries(fuzz_${name} PRIVATE fuzz_${name}_sources pumice_engine)
  else()
    target_link_libraries(fuzz_${name} PRIVATE pumice_parsers)
  endif()
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
  endif()
  set_target_properties(fuzz_${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PUMICE_SITE}")
  add_dependencies(fuzz_${name} pumice_glslang)
  add_dependencies(fuzz_targets fuzz_${name})
endforeach()
