#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# More elements than 32 bits count: through the buffers themselves on one host, as messages between two.
set -u
# shellcheck source=tests/comm/mpirun.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/comm/mpirun.sh"
ranks 2 "$programs/ranks_large" 0 || fail "one host, over $library: status $?"
ranks 2 "$programs/ranks_large" 1 || fail "two hosts, over $library: status $?"
passed
