/* SPDX-License-Identifier: BSD-3-Clause */
#include "graph/format/csr_source.h"

#include "graph/format/export.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int check_header(const struct soda_graph_gap_header *h, const char *path, uint64_t size,
			struct soda_graph_error *err)
{
	uint64_t expected;

	if (h->directed > 1)
		return soda_graph_fail(err, EINVAL,
				       "%s: byte 0: expected 0 (undirected) or 1 (directed), found "
				       "%u",
				       path, h->directed);
	if (h->edges > INT64_MAX / 16)
		return soda_graph_fail(err, EINVAL,
				       "%s: byte 1: expected a number of edges, found %" PRIu64,
				       path, h->edges);
	/* GAP's ids are signed. */
	if (!h->vertices || h->vertices > INT32_MAX)
		return soda_graph_fail(err, EINVAL,
				       "%s: byte 9: expected 1 to %d vertices, found %" PRIu64,
				       path, INT32_MAX, h->vertices);
	expected = sizeof(*h) +
		   (1u + h->directed) * ((h->vertices + 1) * 8 + h->edges * sizeof(uint32_t));
	if (size != expected)
		return soda_graph_fail(err, EINVAL,
				       "%s: expected %" PRIu64 " bytes for %" PRIu64
				       " vertices and %" PRIu64 " edges, found %" PRIu64,
				       path, expected, h->vertices, h->edges, size);
	return 0;
}

static int read_header(int fd, const char *path, struct soda_graph_gap_header *h,
		       struct soda_graph_error *err)
{
	ssize_t got = pread(fd, h, sizeof(*h), 0);
	struct stat st;

	if (got < 0 || fstat(fd, &st))
		return soda_graph_fail(err, errno, "%s: cannot read: %s", path, strerror(errno));
	if (got < (ssize_t)sizeof(*h))
		return soda_graph_fail(err, EINVAL,
				       "%s: cut off: expected a header of %zu bytes, found %zd",
				       path, sizeof(*h), got);
	return check_header(h, path, (uint64_t)st.st_size, err);
}

int soda_graph_gap_open(const char *path, struct soda_graph_source **source_p,
			struct soda_graph_error *err)
{
	struct soda_graph_csr_layout layout = { .format = "GAP",
						.offset_bytes = 8,
						.closed = true };
	struct soda_graph_gap_header h;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	int ret;

	if (fd < 0)
		return soda_graph_fail(err, errno, "%s: cannot open: %s", path, strerror(errno));
	ret = read_header(fd, path, &h, err);
	if (ret) {
		close(fd);
		return ret;
	}
	layout.vertices = h.vertices;
	layout.edges = h.edges;
	layout.symmetric = !h.directed;
	layout.offsets = (struct soda_graph_csr_file){ path, fd, sizeof(h) };
	layout.targets = (struct soda_graph_csr_file){ path, fd, sizeof(h) + (h.vertices + 1) * 8 };
	return soda_graph_csr_open(&layout, source_p, err);
}
