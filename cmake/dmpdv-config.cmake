# find_package(dmpdv) gives the target dmpdv::dmpdv.
get_filename_component(DMPDV_FOLDER "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(NOT TARGET dmpdv::dmpdv)
  add_library(dmpdv::dmpdv SHARED IMPORTED)
  set_target_properties(dmpdv::dmpdv PROPERTIES
    IMPORTED_LOCATION "${DMPDV_FOLDER}/libdmpdv.so" IMPORTED_NO_SONAME ON
    INTERFACE_INCLUDE_DIRECTORIES "${DMPDV_FOLDER}/include")
endif()
