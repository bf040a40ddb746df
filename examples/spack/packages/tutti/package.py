# SPDX-License-Identifier: Apache-2.0
# spack repo add examples/spack && spack dev-build tutti@main      at the source root: builds this checkout
from spack.package import *

try:  # Spack 1.0 keeps build systems with the packages
    from spack_repo.builtin.build_systems.cmake import CMakePackage
except ImportError:
    pass


class Tutti(CMakePackage):
    """A distributed trainer for large language models, in C: every parallel layout equals one rank."""

    license("Apache-2.0")
    version("main")

    variant("mpi", default=True, description="ranks as processes (srun, mpirun); without it as threads of one process")
    variant("onednn", default=True, description="the fallback for matrix products that tutti's own kernels do not take")

    depends_on("c", type="build")
    depends_on("cmake@3.22:", type="build")
    depends_on("ninja", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("libyaml")
    depends_on("oniguruma")
    depends_on("xxhash")
    depends_on("zlib-api")
    depends_on("zstd")
    depends_on("hwloc@2:")
    depends_on("curl")
    depends_on("openssl")
    depends_on("snappy")
    depends_on("brotli")
    depends_on("lz4")
    depends_on("libjpeg-turbo")
    depends_on("libpng")
    depends_on("libwebp")
    depends_on("libsndfile")
    depends_on("ffmpeg")
    depends_on("libarchive")
    depends_on("libdivsufsort")
    depends_on("libmicrohttpd")
    depends_on("elfutils")
    depends_on("mpi@3:", when="+mpi")
    depends_on("onednn", when="+onednn")

    generator("ninja")

    def cmake_args(self):
        return [self.define("TUTTI_MPI", self.spec["mpi"].mpicc if self.spec.satisfies("+mpi") else "off")]
