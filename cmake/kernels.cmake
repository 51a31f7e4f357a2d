# The CPU kernels are one source compiled for several instruction sets; one is chosen at run time.
# They are optimised in debug builds too, because without it the intrinsics are fifty times slower.
set(KERNELS model/backend/cpu/kernels)
set(KERNEL_OPTIONS "$<$<CONFIG:Debug>:-O2>")
if(OUTRIDER_FUZZ) # no target runs them, and instrumented they take two minutes to compile
  set(KERNEL_OPTIONS -fno-sanitize=all -O1)
endif()
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  # Loops are aligned to cache lines, because an inner loop of 20 dot products that is not can be a
  # third slower.
  set(KERNEL_AVX2 -mavx2 -mfma -mf16c)
  set(KERNEL_AVX512 -mavx512f -mavx512bw -mavx512vl -mavx512dq ${KERNEL_AVX2} -falign-loops=64)
  target_compile_definitions(outrider_kernels PRIVATE OUTRIDER_X86=1)
  set_source_files_properties(${KERNELS}/avx512.c PROPERTIES COMPILE_OPTIONS
    "${KERNEL_AVX512};-mavx512bf16;${KERNEL_OPTIONS}")
  set_source_files_properties(${KERNELS}/avx512fma.c PROPERTIES COMPILE_OPTIONS
    "${KERNEL_AVX512};${KERNEL_OPTIONS}")
  set_source_files_properties(${KERNELS}/quant/avx512.c PROPERTIES COMPILE_OPTIONS
    "${KERNEL_AVX512};-mavx512vnni;${KERNEL_OPTIONS}")
  set_source_files_properties(${KERNELS}/quant/avxvnni.c PROPERTIES COMPILE_OPTIONS
    "${KERNEL_AVX2};-mavxvnni;${KERNEL_OPTIONS}")
  set_source_files_properties(${KERNELS}/avx2.c ${KERNELS}/quant/avx2.c PROPERTIES COMPILE_OPTIONS
    "${KERNEL_AVX2};${KERNEL_OPTIONS}")
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  target_compile_definitions(outrider_kernels PRIVATE OUTRIDER_AARCH64=1)
  set_source_files_properties(${KERNELS}/neon.c PROPERTIES COMPILE_OPTIONS "${KERNEL_OPTIONS}")
endif()
set_source_files_properties(${KERNELS}/plain.c ${KERNELS}/quant/plain.c ${KERNELS}/kernels.c
  ${KERNELS}/packed_matrix.c ${KERNELS}/fp8_matrix.c
  model/numerics/quant.c PROPERTIES COMPILE_OPTIONS "${KERNEL_OPTIONS}")
