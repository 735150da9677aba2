# banyan-flags: the warnings, definitions and include paths that every source of this tree is compiled with.
add_library(banyan-flags INTERFACE)
target_compile_options(banyan-flags INTERFACE
    -Wall -Wextra -Wpedantic -Wshadow $<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes>)
target_compile_definitions(banyan-flags INTERFACE ${definitions})
target_include_directories(banyan-flags INTERFACE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
target_include_directories(banyan-flags SYSTEM INTERFACE ${system_includes})
if("BY_HAVE_OPENMP" IN_LIST definitions)
    target_compile_options(banyan-flags INTERFACE ${OpenMP_C_FLAGS})
else() # names that only a pragma mentions are unused
    target_compile_options(banyan-flags INTERFACE
        -Wno-unknown-pragmas -Wno-unused-parameter -Wno-unused-variable -Wno-unused-function)
endif()

if(BANYAN_SANITIZE)
    add_compile_options(-fsanitize=${BANYAN_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer -g)
    add_link_options(-fsanitize=${BANYAN_SANITIZE})
endif()
if(BANYAN_FUZZ)
    if(NOT CMAKE_C_COMPILER_ID MATCHES "Clang")
        message(FATAL_ERROR "BANYAN_FUZZ needs clang: configure with -DCMAKE_C_COMPILER=clang")
    endif()
    add_compile_options(-fsanitize=fuzzer-no-link)
endif()
