/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A simulation that shows its fields while it goes on: heat spreads over a square plate, from a
 * disc in its middle to the edges, which stay cold.  Every few iterations the temperature and its
 * last change are handed over to a DPU agent as a table of Apache Arrow.  The solver waits for
 * nobody: it has three copies of its fields, of which one may be under way.
 *
 *   heat --agent ADDRESS [--as stream|file|structs|host|agent|none] [--size N] [--iterations N]
 *        [--every N] [--name NAME]
 *
 * What the solver's thread loses to a hand-over is the call, and where the one before has not ended
 * the time until it has; on a machine that is busy most of that is waiting for a processor, so its
 * own CPU time is told, too.  `frames` beside this program draws what comes.
 */
#include <err.h>
#include <errno.h>
#include <getopt.h>
#include <soda_move.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { FIELDS = 2, COPIES = 3, SIZE_MAX_CELLS = 16384 };

/* One state of the plate, a row after the other. */
struct state {
	double *field[FIELDS]; /* temperature, change */
};

struct options {
	const char *agent, *name, *as;
	long size, iterations, every;
};

/* How a table gets into Arrow's form: placed on its way, or serialised here, or by the agent. */
static const struct strategy {
	const char *name;
	unsigned form, arrow_flags, buffer_flags;
} strategies[] = {
	{ "stream", SODA_MOVE_ARROW_STREAM, 0, 0 },
	{ "file", SODA_MOVE_ARROW_FILE, 0, 0 },
	{ "structs", SODA_MOVE_ARROW_STRUCTS, 0, 0 },
	{ "host", SODA_MOVE_ARROW_STREAM, SODA_MOVE_ARROW_COPY, 0 },
	{ "agent", SODA_MOVE_ARROW_STREAM, 0, SODA_MOVE_STAGE },
	{ "none", 0, 0, 0 },
};

struct output {
	const struct strategy *strategy;
	struct soda_mover *mover;
	struct soda_move_buffer *buffer;
	struct soda_move_ticket *ticket; /* of the hand-over before, while it is under way */
	int under_way;			 /* the state that it reads; -1: none */
	size_t handed;
	double *lost, *cpu; /* seconds, of each; and of processor */
};

