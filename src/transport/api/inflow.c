/* SPDX-License-Identifier: BSD-3-Clause */
/* The data of a streamed call, as its service takes them. */
#include <assert.h>
#include <errno.h>

#include "transport/api/service.h"

int soda_inflow_take(struct soda_inflow *in, struct iovec *iov, int n)
{
	uint64_t bytes = 0;

	for (int i = 0; i < n; i++)
		bytes += iov[i].iov_len;
	if (bytes > in->left)
		return -EPROTO;
	in->left -= bytes;
	return in->take(in, iov, n);
}

int soda_inflow_end(struct soda_inflow *in)
{
	assert(!in->left);
	return in->end(in);
}
