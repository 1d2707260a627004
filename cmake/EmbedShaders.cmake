# Puts the texts of shaders/**/*.{comp,glsl} into pumice_engine, for embedded_shader(). A new shader needs no edit here: the
# build looks for files again by itself. This file is also the script that writes the generated source (cmake -P, with ROOT and OUTPUT).

if(CMAKE_SCRIPT_MODE_FILE)
  file(GLOB_RECURSE paths RELATIVE "${ROOT}" "${ROOT}/*.comp" "${ROOT}/*.glsl")
  list(SORT paths)
  set(text "// Generated from shaders/.\n#include \"shader/source/embedded_shaders.h\"\n\nnamespace pumice {\n\nconst EmbeddedShader kEmbeddedShaders[] = {\n")
  foreach(path IN LISTS paths)
    file(READ "${ROOT}/${path}" source)
    # Comments are a third of what the texts take in a wheel. Line breaks stay, so that messages name the lines of the file.
    string(REGEX REPLACE "[ \t]*//[^\n]*" "" source "${source}")
    string(APPEND text "{\"${path}\", R\"pumice(${source})pumice\"},\n")
  endforeach()
  list(LENGTH paths count)
  string(APPEND text "{{}, {}}};\nconst size_t kEmbeddedShaderCount = ${count};\n\n}  // namespace pumice\n")
  file(WRITE "${OUTPUT}" "${text}")
  return()
endif()

set(SHADER_ROOT "${CMAKE_CURRENT_SOURCE_DIR}/shaders")
file(GLOB_RECURSE SHADER_FILES CONFIGURE_DEPENDS "${SHADER_ROOT}/*.comp" "${SHADER_ROOT}/*.glsl")
string(SHA256 SHADER_LIST "${SHADER_FILES}")  # stands in the command line, so that a removed file runs the command again
add_custom_command(
  OUTPUT "${CMAKE_CURRENT_BINARY_DIR}/embedded_shaders.cpp"
  COMMAND "${CMAKE_COMMAND}" "-DROOT=${SHADER_ROOT}" "-DOUTPUT=${CMAKE_CURRENT_BINARY_DIR}/embedded_shaders.cpp" "-DLIST=${SHADER_LIST}"
          -P "${CMAKE_CURRENT_LIST_FILE}"
  DEPENDS ${SHADER_FILES} "${CMAKE_CURRENT_LIST_FILE}"
  COMMENT "Embedding shaders" VERBATIM)
target_sources(pumice_engine PRIVATE "${CMAKE_CURRENT_BINARY_DIR}/embedded_shaders.cpp")