static double seconds(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Arrow's C data interface. Nothing here is allocated: `release` has nothing to do. */

static void release_schema(struct ArrowSchema *schema)
{
	schema->release = NULL;
}

static void release_array(struct ArrowArray *array)
{
	array->release = NULL;
}

static void put_text(char **at, const char *text)
{
	int32_t bytes = (int32_t)strlen(text);

	memcpy(*at, &bytes, sizeof(bytes));
	memcpy(*at + sizeof(bytes), text, (size_t)bytes);
	*at += sizeof(bytes) + (size_t)bytes;
}

struct table {
	struct ArrowSchema schema, fields[FIELDS], *field_list[FIELDS];
	struct ArrowArray batch, columns[FIELDS], *column_list[FIELDS];
	const void *buffers[FIELDS][2], *no_buffers[1];
	char metadata[128]; /* how wide the plate is, which iteration it is */
};

static void make_metadata(struct table *t, long size, long iteration)
{
	int32_t pairs = 2;
	char *at = t->metadata + sizeof(pairs), number[24];

	memcpy(t->metadata, &pairs, sizeof(pairs));
	put_text(&at, "width");
	snprintf(number, sizeof(number), "%ld", size);
	put_text(&at, number);
	put_text(&at, "iteration");
	snprintf(number, sizeof(number), "%ld", iteration);
	put_text(&at, number);
}

static void make_table(struct table *t, const struct state *s, long size, long iteration)
{
	static const char *const names[FIELDS] = { "temperature", "change" };

	memset(t, 0, sizeof(*t));
	make_metadata(t, size, iteration);
	t->schema = (struct ArrowSchema){ .format = "+s",
					  .name = "",
					  .metadata = t->metadata,
					  .n_children = FIELDS,
					  .children = t->field_list,
					  .release = release_schema };
	t->batch = (struct ArrowArray){ .length = size * size,
					.n_buffers = 1,
					.buffers = t->no_buffers,
					.n_children = FIELDS,
					.children = t->column_list,
					.release = release_array };
	for (int i = 0; i < FIELDS; i++) {
		t->field_list[i] = &t->fields[i];
		t->fields[i] = (struct ArrowSchema){ .format = "g",
						     .name = names[i],
						     .release = release_schema };
		t->buffers[i][1] = s->field[i];
		t->column_list[i] = &t->columns[i];
		t->columns[i] = (struct ArrowArray){ .length = size * size,
						     .n_buffers = 2,
						     .buffers = t->buffers[i],
						     .release = release_array };
	}
}

/* Handing over */

static void open_output(struct output *out, const struct options *opt, const struct state *s)
{
	struct soda_move_arrow_options how = { .align = 4096, .form = out->strategy->form };
	struct soda_move_buffer_options buffer = { .copies = 3, .mode = 0444 };
	const struct ArrowArray *batch;
	struct table t;

	/* the last iteration has the longest number: all tables are as long as this or shorter */
	make_table(&t, s, opt->size, opt->iterations);
	batch = &t.batch;
	buffer.flags = out->strategy->buffer_flags;
	if (soda_move_arrow_bytes(&t.schema, &batch, 1, &how, &buffer.bytes) ||
	    soda_move_connect(opt->agent, &out->mover) ||
	    soda_move_reserve(out->mover, opt->name, &buffer, &out->buffer))
		errx(1, "%s", soda_move_last_error());
}

/* Wait until the hand-over before has ended: then its state may be overwritten. */
static void settle(struct output *out)
{
	int ret = out->ticket ? soda_move_wait(out->ticket, -1, NULL) : 0;

	out->ticket = NULL;
	out->under_way = -1;
	if (ret == -ENOSPC) /* consumers hold all copies: this frame is left out */
		return;
	if (ret)
		errx(1, "a step was lost: %s", soda_move_last_error());
}

static void hand_over(struct output *out, const struct options *opt, const struct state *states,
		      int which, long iteration)
{
	struct soda_move_arrow_options how = { .align = 4096,
					       .form = out->strategy->form,
					       .flags = out->strategy->arrow_flags };
	double began = seconds(CLOCK_MONOTONIC), cpu = seconds(CLOCK_THREAD_CPUTIME_ID);
	const struct ArrowArray *batch;
	struct table t;

	make_table(&t, &states[which], opt->size, iteration);
	batch = &t.batch;
	settle(out);
	if (soda_move_arrow(out->buffer, &t.schema, &batch, 1, &how, &out->ticket))
		errx(1, "%s", soda_move_last_error());
	out->under_way = how.flags & SODA_MOVE_ARROW_COPY ? -1 : which;
	out->lost[out->handed] = seconds(CLOCK_MONOTONIC) - began;
	out->cpu[out->handed++] = seconds(CLOCK_THREAD_CPUTIME_ID) - cpu;
}

/* Solving */

/* One explicit step of the heat equation, the largest that is stable. */
static void iterate(const struct state *from, struct state *to, long n)
{
	const double *t = from->field[0];

	for (long y = 1; y < n - 1; y++) {
		for (long x = 1; x < n - 1; x++) {
			long i = y * n + x;
			double next = 0.25 * (t[i - 1] + t[i + 1] + t[i - n] + t[i + n]);

			to->field[0][i] = next;
			to->field[1][i] = next - t[i];
		}
	}
}

/* A cell of the hot disc, whose diameter is half of the plate's. */
static bool in_disc(long x, long y, long n)
{
	double dx = 2.0 * (double)x / (double)n - 1, dy = 2.0 * (double)y / (double)n - 1;

	return dx * dx + dy * dy < 0.25;
}

static void make_states(struct state *states, long n)
{
	for (int s = 0; s < COPIES; s++) {
		for (int f = 0; f < FIELDS; f++) {
			states[s].field[f] = calloc((size_t)(n * n), sizeof(double));
			if (!states[s].field[f])
				errx(1, "no memory for a plate of %ld x %ld", n, n);
		}
		for (long i = 0; i < n * n; i++)
			states[s].field[0][i] = in_disc(i % n, i / n, n) ? 100 : 0;
	}
}

/* A state that is neither read by the solver nor on its way. */
static int free_state(int reading, int under_way)
{
	int i = 0;

	while (i == reading || i == under_way)
		i++;
	return i;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

/* Of n values, which are sorted: the middle one, in microseconds; 0: there is none. */
static double median_us(double *values, size_t n)
{
	qsort(values, n, sizeof(*values), compare);
	return n ? values[n / 2] * 1e6 : 0;
}

/* A line for programs: medians of all hand-overs, and the most that one has taken. */
static void report(const struct options *opt, struct output *out, double all)
{
	double lost = median_us(out->lost, out->handed), cpu = median_us(out->cpu, out->handed);

	printf("as=%s bytes=%ld handed=%zu lost_us=%.1f lost_max_us=%.1f cpu_us=%.1f"
	       " iteration_us=%.1f\n",
	       out->strategy->name, opt->size * opt->size * FIELDS * (long)sizeof(double),
	       out->handed, lost, out->handed ? out->lost[out->handed - 1] * 1e6 : 0, cpu,
	       all / (double)opt->iterations * 1e6);
}

static void solve(const struct options *opt, struct output *out)
{
	bool quiet = strcmp(out->strategy->name, "none") == 0;
	struct state states[COPIES];
	double began, all;
	int at = 0;

	make_states(states, opt->size);
	out->lost = calloc((size_t)(opt->iterations / opt->every) + 1, sizeof(*out->lost));
	out->cpu = calloc((size_t)(opt->iterations / opt->every) + 1, sizeof(*out->cpu));
	if (!out->lost || !out->cpu)
		errx(1, "no memory for %ld iterations", opt->iterations);
	if (!quiet)
		open_output(out, opt, &states[0]);
	began = seconds(CLOCK_MONOTONIC);
	for (long i = 1; i <= opt->iterations; i++) {
		int to = free_state(at, out->under_way);

		iterate(&states[at], &states[to], opt->size);
		at = to;
		if (!quiet && i % opt->every == 0)
			hand_over(out, opt, states, at, i);
	}
	all = seconds(CLOCK_MONOTONIC) - began;
	settle(out);
	if (!quiet && soda_move_end(out->buffer))
		errx(1, "%s", soda_move_last_error());
	report(opt, out, all);
	free(out->lost);
	free(out->cpu);
	soda_move_disconnect(out->mover);
	for (int s = 0; s < COPIES; s++)
		for (int f = 0; f < FIELDS; f++)
			free(states[s].field[f]);
}

static long number(const char *text, const char *what, long min, long max)
{
	char *end;
	long value = strtol(text, &end, 10);

	if (!*text || *end || value < min || value > max)
		errx(2, "--%s %s: expected %ld to %ld", what, text, min, max);
	return value;
}

static const struct strategy *strategy_of(const char *name)
{
	for (size_t i = 0; i < sizeof(strategies) / sizeof(*strategies); i++)
		if (strcmp(strategies[i].name, name) == 0)
			return &strategies[i];
	errx(2, "--as %s: expected stream, file, structs, host, agent or none", name);
}

int main(int argc, char **argv)
{
	static const struct option flags[] = {
		{ "agent", 1, NULL, 'a' },	{ "as", 1, NULL, 's' },	   { "size", 1, NULL, 'n' },
		{ "iterations", 1, NULL, 'i' }, { "every", 1, NULL, 'e' }, { "name", 1, NULL, 'm' },
		{ NULL, 0, NULL, 0 },
	};
	struct options opt = { NULL, "heat", "stream", 1024, 200, 10 };
	struct output out = { .under_way = -1 };
	int flag;

	while ((flag = getopt_long(argc, argv, "", flags, NULL)) != -1) {
		switch (flag) {
		case 'a':
			opt.agent = optarg;
			break;
		case 's':
			opt.as = optarg;
			break;
		case 'm':
			opt.name = optarg;
			break;
		case 'n':
			opt.size = number(optarg, "size", 3, SIZE_MAX_CELLS);
			break;
		case 'i':
			opt.iterations = number(optarg, "iterations", 1, 1000000000);
			break;
		case 'e':
			opt.every = number(optarg, "every", 1, 1000000000);
			break;
		default:
			return 2;
		}
	}
	if (optind < argc)
		errx(2, "%s: unexpected", argv[optind]);
	out.strategy = strategy_of(opt.as);
	solve(&opt, &out);
	return 0;
}
