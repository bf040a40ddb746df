#%Module1.0
# SPDX-License-Identifier: Apache-2.0
# A module for Environment Modules: put it at MODULEPATH/tutti/0.1.0, and the prefix of `cmake --install build --prefix PREFIX` below.
module-whatis "tutti: a distributed trainer for large language models"
proc ModulesHelp { } {
    puts stderr "tutti trains large language models: tutti --help, man tutti"
}

set prefix /opt/tutti/0.1.0
conflict tutti
# The MPI library that it was built with, by the name it has here:
# module load openmpi/4.1
prepend-path PATH $prefix/bin ;# man finds its pages beside it
prepend-path PKG_CONFIG_PATH $prefix/lib/pkgconfig
