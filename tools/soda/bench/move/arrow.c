/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * `soda bench move`: a table, in five ways, and in turns the same bytes as they are, unplaced.  Its
 * columns are numbers of 64 bits, without nulls, which lie one behind the other in the source.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "soda/bench/move/move.h"
#include "soda/bench/worker/summary.h"

enum { COPIES = 2, DEPTH = 2, NUMBER = 8, ALIGN = 64 };

static const struct {
	const char *name;
	unsigned form, arrow_flags, buffer_flags;
} strategies[SODA_BENCH_MOVE_STRATEGIES] = {
	{ "stream", SODA_MOVE_ARROW_STREAM, 0, 0 },
	{ "file", SODA_MOVE_ARROW_FILE, 0, 0 },
	{ "structs", SODA_MOVE_ARROW_STRUCTS, 0, 0 },
	{ "host", SODA_MOVE_ARROW_STREAM, SODA_MOVE_ARROW_COPY, 0 },
	{ "agent", SODA_MOVE_ARROW_STREAM, 0, SODA_MOVE_STAGE },
};

const char *soda_bench_move_strategy(unsigned i)
{
	return strategies[i].name;
}

struct table {
	struct ArrowSchema schema, fields[SODA_BENCH_MOVE_COLUMNS_MAX],
		*field_list[SODA_BENCH_MOVE_COLUMNS_MAX];
	struct ArrowArray batch, columns[SODA_BENCH_MOVE_COLUMNS_MAX],
		*column_list[SODA_BENCH_MOVE_COLUMNS_MAX];
	const void *buffers[SODA_BENCH_MOVE_COLUMNS_MAX][2], *no_buffers[1];
	uint64_t column_bytes;
};

static void release_schema(struct ArrowSchema *schema)
{
	schema->release = NULL;
}

static void release_array(struct ArrowArray *array)
{
	array->release = NULL;
}

static void make_table(const struct soda_bench_move_stage *stage, uint32_t columns, uint64_t bytes,
		       struct table *t)
{
	int64_t rows = (int64_t)(bytes / columns / NUMBER);

	memset(t, 0, sizeof(*t));
	t->column_bytes = (uint64_t)rows * NUMBER;
	t->schema = (struct ArrowSchema){ .format = "+s",
					  .name = "",
					  .n_children = columns,
					  .children = t->field_list,
					  .release = release_schema };
	t->batch = (struct ArrowArray){ .length = rows,
					.n_buffers = 1,
					.buffers = t->no_buffers,
					.n_children = columns,
					.children = t->column_list,
					.release = release_array };
	for (uint32_t i = 0; i < columns; i++) {
		t->field_list[i] = &t->fields[i];
		t->fields[i] = (struct ArrowSchema){ .format = "l",
						     .name = "column",
						     .release = release_schema };
		t->buffers[i][1] = stage->source + i * t->column_bytes;
		t->column_list[i] = &t->columns[i];
		t->columns[i] = (struct ArrowArray){ .length = rows,
						     .n_buffers = 2,
						     .buffers = t->buffers[i],
						     .release = release_array };
	}
}

/* One way to hand the table over: a strategy, or unplaced (strategy SODA_BENCH_MOVE_STRATEGIES). */
struct side {
	const struct soda_bench_move_stage *stage;
	const struct table *table;
	unsigned strategy;
	uint64_t bytes; /* of the columns */
	struct soda_move_buffer *buffer;
	char name[16];
};

static struct soda_move_arrow_options how_of(const struct side *s)
{
	return (struct soda_move_arrow_options){ .align = ALIGN,
						 .form = strategies[s->strategy].form,
						 .flags = strategies[s->strategy].arrow_flags };
}

static bool is_plain(const struct side *s)
{
	return s->strategy == SODA_BENCH_MOVE_STRATEGIES;
}

