# With PUMICE_UNITY several files of a folder are compiled as one, so that their headers and templates are compiled once. A build from
# nothing takes about half the processor time of one without.
# Files of two folders never meet. Two files of a folder may have the same name in an anonymous namespace: if the compiler reports a
# redefinition, add one of them to PUMICE_OWN_UNITS in CMakeLists.txt, so that it is compiled alone.

# unite(<target> <most bytes of source in one> <source>...): files go together in the order given. What one compiler needs in memory grows
# with the text it reads, so groups are counted in bytes.
function(unite target most)
  set_target_properties(${target} PROPERTIES UNITY_BUILD "${PUMICE_UNITY}" UNITY_BUILD_MODE GROUP)
  foreach(source IN LISTS ARGN)
    file(RELATIVE_PATH name "${CMAKE_CURRENT_SOURCE_DIR}" "${source}")
    if(name IN_LIST PUMICE_OWN_UNITS)
      set_source_files_properties("${source}" PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
      continue()
    endif()
    file(RELATIVE_PATH folder "${CMAKE_CURRENT_SOURCE_DIR}" "${source}")  # a whole path may be too long for a file's name
    get_filename_component(folder "${folder}" DIRECTORY)
    string(MAKE_C_IDENTIFIER "${folder}" name)
    if(NOT DEFINED group_${name})
      set(group_${name} 0)
      set(bytes_${name} 0)
    endif()
    file(SIZE "${source}" bytes)
    math(EXPR sum "${bytes_${name}} + ${bytes}")
    if(sum GREATER most AND bytes_${name} GREATER 0)
      math(EXPR group_${name} "${group_${name}} + 1")
      set(sum ${bytes})
    endif()
    set(bytes_${name} ${sum})
    set_source_files_properties("${source}" PROPERTIES UNITY_GROUP "${name}_${group_${name}}")
  endforeach()
endfunction()
