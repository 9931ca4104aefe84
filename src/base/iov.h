/* SPDX-License-Identifier: BSD-3-Clause */
/* Lists of memory for readv(2), writev(2), sendmsg(2) and the like. AS: async-signal-safe. */
#ifndef SODA_BASE_IOV_H
#define SODA_BASE_IOV_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

/*
 * Add memory to iov, which has n pieces; all of it but the first *skip bytes, which have gone, and
 * of which *skip forgets as many.  What begins where the last piece ends makes that longer. How
 * many pieces there are now. AS.
 */
static inline int soda_iov_add(struct iovec *iov, int n, void *memory, size_t bytes, size_t *skip)
{
	uint8_t *from = memory;

	if (*skip >= bytes) {
		*skip -= bytes;
		return n;
	}
	from += *skip;
	bytes -= *skip;
	*skip = 0;
	if (n && (uint8_t *)iov[n - 1].iov_base + iov[n - 1].iov_len == from) {
		iov[n - 1].iov_len += bytes;
		return n;
	}
	iov[n] = (struct iovec){ .iov_base = from, .iov_len = bytes };
	return n + 1;
}

/* So many bytes have gone: *iov and *n are what is left of the list, which is changed. AS. */
static inline void soda_iov_advance(struct iovec **iov, int *n, size_t bytes)
{
	while (*n && bytes >= (*iov)->iov_len) {
		bytes -= (*iov)->iov_len;
		(*iov)++;
		(*n)--;
	}
	if (*n) {
		(*iov)->iov_base = (char *)(*iov)->iov_base + bytes;
		(*iov)->iov_len -= bytes;
	}
}

#endif
