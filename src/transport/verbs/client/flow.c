/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The data of streamed calls on verbs.  What lies in large parts is registered where it lies, and
 * the listening side's adapter reads it there: this side's processors spend the registration on it.
 * Small parts are copied into memory that is registered once: that costs less, and no more keys
 * than fit, and memory that is only to be read cannot be registered.  The kernel copies, because it
 * says EFAULT where memory is not there.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/iov.h"
#include "base/log.h"
#include "base/own_fd.h"
#include "transport/verbs/client/client.h"

enum {
	COPY_BYTES = 4 << 20, /* memory for copies */
	WHOLE = 64 << 10,     /* less than that is copied */
	EACH = 16 << 10,      /* and parts that have less on an average */
};

/* The parts of one call. */
struct gathering {
	struct soda_outflow *out;
	uint64_t left;
	struct iovec iov[SODA_WIRE_FLOW_PARTS]; /* neighbours are one */
	int n;
};

/* Up to the end, or until iov is full. */
static void gather(struct gathering *g)
{
	uint64_t left = g->left;

	while (left && g->n < (int)SODA_WIRE_FLOW_PARTS) {
		struct iovec *last = g->n ? &g->iov[g->n - 1] : NULL, *next = &g->iov[g->n];

		if (g->out->next(g->out, next, 1) != 1)
			break; /* does not happen: it has so many bytes */
		left -= next->iov_len;
		if (last && (uint8_t *)last->iov_base + last->iov_len == next->iov_base)
			last->iov_len += next->iov_len;
		else
			g->n++;
	}
	g->left = left;
}

void soda_verbs_flow_release(struct soda_verbs_flow *f)
{
	while (f->mrs_n)
		soda_verbs_unregister(f->mrs[--f->mrs_n]);
}

/* Each part by a key of its own. */
static int expose(struct soda_verbs_flow *f, struct ibv_pd *pd, const struct gathering *g,
		  struct soda_wire_flow_part *parts)
{
	struct soda_why why;
	int ret = 0;

	for (int i = 0; ret == 0 && i < g->n; i++) {
		ret = soda_verbs_expose(pd, g->iov[i].iov_base, g->iov[i].iov_len,
					&f->mrs[f->mrs_n], &why);
		if (ret < 0)
			break;
		parts[i] = (struct soda_wire_flow_part){ (uintptr_t)g->iov[i].iov_base,
							 (uint32_t)g->iov[i].iov_len,
							 f->mrs[f->mrs_n++]->rkey };
	}
	if (ret < 0)
		soda_verbs_flow_release(f);
	return ret;
}

static int prepare_copies(struct soda_verbs_flow *f, struct ibv_pd *pd)
{
	struct soda_why why;
	void *memory;
	int ret;

	if (f->copies)
		return 0;
	f->fd = soda_fd_own(memfd_create("soda-flow", MFD_CLOEXEC));
	if (f->fd < 0)
		return -ENOMEM;
	memory = ftruncate(f->fd, COPY_BYTES) < 0
			 ? MAP_FAILED
			 : mmap(NULL, COPY_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, f->fd, 0);
	ret = memory == MAP_FAILED ? -ENOMEM
				   : soda_verbs_register(pd, memory, COPY_BYTES,
							 IBV_ACCESS_REMOTE_READ, &f->mr, &why);
	if (ret == 0) {
		f->copies = memory;
		return 0;
	}
	if (memory != MAP_FAILED) {
		soda_log_warning("%s", why.text);
		munmap(memory, COPY_BYTES);
	}
	soda_fd_close(f->fd);
	return -ENOMEM;
}

/* All of iov, which is used up. */
static int copy_parts(int fd, struct iovec *iov, int n, off_t at)
{
	while (n) {
		ssize_t got = pwritev(fd, iov, n, at);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return got < 0 ? -errno : -EIO;
		at += got;
		soda_iov_advance(&iov, &n, (size_t)got);
	}
	return 0;
}

static int copy(struct soda_verbs_flow *f, struct ibv_pd *pd, struct gathering *g, uint64_t bytes,
		struct soda_wire_flow_part *part)
{
	uint64_t at = 0;
	int ret = bytes > COPY_BYTES ? -ENOMEM : prepare_copies(f, pd);

	while (ret == 0 && g->n) {
		uint64_t some = bytes - at - g->left;

		ret = copy_parts(f->fd, g->iov, g->n, (off_t)at);
		at += some;
		g->n = 0;
		gather(g);
	}
	*part = (struct soda_wire_flow_part){ 0, (uint32_t)bytes, f->mr ? f->mr->rkey : 0 };
	return ret;
}

int soda_verbs_flow_expose(struct soda_verbs_flow *f, struct ibv_pd *pd, struct soda_outflow *out,
			   struct soda_wire_flow_part parts[SODA_WIRE_FLOW_PARTS], uint32_t *n_p)
{
	uint64_t bytes = out->bytes;
	struct gathering *g = calloc(1, sizeof(*g));
	int ret = -ENOMEM;

	*n_p = 0;
	if (!g)
		return ret;
	g->out = out;
	g->left = bytes;
	gather(g);
	if (!g->left && bytes >= WHOLE && bytes / (unsigned)g->n >= EACH)
		ret = expose(f, pd, g, parts); /* else they may be copied all the same */
	if (ret == 0) {
		*n_p = (uint32_t)g->n;
	} else {
		ret = copy(f, pd, g, bytes, parts);
		*n_p = ret == 0;
	}
	free(g);
	return ret;
}

void soda_verbs_flow_end(struct soda_verbs_flow *f)
{
	soda_verbs_flow_release(f);
	soda_verbs_unregister(f->mr);
	if (f->copies) {
		munmap(f->copies, COPY_BYTES);
		soda_fd_close(f->fd);
	}
	*f = (struct soda_verbs_flow){ .copies = NULL };
}
