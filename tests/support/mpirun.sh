# To be sourced by tests that run mpirun: `mpirun $flags -np N PROGRAM`. One node, any number of
# ranks on any number of cores, as any user, without ssh. Where there is no mpirun it exits with 77,
# which means skipped.
# shellcheck shell=sh disable=SC2034
if ! command -v mpirun >/dev/null; then
    echo "SKIPPED: there is no mpirun here (Debian's package openmpi-bin)"
    exit 77
fi

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
flags="--oversubscribe --bind-to none --mca btl vader,self
       --mca btl_vader_single_copy_mechanism none
       --mca plm isolated --mca mpi_yield_when_idle 1"
# Open MPI keeps memory until the process ends; only our own leaks are of interest.
export ASAN_OPTIONS=detect_leaks=0
