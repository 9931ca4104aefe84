/* SPDX-License-Identifier: BSD-3-Clause */
#include "unit/fakes/graph_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

static char *new_path(int *fd_p)
{
	const char *dir = getenv("TMPDIR");
	char *path;

	assert_true(asprintf(&path, "%s/soda-graph-XXXXXX", dir ? dir : "/tmp") > 0);
	*fd_p = mkstemp(path);
	assert_true(*fd_p >= 0);
	return path;
}

char *fixture_file(const void *bytes, size_t count)
{
	int fd;
	char *path = new_path(&fd);

	assert_int_equal(write(fd, bytes, count), count);
	close(fd);
	return path;
}

char *fixture_gz(const void *bytes, size_t count)
{
	int fd;
	char *path = new_path(&fd);
	gzFile file = gzdopen(fd, "w");

	assert_non_null(file);
	assert_int_equal(gzwrite(file, bytes, (unsigned)count), count);
	assert_int_equal(gzclose(file), Z_OK);
	return path;
}

void fixture_remove(char *path)
{
	unlink(path);
	free(path);
}

char *fixture_triple_path(void)
{
	const char *dir = getenv("TMPDIR");
	char *folder, *path;

	assert_true(asprintf(&folder, "%s/soda-graph-XXXXXX", dir ? dir : "/tmp") > 0);
	assert_non_null(mkdtemp(folder));
	path = soda_graph_path(folder, "/g");
	free(folder);
	return path;
}

void fixture_triple_remove(char *path)
{
	soda_graph_triple_remove(path);
	*strrchr(path, '/') = 0;
	assert_int_equal(rmdir(path), 0);
	free(path);
}

int fixture_build(const char *input, bool symmetric, bool weighted, const char *path,
		  struct soda_graph_error *err)
{
	struct soda_graph_build how = { .path = path,
					.symmetric = symmetric,
					.weighted = weighted };
	struct soda_graph_source *source;
	struct soda_graph_info info;
	int ret = soda_graph_source_open(input, &source, err);

	if (ret)
		return ret;
	ret = soda_graph_build(source, &how, &info, err);
	source->close(source);
	return ret;
}

void fixture_flip(const char *path, const char *suffix, long offset)
{
	char *name = soda_graph_path(path, suffix);
	FILE *f = fopen(name, "r+");
	int c;

	assert_non_null(f);
	assert_int_equal(fseek(f, offset, SEEK_SET), 0);
	c = fgetc(f);
	assert_int_equal(fseek(f, offset, SEEK_SET), 0);
	assert_int_not_equal(fputc(c ^ 1, f), EOF);
	fclose(f);
	free(name);
}

int fixture_load(const void *bytes, size_t count, bool symmetric, struct mem *mem,
		 struct graph *g_p, struct soda_graph_error *err)
{
	struct graph_input input = { .symmetric = symmetric };
	char *path = fixture_file(bytes, count);
	int ret;

	assert_int_equal(mem_open(mem, MEM_DRAM, 0, err), 0);
	input.path = path;
	ret = graph_input_load(&input, PARTS_ALL, mem, g_p, err);
	fixture_remove(path);
	return ret;
}

struct graph fixture_graph(const char *text, bool symmetric, struct mem *mem)
{
	struct soda_graph_error err;
	struct graph g;

	if (fixture_load(text, strlen(text), symmetric, mem, &g, &err))
		fail_msg("%s", err.text);
	return g;
}

struct graph fixture_rmat(bool symmetric, struct mem *mem)
{
	struct graph_input input = { .rmat = SODA_GRAPH_RANDOM_DEFAULTS, .symmetric = symmetric };
	struct soda_graph_error err;
	struct graph g;

	input.rmat.scale = 14;
	input.rmat.edges = 60000;
	assert_int_equal(mem_open(mem, MEM_DRAM, 0, &err), 0);
	assert_int_equal(graph_input_load(&input, PARTS_ALL, mem, &g, &err), 0);
	return g;
}

void *fixture_run(const struct app *app, const struct graph *g, struct app_params *params_p)
{
	struct mem arrays = { .kind = MEM_DRAM };
	struct soda_graph_error err;
	struct ligra l = { .g = g, .mem = &arrays, .err = &err };
	void *result = malloc(g->vertices * app->entry_bytes);

	assert_non_null(result);
	params_p->iterations = app->run(&l, params_p, result);
	if (ligra_end(&l))
		fail_msg("%s: %s", app->name, err.text);
	assert_int_equal(arrays.bytes, 0);
	return result;
}

void fixture_run_and_check(const struct app *app, const struct graph *g, struct app_params params)
{
	void *result = fixture_run(app, g, &params);
	struct soda_graph_error err;

	if (app->check(g, &params, result, &err))
		fail_msg("%s: %s", app->name, err.text);
	free(result);
}