static int open_side(struct side *s)
{
	struct soda_move_buffer_options reserve = { .bytes = s->bytes,
						    .copies = COPIES,
						    .mode = 0444 };
	const struct ArrowArray *batch = &s->table->batch;
	struct soda_move_arrow_options how;
	int err = 0;

	snprintf(s->name, sizeof(s->name), "arrow-%u", s->strategy);
	if (!is_plain(s)) {
		how = how_of(s);
		reserve.flags = strategies[s->strategy].buffer_flags;
		err = soda_move_arrow_bytes(&s->table->schema, &batch, 1, &how, &reserve.bytes);
	}
	if (!err)
		err = soda_move_reserve(s->stage->mover, s->name, &reserve, &s->buffer);
	return err ? soda_bench_move_complain(s->name, err, soda_move_last_error()) : 0;
}

static int post(const struct side *s, struct soda_move_ticket **ticket_p)
{
	const struct soda_move_piece piece = { .from = s->stage->source, .bytes = s->bytes };
	const struct ArrowArray *batch = &s->table->batch;
	int err;

	if (is_plain(s)) {
		err = soda_move(s->buffer, &piece, 1, ticket_p);
	} else {
		struct soda_move_arrow_options how = how_of(s);

		err = soda_move_arrow(s->buffer, &s->table->schema, &batch, 1, &how, ticket_p);
	}
	return err ? soda_bench_move_complain(s->name, err, soda_move_last_error()) : 0;
}

static double agent_cpu(const struct soda_bench_move_stage *stage)
{
	clockid_t clock;

	return clock_getcpuclockid(stage->agent.pid, &clock) ? NAN : soda_transport_seconds(clock);
}

struct spent {
	double gb, host_us, agent_cpu_s; /* GB a second; a table; a GB */
};

/* DEPTH tables under way, for that long. */
static int run_side(const struct side *s, double seconds, struct spent *spent_p, uint64_t *step_p)
{
	double began = soda_transport_seconds(CLOCK_MONOTONIC), now = began,
	       host = soda_transport_seconds(CLOCK_PROCESS_CPUTIME_ID), agent = agent_cpu(s->stage),
	       gb;
	struct soda_move_ticket *tickets[DEPTH];
	uint64_t posted = 0, ended = 0;
	int err = 0;

	while (!err && (ended < posted || now - began < seconds)) {
		while (!err && posted - ended < DEPTH && now - began < seconds) {
			err = post(s, &tickets[posted % DEPTH]);
			posted += !err;
		}
		if (!err)
			err = soda_bench_move_await(tickets[ended++ % DEPTH], step_p);
		now = soda_transport_seconds(CLOCK_MONOTONIC);
	}
	gb = (double)ended * (double)s->bytes / 1e9;
	*spent_p = (struct spent){ gb / (now - began),
				   (soda_transport_seconds(CLOCK_PROCESS_CPUTIME_ID) - host) * 1e6 /
					   (double)ended,
				   (agent_cpu(s->stage) - agent) / gb };
	return err;
}

/* The columns of structures, as a consumer has them. */
static int compare_structs(const struct side *s, const struct soda_move_step *step)
{
	struct ArrowArray batch;
	int err = soda_move_arrow_batch(step, 0, &batch);

	if (err)
		return soda_bench_move_complain(s->name, err, soda_move_last_error());
	for (int64_t i = 0; i < batch.n_children && !err; i++)
		err = batch.children[i]->length != s->table->batch.length ||
		      memcmp(batch.children[i]->buffers[1], s->table->buffers[i][1],
			     s->table->column_bytes) != 0;
	batch.release(&batch);
	return err ? soda_bench_move_complain(s->name, -EILSEQ, "a column is not what it was") : 0;
}

/* All columns lie in the step, in their order, each aligned; unplaced they are all of it. */
static int compare_bytes(const struct side *s, const struct soda_move_step *step)
{
	const uint8_t *data = step->data;
	uint64_t bytes = s->table->column_bytes, at = 0;

	for (int64_t i = 0; i < s->table->schema.n_children; i++) {
		while (at + bytes <= step->bytes &&
		       memcmp(data + at, s->table->buffers[i][1], bytes) != 0)
			at += is_plain(s) ? step->bytes : ALIGN;
		if (at + bytes > step->bytes)
			return soda_bench_move_complain(s->name, -EILSEQ,
							"a column is not in the step");
		at += bytes;
		if (!is_plain(s))
			at = (at + ALIGN - 1) / ALIGN * ALIGN;
	}
	return 0;
}

