/* SPDX-License-Identifier: Apache-2.0 */
#define FOLD minhash_fold_avx2
#include "curate/minhash_body.h"
