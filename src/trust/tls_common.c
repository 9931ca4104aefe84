/* SPDX-License-Identifier: BSD-3-Clause */
#include "trust/tls.h"

const char *const soda_tls_mode_names[] = { "off", "on", "require", NULL };
