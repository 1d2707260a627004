# With PUMICE_UNITY several files of a folder are compiled as one, so that their headers and templates are compiled once. A build from
# nothing then takes about half the processor time, while an edit costs more: installs are built so, and developers' builds are not.
# Files of two folders never meet; names in anonymous namespaces have to differ within a folder.

# unite(<target> <most files in one> <source>...)
function(unite target most)
  set_target_properties(${target} PROPERTIES UNITY_BUILD "${PUMICE_UNITY}" UNITY_BUILD_MODE GROUP)
  set(previous "")
  foreach(source IN LISTS ARGN)
    file(RELATIVE_PATH folder "${CMAKE_CURRENT_SOURCE_DIR}" "${source}")  # a whole path may be too long for a file's name
    get_filename_component(folder "${folder}" DIRECTORY)
    if(NOT folder STREQUAL previous)
      set(previous "${folder}")
      string(MAKE_C_IDENTIFIER "${folder}" name)
      set(count 0)
    endif()
    math(EXPR group "${count} / ${most}")
    math(EXPR count "${count} + 1")
    set_source_files_properties("${source}" PROPERTIES UNITY_GROUP "${name}_${group}")
  endforeach()
endfunction()
