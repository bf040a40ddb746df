-- SPDX-License-Identifier: Apache-2.0
-- A module for Lmod: put it at MODULEPATH/tutti/0.1.0.lua, and the prefix of `cmake --install build --prefix PREFIX` below.
help("tutti trains large language models: tutti --help, man tutti")
whatis("Name: tutti")
whatis("Description: a distributed trainer for large language models")
whatis("URL: file:///opt/tutti/0.1.0/share/doc/tutti/README.md")

local prefix = "/opt/tutti/0.1.0"
conflict("tutti")
-- The MPI library that it was built with, by the name it has here:
-- depends_on("openmpi/4.1")
prepend_path("PATH", pathJoin(prefix, "bin")) -- man finds its pages beside it
prepend_path("PKG_CONFIG_PATH", pathJoin(prefix, "lib/pkgconfig"))