static int verify(const struct side *s, uint64_t number)
{
	struct soda_move_reader *reader = NULL;
	struct soda_move_step step = { 0 };
	int err = soda_bench_move_step(s->stage, s->name, number, &reader, &step);

	if (!err)
		err = !is_plain(s) && strategies[s->strategy].form == SODA_MOVE_ARROW_STRUCTS
			      ? compare_structs(s, &step)
			      : compare_bytes(s, &step);
	soda_move_close(reader);
	return err;
}

static int measure_side(const struct side *s, struct spent *spent_p)
{
	uint64_t step = 0;
	int err = run_side(s, s->stage->plan->seconds, spent_p, &step);

	return err ? err : verify(s, step);
}

enum { SIDES = SODA_BENCH_MOVE_STRATEGIES + 1, PLAIN = SODA_BENCH_MOVE_STRATEGIES };

static void summarise(struct spent spent[SIDES][SODA_BENCH_ROUNDS_MAX], uint32_t rounds,
		      struct soda_bench_move_arrow *rows)
{
	double gb[SODA_BENCH_ROUNDS_MAX], plain[SODA_BENCH_ROUNDS_MAX],
		ratio[SODA_BENCH_ROUNDS_MAX], host[SODA_BENCH_ROUNDS_MAX],
		agent[SODA_BENCH_ROUNDS_MAX];

	for (unsigned s = 0; s < SODA_BENCH_MOVE_STRATEGIES; s++) {
		for (uint32_t i = 0; i < rounds; i++) {
			gb[i] = spent[s][i].gb;
			plain[i] = spent[PLAIN][i].gb;
			ratio[i] = gb[i] / plain[i];
			host[i] = spent[s][i].host_us;
			agent[i] = spent[s][i].agent_cpu_s;
		}
		rows[s].gb = soda_bench_median(gb, rounds);
		rows[s].plain_gb = soda_bench_median(plain, rounds);
		rows[s].ratio = soda_bench_median(ratio, rounds);
		rows[s].host_us = soda_bench_median(host, rounds);
		rows[s].agent_cpu_s = soda_bench_median(agent, rounds);
	}
}

int soda_bench_move_arrow(struct soda_bench_move_stage *stage, uint32_t columns, uint64_t bytes,
			  struct soda_bench_move_arrow *rows)
{
	static struct spent spent[SIDES][SODA_BENCH_ROUNDS_MAX];
	uint32_t rounds = stage->plan->rounds;
	struct side sides[SIDES];
	struct table table;
	int err = 0;

	make_table(stage, columns, bytes, &table);
	for (unsigned s = 0; s < SIDES; s++)
		sides[s] = (struct side){ .stage = stage,
					  .table = &table,
					  .strategy = s,
					  .bytes = table.column_bytes * columns };
	for (unsigned s = 0; s < SIDES && !err; s++)
		err = open_side(&sides[s]);
	for (uint32_t i = 0; i <= rounds && !err; i++) { /* the first one warms up */
		soda_bench_move_stamp(stage);
		for (unsigned s = 0; s < SIDES && !err; s++)
			err = measure_side(&sides[s], &spent[s][i ? i - 1 : 0]);
	}
	for (unsigned s = 0; s < SIDES; s++)
		if (sides[s].buffer)
			soda_move_end(sides[s].buffer);
	if (err)
		return err;
	for (unsigned s = 0; s < SODA_BENCH_MOVE_STRATEGIES; s++)
		rows[s] = (struct soda_bench_move_arrow){ .columns = columns,
							  .bytes = sides[s].bytes,
							  .strategy = s };
	summarise(spent, rounds, rows);
	return 0;
}
