# src/cpu/kernels/*.c is compiled once per instruction set; BY_ISA names the variant, BY_ISA_LEVEL orders them.
# BY_HAVE_ISA_AVX2, _AVX512 and _AVX512BF16 tell the dispatcher which variants this build contains.
include(CheckCCompilerFlag)
file(GLOB kernel_sources CONFIGURE_DEPENDS src/cpu/kernels/*.c)

set(flags_generic "")
set(flags_avx2 -mavx2 -mfma -mf16c -mbmi2)
set(flags_avx512 ${flags_avx2} -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512)
set(flags_avx512bf16 ${flags_avx512} -mavx512bf16)

# Not -ffast-math: NaN and infinity must stay visible, they are how a diverging run is caught.
# With sanitizers, -O1: at -O3 the largest file takes minutes for each instruction set.
set(kernel_level -O3)
if(BANYAN_SANITIZE)
    set(kernel_level -O1)
endif()
set(kernel_options $<$<NOT:$<CONFIG:Debug>>:${kernel_level}> -ffp-contract=fast -fno-math-errno -fno-trapping-math
    -fno-signed-zeros)

set(kernel_isas generic)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
    foreach(isa avx2 avx512 avx512bf16)
        list(JOIN flags_${isa} " " flags)
        check_c_compiler_flag("${flags}" compiler_has_${isa})
        if(compiler_has_${isa})
            list(APPEND kernel_isas ${isa})
            string(TOUPPER BY_HAVE_ISA_${isa} definition)
            target_compile_definitions(banyan-flags INTERFACE ${definition})
        endif()
    endforeach()
endif()

set(level_generic 0)
set(level_avx2 1)
set(level_avx512 2)
set(level_avx512bf16 3)
if(kernel_sources)
    foreach(isa ${kernel_isas})
        add_library(kernels-${isa} OBJECT ${kernel_sources})
        target_link_libraries(kernels-${isa} PRIVATE banyan-flags)
        target_compile_definitions(kernels-${isa} PRIVATE BY_ISA=${isa} BY_ISA_LEVEL=${level_${isa}})
        target_compile_options(kernels-${isa} PRIVATE ${kernel_options} ${flags_${isa}})
        list(APPEND library_objects $<TARGET_OBJECTS:kernels-${isa}>)
    endforeach()
endif()
