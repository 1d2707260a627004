# Builds dmpdv, the C interface of the dv driver: a shared library beside the Python module that needs no Python. Its headers, a
# pkg-config file and a CMake package are installed with it; all of them find each other wherever the folder is.

file(GLOB DV_SOURCES CONFIGURE_DEPENDS cpp/dv/c/*.cpp)
add_library(dmpdv SHARED ${DV_SOURCES})
target_link_libraries(dmpdv PRIVATE pumice_engine)
set(DV_EXPORTS "${CMAKE_CURRENT_SOURCE_DIR}/cpp/dv/c/exports.map")
target_link_options(dmpdv PRIVATE "LINKER:--version-script=${DV_EXPORTS}")
set_target_properties(dmpdv PROPERTIES CXX_VISIBILITY_PRESET default LINK_DEPENDS "${DV_EXPORTS}" NO_SONAME ON)
add_dependencies(dmpdv pumice_glslang)

configure_file(cmake/dmpdv.pc.in "${PUMICE_SITE}/lib/pkgconfig/dmpdv.pc" @ONLY)
configure_file(cmake/dmpdv-config.cmake "${PUMICE_SITE}/lib/cmake/dmpdv/dmpdv-config.cmake" COPYONLY)
if(NOT SKBUILD)
  file(CREATE_LINK "${CMAKE_CURRENT_SOURCE_DIR}/cpp/dv/include" "${PUMICE_SITE}/include" SYMBOLIC)
endif()

install(TARGETS dmpdv LIBRARY DESTINATION pumice)
install(DIRECTORY cpp/dv/include/ DESTINATION pumice/include)
install(DIRECTORY "${PUMICE_SITE}/lib" DESTINATION pumice)
