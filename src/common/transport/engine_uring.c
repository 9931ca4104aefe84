/* SPDX-License-Identifier: BSD-3-Clause */
/* A data worker's loop on io_uring. */
#include <errno.h>

#include "server_worker.h"

int soda_engine_uring(struct soda_worker *w)
{
	return -ENOTSUP;
}
