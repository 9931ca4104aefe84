/* SPDX-License-Identifier: BSD-3-Clause */
/* `soda graph info`: one pass over a graph of any format. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "soda/graph/tool.h"

#define BATCH 65536
#define IDS ((uint64_t)1 << 16)

struct options {
	bool json, weights;
};

static const struct soda_option option_table[] = {
	JSON_OPTION,
	OPTION("weights", 0, BOOL, weights,
	       .help = "Read the edges' weights, too, as soda graph convert --weights does: the "
		       "least, the greatest, and their mean."),
};

static const struct soda_conf conf = {
	.program = "soda graph info",
	.summary = "what is in a graph's file",
	.args = "INPUT",
	.description =
		"Reads all of a graph of any format that soda graph convert reads, and checks it: "
		"the first thing that is wrong is told with its position. Ids are counted as they "
		"stand in the file. Needs 4 bytes of memory for each id, and of address space for "
		"each up to the largest.",
	.options = option_table,
	.options_n = sizeof(option_table) / sizeof(option_table[0]),
};

struct facts {
	struct soda_graph_source *source;
	uint64_t edges, loops, largest_id;
	double *weights;		       /* of a batch; NULL: not read */
	double lightest, heaviest, weight_sum; /* no weight is negative */
	/*
	 * One number for each of `room` ids: 0 does not occur, else its edges and 1.  Pages of ids
	 * that do not occur are never touched, and take no memory.
	 */
	uint32_t *degrees;
	uint64_t room;
	bool met[1 << 16]; /* whether of so many ids each some occur */
};

static size_t room_bytes(const struct facts *f)
{
	return f->room * sizeof(*f->degrees);
}

