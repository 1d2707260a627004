# Builds pumice._pumice, stages the package of a development build, and says which files a wheel installs.

if(NOT pybind11_DIR OR NOT EXISTS "${pybind11_DIR}")  # a cached folder of an isolated build vanishes with that build
  execute_process(
    COMMAND "${Python_EXECUTABLE}" -m pybind11 --cmakedir
    OUTPUT_VARIABLE pybind11_DIR OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  set(pybind11_DIR "${pybind11_DIR}" CACHE PATH "CMake folder of pybind11" FORCE)
endif()
find_package(pybind11 3 CONFIG REQUIRED)

file(GLOB BINDING_SOURCES CONFIGURE_DEPENDS src/*.cpp)
# -O1 takes a quarter less time to compile pybind11's templates than -O2. Files whose calls take a microsecond or less keep -O2: there a
# call would be 3 to 8% slower; calls that run something are as quick either way. They are a target of their own, because files with
# options of their own share no unit. GCC 12 fails with a header precompiled at another level.
set(QUICK_CALLS core dispatch kernel tensor)
list(TRANSFORM QUICK_CALLS REPLACE "(.+)" "${CMAKE_CURRENT_SOURCE_DIR}/src/\\1.cpp")
list(REMOVE_ITEM BINDING_SOURCES ${QUICK_CALLS})
add_library(pumice_quick_calls OBJECT ${QUICK_CALLS})
pybind11_add_module(_pumice MODULE NO_EXTRAS ${BINDING_SOURCES})
target_link_libraries(pumice_quick_calls PRIVATE pumice_engine pybind11::module)
target_link_libraries(_pumice PRIVATE pumice_engine pumice_quick_calls)
target_precompile_headers(_pumice PRIVATE <pybind11/pybind11.h> <pybind11/numpy.h> <pybind11/stl.h> <pybind11/functional.h>)
target_compile_options(_pumice PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)  # ccache needs this for precompiled headers
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_BUILD_TYPE STREQUAL "Release" AND NOT PUMICE_SANITIZE)
  target_compile_options(_pumice PRIVATE -O1)
endif()
# A file that only includes bindings.h costs 40% of what a unit of 16,000 bytes does: it compiles pybind11's functions. The small files go
# first, so that they are put together. A compiler takes up to 900 MB.
set(by_size "")
foreach(source IN LISTS BINDING_SOURCES)
  file(SIZE "${source}" bytes)
  list(APPEND by_size "${bytes} ${source}")
endforeach()
list(SORT by_size COMPARE NATURAL)
list(TRANSFORM by_size REPLACE "^[0-9]+ " "")
unite(_pumice 50000 ${by_size})
unite(pumice_quick_calls 50000 ${QUICK_CALLS})
target_compile_definitions(_pumice PRIVATE PUMICE_VERSION="${PROJECT_VERSION}")
add_dependencies(_pumice pumice_glslang)

if(NOT SKBUILD)
  file(GLOB PYTHON_FILES CONFIGURE_DEPENDS LIST_DIRECTORIES true python/pumice/*)
  file(MAKE_DIRECTORY "${PUMICE_SITE}")
  foreach(path IN LISTS PYTHON_FILES)
    get_filename_component(file "${path}" NAME)
    if(NOT file STREQUAL "__pycache__")
      file(CREATE_LINK "${path}" "${PUMICE_SITE}/${file}" SYMBOLIC)
    endif()
  endforeach()
endif()

install(TARGETS _pumice pumice_glslang LIBRARY DESTINATION pumice)
foreach(library IN LISTS GLSLANG_LIBRARIES)
  get_target_property(type ${library} TYPE)
  if(type STREQUAL "SHARED_LIBRARY")  # shared libraries are copied, so that an installed package needs no other one at run time
    install(FILES $<TARGET_FILE:${library}> DESTINATION pumice RENAME $<TARGET_SONAME_FILE_NAME:${library}>)
  endif()
endforeach()
