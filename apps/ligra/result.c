/* SPDX-License-Identifier: BSD-3-Clause */
#include "ligra/run.h"

#include "ligra/load/load.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char magic[8] = { 'S', 'O', 'D', 'A', 'R', 'E', 'S', '2' };

struct header {
	char magic[8];
	char app[24]; /* its name */
	uint32_t source;
	uint32_t iterations;
	uint32_t graph_sum;   /* of the graph's out-targets: the same graph */
	uint32_t weights_sum; /* of their weights; 0: none */
	uint64_t vertices;
};

size_t result_bytes(const struct app *app, uint64_t vertices)
{
	return vertices * app->entry_bytes;
}

int result_write(const char *path, const struct graph *g, const struct result *r,
		 struct soda_graph_error *err)
{
	struct header h = { .source = r->params.source,
			    .iterations = r->params.iterations,
			    .graph_sum = g->sum[PART_OUT_TARGETS],
			    .weights_sum = g->sum[PART_OUT_WEIGHTS],
			    .vertices = g->vertices };
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	int ret;

	if (fd < 0)
		return soda_graph_fail(err, errno, "%s: cannot create: %s", path, strerror(errno));
	memcpy(h.magic, magic, sizeof(magic));
	snprintf(h.app, sizeof(h.app), "%s", r->app->name);
	ret = file_write_array(fd, path, &h, sizeof(h), 0, err);
	if (!ret)
		ret = file_write_array(fd, path, r->array, result_bytes(r->app, g->vertices),
				       sizeof(h), err);
	if (close(fd) && !ret)
		ret = soda_graph_fail(err, errno, "%s: cannot write: %s", path, strerror(errno));
	return ret;
}

static int check_header(const struct header *h, const char *path, const struct graph *g,
			struct soda_graph_error *err)
{
	if (memcmp(h->magic, magic, sizeof(magic)) || h->app[sizeof(h->app) - 1] ||
	    !app_find(h->app))
		return soda_graph_fail(err, EINVAL, "%s: expected a result of this program", path);
	if (h->vertices != g->vertices || h->graph_sum != g->sum[PART_OUT_TARGETS] ||
	    h->weights_sum != g->sum[PART_OUT_WEIGHTS] || h->source >= g->vertices)
		return soda_graph_fail(err, EINVAL, "%s: the result of another graph", path);
	return 0;
}

static int read_body(int fd, const char *path, const struct graph *g, struct result *r,
		     struct soda_graph_error *err)
{
	struct header h;
	size_t bytes;
	int ret = file_read_array(fd, path, &h, sizeof(h), 0, err);

	if (!ret)
		ret = check_header(&h, path, g, err);
	if (ret)
		return ret;
	*r = (struct result){ .app = app_find(h.app),
			      .params = { .source = h.source, .iterations = h.iterations } };
	bytes = result_bytes(r->app, g->vertices);
	r->array = malloc(bytes);
	if (!r->array)
		return soda_graph_fail(err, ENOMEM, "%s: out of memory", path);
	ret = file_read_array(fd, path, r->array, bytes, sizeof(h), err);
	if (ret)
		free(r->array);
	return ret;
}

int result_read(const char *path, const struct graph *g, struct result *r_p,
		struct soda_graph_error *err)
{
	struct result r;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	int ret;

	if (fd < 0)
		return soda_graph_fail(err, errno, "%s: cannot open: %s", path, strerror(errno));
	ret = read_body(fd, path, g, &r, err);
	close(fd);
	if (!ret)
		*r_p = r;
	return ret;
}