static int make_room(struct facts *f, uint64_t ids, struct soda_graph_error *err)
{
	uint64_t room = f->room ? f->room : 1024;
	void *larger;

	while (room < ids)
		room *= 2;
	if (f->room)
		larger = mremap(f->degrees, room_bytes(f), room * sizeof(*f->degrees),
				MREMAP_MAYMOVE);
	else
		larger = mmap(NULL, room * sizeof(*f->degrees), PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (larger == MAP_FAILED)
		return soda_graph_fail(err, ENOMEM, "out of memory for %" PRIu64 " degrees", room);
	f->degrees = larger;
	f->room = room;
	return 0;
}

/* Degrees saturate. */
static void count_edge(struct facts *f, struct soda_graph_edge e)
{
	uint32_t *from = &f->degrees[e.from], *to = &f->degrees[e.to];

	f->met[e.from / IDS] = f->met[e.to / IDS] = true;
	*to += !*to;
	*from += !*from;
	*from += *from < UINT32_MAX;
	f->loops += e.from == e.to;
	f->edges++;
}

static int count_batch(struct facts *f, const struct soda_graph_edge *edges, long count,
		       struct soda_graph_error *err)
{
	int ret;

	for (long i = 0; i < count; i++) {
		uint32_t most = edges[i].from > edges[i].to ? edges[i].from : edges[i].to;

		if (most >= f->room) {
			ret = make_room(f, (uint64_t)most + 1, err);
			if (ret)
				return ret;
		}
		if (most > f->largest_id)
			f->largest_id = most;
		count_edge(f, edges[i]);
	}
	return 0;
}

static void count_weights(struct facts *f, long count)
{
	for (long i = 0; i < count; i++) {
		double weight = f->weights[i];

		if (weight < f->lightest)
			f->lightest = weight;
		if (weight > f->heaviest)
			f->heaviest = weight;
		f->weight_sum += weight;
	}
}

static int read_edges(struct facts *f, struct soda_graph_edge *batch, struct soda_graph_error *err)
{
	long count = 0;
	int ret = f->source->rewind(f->source, err);

	while (!ret && (count = f->source->next(f->source, batch, BATCH, err)) > 0) {
		ret = count_batch(f, batch, count, err);
		if (f->weights)
			count_weights(f, count);
		soda_graph_tool_progress(NULL, "reading", f->source->fraction(f->source));
	}
	return ret ? ret : (int)count;
}

static int read_all(struct facts *f, bool weights, struct soda_graph_error *err)
{
	struct soda_graph_edge *batch = malloc(BATCH * sizeof(*batch));
	int ret = 0;

	if (weights)
		f->weights = malloc(BATCH * sizeof(*f->weights));
	if (!batch || (weights && !f->weights))
		ret = soda_graph_fail(err, ENOMEM, "out of memory for a batch of edges");
	if (!ret && weights)
		ret = soda_graph_source_weigh(f->source, f->weights, err);
	if (!ret)
		ret = read_edges(f, batch, err);
	free(f->weights);
	free(batch);
	return ret;
}

static json_t *describe(const struct facts *f)
{
	uint64_t seen = 0, sources = 0, vertices;
	uint32_t largest = 0;

	for (uint64_t v = 0; v < f->room && v <= f->largest_id; v++) {
		uint32_t degree = 0;

		if (!f->met[v / IDS]) {
			v |= IDS - 1;
			continue;
		}
		if (f->degrees[v])
			degree = f->degrees[v] - 1;
		seen += f->degrees[v] != 0;
		sources += degree != 0;
		if (degree > largest)
			largest = degree;
	}
	vertices = f->source->vertices ? f->source->vertices : seen;
	return json_pack(
		"{s:s, s:I, s:I, s:b, s:I, s:I, s:I, s:I, s:I, s:f}", "format", f->source->format,
		"vertices", (json_int_t)vertices, "edges", (json_int_t)f->edges, "symmetric",
		(int)f->source->symmetric, "self_loops", (json_int_t)f->loops, "largest_id",
		(json_int_t)f->largest_id, "without_edges", (json_int_t)(vertices - seen),
		"without_out_edges", (json_int_t)(vertices - sources), "largest_out_degree",
		(json_int_t)largest, "mean_out_degree", (double)f->edges / (double)vertices);
}

static void print(const json_t *facts)
{
	const char *key;
	json_t *value;

	json_object_foreach((json_t *)facts, key, value)
	{
		printf("%-20s ", key);
		if (json_is_string(value))
			puts(json_string_value(value));
		else if (json_is_boolean(value))
			puts(json_is_true(value) ? "yes" : "not known to be");
		else if (json_is_real(value))
			printf(strstr(key, "degree") ? "%.2f\n" : "%.9g\n", json_real_value(value));
		else
			printf("%" JSON_INTEGER_FORMAT "\n", json_integer_value(value));
	}
}

static void describe_weights(const struct facts *f, json_t *facts)
{
	double mean = f->edges ? f->weight_sum / (double)f->edges : 0;

	json_object_set_new(facts, "least_weight", json_real(f->edges ? f->lightest : 0));
	json_object_set_new(facts, "greatest_weight", json_real(f->heaviest));
	json_object_set_new(facts, "mean_weight", json_real(mean));
}

static int show(const struct facts *f, const struct options *o)
{
	json_t *facts = describe(f);

	if (!facts)
		return SODA_EXIT_FAILED;
	if (o->weights)
		describe_weights(f, facts);
	if (o->json)
		json_dumpf(facts, stdout, JSON_COMPACT);
	else
		print(facts);
	if (o->json)
		putchar('\n');
	json_decref(facts);
	return fflush(stdout) ? SODA_EXIT_FAILED : SODA_EXIT_OK;
}

int soda_command_graph_info(int argc, char **argv)
{
	struct options o = { 0 };
	static struct facts f = { .lightest = SODA_GRAPH_WEIGHT_MAX };
	struct soda_graph_error err;
	const char *path;
	int n = soda_tool_options(&conf, argc, argv, &o, &path, 1);
	int ret, status;

	if (n == 0)
		fprintf(stderr, "%s: of what? a graph's path; see --help\n", conf.program);
	if (n < 1)
		return SODA_EXIT_USAGE;
	ret = soda_graph_source_open(path, &f.source, &err);
	if (ret)
		return soda_graph_tool_fail(conf.program, ret, &err);
	ret = read_all(&f, o.weights, &err);
	soda_graph_tool_progress(NULL, NULL, 0);
	status = ret ? soda_graph_tool_fail(conf.program, ret, &err) : show(&f, &o);
	f.source->close(f.source);
	if (f.degrees)
		munmap(f.degrees, room_bytes(&f));
	return status;
}
