/* SPDX-License-Identifier: BSD-3-Clause */
#include "csr_file.h"

#include "file_io.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#define PAGE 4096u
#define FLAG_SYMMETRIC 1u
#define FLAG_LABELLED 2u

static const char magic[8] = { 'S', 'O', 'D', 'A', 'C', 'S', 'R', '1' };

struct header {
	char magic[8];
	uint64_t vertices, edges;
	uint32_t flags;
	uint32_t sum[PARTS];
	uint32_t header_sum; /* of the fields before */
};

static uint32_t header_sum(const struct header *h)
{
	return (uint32_t)crc32_z(0, (const unsigned char *)h, offsetof(struct header, header_sum));
}

/* A part that the file has: `in` parts of a symmetric graph it has not. */
static bool in_file(const struct graph *g, int part)
{
	if (part == PART_LABELS)
		return g->labelled;
	return !g->symmetric || part == PART_OUT_OFFSETS || part == PART_OUT_TARGETS;
}

/* Where a part begins; PARTS: where the file ends. */
static off_t part_offset(const struct graph *g, int part)
{
	uint64_t offset = PAGE;

	for (int i = 0; i < part; i++)
		if (in_file(g, i))
			offset += (graph_part_bytes(g, i) + PAGE - 1) / PAGE * PAGE;
	return (off_t)offset;
}

static int write_parts(int fd, const char *path, const struct graph *g, struct error *err)
{
	int ret = 0;

	for (int part = 0; part < PARTS && !ret; part++)
		if (in_file(g, part))
			ret = file_write_array(fd, path, graph_part(g, part),
					       graph_part_bytes(g, part), part_offset(g, part),
					       err);
	if (!ret && ftruncate(fd, part_offset(g, PARTS)))
		ret = error_set(err, errno, "%s: cannot write: %s", path, strerror(errno));
	return ret;
}

static int write_header(int fd, const char *path, const struct graph *g, struct error *err)
{
	struct header h = { .vertices = g->vertices, .edges = g->edges };

	memcpy(h.magic, magic, sizeof(magic));
	h.flags = (g->symmetric ? FLAG_SYMMETRIC : 0) | (g->labelled ? FLAG_LABELLED : 0);
	for (int part = 0; part < PARTS; part++)
		h.sum[part] = in_file(g, part) ? g->sum[part] : 0;
	h.header_sum = header_sum(&h);
	return file_write_array(fd, path, &h, sizeof(h), 0, err);
}

int csr_file_write(const char *path, const struct graph *g, struct error *err)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	int ret;

	if (fd < 0)
		return error_set(err, errno, "%s: cannot create: %s", path, strerror(errno));
	/* The header last: without it the file is not one of ours. */
	ret = write_parts(fd, path, g, err);
	if (!ret)
		ret = write_header(fd, path, g, err);
	if (close(fd) && !ret)
		ret = error_set(err, errno, "%s: cannot write: %s", path, strerror(errno));
	return ret;
}

int csr_file_probe(const char *path, struct error *err)
{
	char begin[sizeof(magic)];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t got;

	if (fd < 0)
		return error_set(err, errno, "%s: cannot open: %s", path, strerror(errno));
	got = pread(fd, begin, sizeof(begin), 0);
	close(fd);
	return got == (ssize_t)sizeof(begin) && !memcmp(begin, magic, sizeof(magic));
}

/* Everything that sizes are computed from is checked before it is used. */
static int read_header(int fd, const char *path, struct graph *g, struct error *err)
{
	struct header h;
	struct stat st;
	uint32_t unused;
	int ret = file_read_array(fd, path, &h, sizeof(h), 0, &unused, err);

	if (ret)
		return ret;
	if (memcmp(h.magic, magic, sizeof(magic)) || h.header_sum != header_sum(&h) ||
	    !h.vertices || h.vertices > VERTICES_MAX || h.edges > INT64_MAX / 64)
		return error_set(err, EINVAL, "%s: damaged: expected the header of a graph", path);
	g->vertices = h.vertices;
	g->edges = h.edges;
	g->symmetric = h.flags & FLAG_SYMMETRIC;
	g->labelled = h.flags & FLAG_LABELLED;
	memcpy(g->sum, h.sum, sizeof(g->sum));
	if (fstat(fd, &st) || st.st_size != part_offset(g, PARTS))
		return error_set(err, EINVAL, "%s: cut off: expected %lld bytes, found %lld", path,
				 (long long)part_offset(g, PARTS), (long long)st.st_size);
	return 0;
}

static int read_part(int fd, const char *path, struct graph *g, int part, struct error *err)
{
	uint32_t sum;
	int ret = graph_part_alloc(g, part, err);

	if (!ret)
		ret = file_read_array(fd, path, graph_part(g, part), graph_part_bytes(g, part),
				      part_offset(g, part), &sum, err);
	if (!ret && sum != g->sum[part])
		ret = error_set(err, EINVAL,
				"%s: damaged: expected checksum %08" PRIx32
				" of %s, found %08" PRIx32,
				path, g->sum[part], graph_part_name(part), sum);
	return ret;
}

int csr_file_load(const char *path, unsigned parts, struct mem *mem, struct graph *g_p,
		  struct error *err)
{
	struct graph g = { .mem = mem };
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	int ret;

	if (fd < 0)
		return error_set(err, errno, "%s: cannot open: %s", path, strerror(errno));
	ret = read_header(fd, path, &g, err);
	/* An `in` part of a symmetric graph is its `out` part. */
	if (g.symmetric)
		parts |= (parts & PARTS_IN) >> PART_IN_OFFSETS;
	for (int part = 0; part < PARTS && !ret; part++)
		if ((parts & PART_BIT(part)) && in_file(&g, part))
			ret = read_part(fd, path, &g, part, err);
	close(fd);
	if (ret) {
		graph_destroy(&g);
		return ret;
	}
	*g_p = g;
	return 0;
}
