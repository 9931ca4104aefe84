/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of the public functions share. */
#ifndef SODA_HOST_API_H
#define SODA_HOST_API_H

#include "transport/api/transport.h"

/* The calling thread's soda_last_error(). */
void soda_api_explain(const struct soda_why *why);

#endif
