/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tables of the Arrow C data interface through an agent: one process hands them over, another one
 * maps the steps, or reads them over tcp, and reads the streams in them.
 *   test_dpu_arrow [DIR N]: N tables into DIR, for other readers of Arrow: `streams` and `files`,
 * each behind its length as a 64-bit number; and `tables`, what is in both, a line each
 * ("lib/arrow/arrow.h")
 */
#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "lib/arrow/arrow.h"
#include "lib/peer.h"
#include "lib/proc.h"
#include "soda_move.h"

enum { WAIT_MS = 60000, TABLES = 120, STEP = 1 << 20, ROWS = 1 << 20 };

static struct server agent;
static uint64_t tables_n = TABLES;

static void up(const char *listen)
{
	const char *args[] = { "--listen",	listen, "--server",	 "tcp://127.0.0.1:1",
			       "--move-memory", "256M", "--allow-other", NULL };

	MUST(agent_start(&agent, args) == 0);
}

static void down(void)
{
	MUST(server_stop(&agent) == 0);
	MUST(server_complaints(&agent) == 0);
	server_forget(&agent);
}

static const char *shm(void)
{
	static char where[64];
	static int n;

	snprintf(where, sizeof(where), "shm://@soda-arrow-%d-%d", (int)getpid(), n++);
	return where;
}

#define OK(call)                                                                                   \
	do {                                                                                       \
		int ret_ = (call);                                                                 \
		if (ret_) {                                                                        \
			fprintf(stderr, "%s:%d: %s: %d: %s\n", __FILE__, __LINE__, #call, ret_,    \
				soda_move_last_error());                                           \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

/* Each table is gone when its ticket has ended; its structures are when it has been handed over. */
static void produce(void)
{
	static const unsigned aligns[] = { 0, 8, 64, 4096 };
	struct soda_move_buffer_options how = { .bytes = STEP, .copies = 2, .mode = 0444 };
	struct soda_move_buffer *b;
	struct soda_mover *m;

	how.flags = SODA_MOVE_KEEP;
	OK(soda_move_connect(agent.address, &m));
	OK(soda_move_reserve(m, "tables", &how, &b));
	for (uint64_t i = 1; i <= tables_n;) {
		struct soda_move_arrow_options as = { .align = aligns[i % 4] };
		struct soda_move_ticket *ticket;
		struct arrow_table t;
		uint64_t step, bytes;
		int ret;

		arrow_make(&t, i);
		OK(soda_move_arrow_bytes(t.schema, t.batches, t.batches_n, &as, &bytes));
		MUST(bytes <= STEP && bytes % 8 == 0);
		OK(soda_move_arrow(b, t.schema, t.batches, t.batches_n, &as, &ticket));
		t.schema->release(t.schema);
		for (size_t k = 0; k < t.batches_n; k++)
			memset((void *)(uintptr_t)t.batches[k], 0xee, sizeof(*t.batches[k]));
		ret = soda_move_wait(ticket, WAIT_MS, &step);
		arrow_table_free(&t);
		MUST(ret == -ENOSPC || (ret == 0 && step == i));
		if (ret)
			usleep(200); /* until the consumer has passed a step */
		i += !ret;
	}
	OK(soda_move_end(b));
	soda_move_disconnect(m);
}

static pid_t run(void (*child)(void))
{
	pid_t pid = fork();

	MUST(pid >= 0);
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	alarm(4 * WAIT_MS / 1000);
	child();
	_exit(0);
}

static void expect_exit(pid_t pid)
{
	int status;

	MUST(waitpid(pid, &status, 0) == pid);
	MUST(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* What a step has is what its seed makes. Returns how long the stream is, and what it says. */
static size_t check_step(const struct soda_move_step *step, uint64_t seed, char **said_p)
{
	static const size_t aligns[] = { 64, 8, 64, 4096 };
	struct arrow_table made, read;
	char *want, *said;
	size_t end;

	arrow_read(&read, step->data, step->bytes, aligns[seed % 4], &end);
	said = arrow_print(&read);
	arrow_table_free(&read);
	arrow_make(&made, seed);
	want = arrow_print(&made);
	arrow_table_free(&made);
	if (strcmp(said, want)) {
		fprintf(stderr, "table %" PRIu64 ":\n%.2000s\nexpected\n%.2000s\n", seed, said,
			want);
		abort();
	}
	for (size_t i = end; i < step->bytes; i++)
		MUST(!((const char *)step->data)[i]);
	free(said);
	*said_p = want;
	return end;
}

/* All steps; each also into the files, where there are any. */
static void consume(FILE *streams, FILE *tables)
{
	struct soda_move_step step = { 0 };
	struct soda_move_reader *r;

	OK(soda_move_open(agent.address, "tables", WAIT_MS, &r));
	for (uint64_t i = 1; i <= tables_n; i++) {
		uint64_t bytes;
		char *said;

		OK(soda_move_next(r, i - 1, WAIT_MS, &step));
		MUST(step.number == i && step.bytes == STEP);
		bytes = check_step(&step, i, &said);
		if (streams) {
			MUST(fwrite(&bytes, sizeof(bytes), 1, streams) == 1);
			MUST(fwrite(step.data, bytes, 1, streams) == 1);
			MUST(fprintf(tables, "%s\n", said) > 0);
		}
		free(said);
		OK(soda_move_release(r, &step));
	}
	MUST(soda_move_next(r, tables_n, WAIT_MS, &step) == -EPIPE);
	soda_move_close(r);
}

static void passed_on(const char *listen, FILE *streams, FILE *tables)
{
	pid_t pid;

	up(listen);
	pid = run(produce);
	consume(streams, tables);
	expect_exit(pid);
	down();
}

static void test_shm(void **state)
{
	passed_on(shm(), NULL, NULL);
}

static void test_tcp(void **state)
{
	passed_on("tcp://127.0.0.1:0", NULL, NULL);
}

/* Forms: each table in a buffer of its own, since a file is as long as the step. */

static const unsigned form_aligns[] = { 64, 8, 128, 4096 };

/* Every fifth table's memory goes at once, because the library copies it. */
static void produce_form(struct soda_mover *m, uint64_t i, unsigned form,
			 struct soda_move_buffer **buffer_p)
{
	struct soda_move_buffer_options how = { .copies = 1, .mode = 0444 };
	struct soda_move_arrow_options as = { .align = form_aligns[i % 4], .form = form };
	struct soda_move_ticket *ticket;
	struct arrow_table t;

	arrow_make(&t, i);
	as.flags = i % 5 ? 0 : SODA_MOVE_ARROW_COPY;
	OK(soda_move_arrow_bytes(t.schema, t.batches, t.batches_n, &as, &how.bytes));
	how.bytes += i % 3 * 1000; /* a file's footer lies behind a gap then */
	how.flags = i % 4 ? 0 : SODA_MOVE_STAGE;
	OK(soda_move_reserve(m, "table", &how, buffer_p));
	OK(soda_move_arrow(*buffer_p, t.schema, t.batches, t.batches_n, &as, &ticket));
	if (as.flags)
		arrow_table_free(&t);
	OK(soda_move_wait(ticket, WAIT_MS, NULL));
	arrow_table_free(&t);
}

/* The structures of a step, in a table whose arrays release_structs() gives back. */
static void import(struct arrow_table *t, const struct soda_move_step *step)
{
	memset(t, 0, sizeof(*t));
	t->schema = arrow_alloc(t, sizeof(*t->schema));
	OK(soda_move_arrow_schema(step, t->schema, &t->batches_n));
	for (size_t i = 0; i < t->batches_n; i++) {
		struct ArrowArray *a = arrow_alloc(t, sizeof(*a));

		OK(soda_move_arrow_batch(step, i, a));
		t->batches[i] = a;
	}
}

static void release_structs(struct arrow_table *t)
{
	for (size_t i = 0; i < t->batches_n; i++) {
		struct ArrowArray *a = (struct ArrowArray *)(uintptr_t)t->batches[i];

		a->release(a);
	}
	t->schema->release(t->schema);
}

static void check_form(const struct soda_move_step *step, uint64_t seed, unsigned form)
{
	struct arrow_table made, read;
	char *want, *said;

	if (form == SODA_MOVE_ARROW_STRUCTS)
		import(&read, step);
	else
		arrow_read_file(&read, step->data, step->bytes, form_aligns[seed % 4]);
	said = arrow_print(&read);
	if (form == SODA_MOVE_ARROW_STRUCTS)
		release_structs(&read);
	arrow_table_free(&read);
	arrow_make(&made, seed);
	want = arrow_print(&made);
	arrow_table_free(&made);
	MUST(strcmp(said, want) == 0);
	free(said);
	free(want);
}

/* All tables, one after the other; each also into the file, where there is one. */
static void in_form(const char *listen, unsigned form, FILE *files)
{
	struct soda_mover *m;

	up(listen);
	OK(soda_move_connect(agent.address, &m));
	for (uint64_t i = 1; i <= tables_n; i++) {
		struct soda_move_step step = { 0 };
		struct soda_move_buffer *b;
		struct soda_move_reader *r;

		produce_form(m, i, form, &b);
		OK(soda_move_open(agent.address, "table", WAIT_MS, &r));
		OK(soda_move_next(r, 0, WAIT_MS, &step));
		check_form(&step, i, form);
		if (files) {
			MUST(fwrite(&step.bytes, sizeof(step.bytes), 1, files) == 1);
			MUST(fwrite(step.data, step.bytes, 1, files) == 1);
		}
		soda_move_close(r);
		OK(soda_move_end(b));
	}
	soda_move_disconnect(m);
	down();
}

static void test_file_shm(void **state)
{
	in_form(shm(), SODA_MOVE_ARROW_FILE, NULL);
}

static void test_file_tcp(void **state)
{
	in_form("tcp://127.0.0.1:0", SODA_MOVE_ARROW_FILE, NULL);
}

static void test_structs_shm(void **state)
{
	in_form(shm(), SODA_MOVE_ARROW_STRUCTS, NULL);
}

static void test_structs_tcp(void **state)
{
	in_form("tcp://127.0.0.1:0", SODA_MOVE_ARROW_STRUCTS, NULL);
}

/* One column of doubles, larger than the library's calls and the agent's reads. */
static struct ArrowArray *make_large(struct arrow_table *t, double *values, size_t from, size_t n)
{
	struct ArrowArray *a;

	t->schema = arrow_schema(t, "+s", "", 1);
	t->schema->children[0] = arrow_schema(t, "g", "temperature", 0);
	a = arrow_array(t, (int64_t)n, 1, 1);
	a->children[0] = arrow_array(t, (int64_t)n, 2, 0);
	a->children[0]->offset = (int64_t)from;
	a->children[0]->buffers[1] = values;
	t->batches[0] = a;
	t->batches_n = 1;
	return a;
}

/* A column lies in the mapped step as it is: a consumer computes with it in place. */
static void large(const char *listen, unsigned flags)
{
	struct soda_move_buffer_options how = { .mode = 0444, .flags = flags };
	double *values = malloc(ROWS * sizeof(*values));
	const struct soda_move_arrow_options as = { .align = 4096 };
	struct soda_move_step step = { 0 };
	struct arrow_table t = { 0 }, read;
	struct soda_move_ticket *ticket;
	struct soda_move_reader *r;
	struct soda_move_buffer *b;
	struct soda_mover *m;
	const double *column;
	size_t end;

	for (size_t i = 0; i < ROWS; i++)
		values[i] = (double)i / 3;
	up(listen);
	make_large(&t, values, 5, ROWS - 5);
	OK(soda_move_connect(agent.address, &m));
	OK(soda_move_arrow_bytes(t.schema, t.batches, 1, &as, &how.bytes));
	OK(soda_move_reserve(m, "large", &how, &b));
	OK(soda_move_open(agent.address, "large", WAIT_MS, &r));
	OK(soda_move_arrow(b, t.schema, t.batches, 1, &as, &ticket));
	OK(soda_move_wait(ticket, WAIT_MS, NULL));
	OK(soda_move_next(r, 0, WAIT_MS, &step));
	arrow_read(&read, step.data, step.bytes, 4096, &end);
	assert_int_equal(end, step.bytes);
	column = read.batches[0]->children[0]->buffers[1];
	if (!strncmp(agent.address, "shm", 3))
		assert_int_equal((uintptr_t)column % 4096, 0);
	assert_memory_equal(column, values + 5, (ROWS - 5) * sizeof(*values));
	arrow_table_free(&read);
	soda_move_close(r);
	soda_move_disconnect(m);
	arrow_table_free(&t);
	free(values);
	down();
}

static void test_large_shm(void **state)
{
	large(shm(), 0);
	large(shm(), SODA_MOVE_STAGE);
}

static void test_large_tcp(void **state)
{
	large("tcp://127.0.0.1:0", 0);
	large("tcp://127.0.0.1:0", SODA_MOVE_STAGE);
}

#define FAILS(call, err, words)                                                                    \
	do {                                                                                       \
		assert_int_equal(call, err);                                                       \
		assert_non_null(strstr(soda_move_last_error(), words));                            \
	} while (0)

/* What is refused leaves nothing behind, and the next table is moved. */
static void test_refused(void **state)
{
	struct soda_move_buffer_options how = { .bytes = 4096, .mode = 0444 };
	struct soda_move_arrow_options as = { .align = 24 };
	struct soda_move_ticket *ticket;
	struct soda_move_buffer *b;
	struct arrow_table t = { 0 };
	struct soda_mover *m;
	struct ArrowArray *a;
	double values[512];
	uint64_t bytes, step;

	memset(values, 0, sizeof(values));
	up(shm());
	OK(soda_move_connect(agent.address, &m));
	OK(soda_move_reserve(m, "small", &how, &b));
	a = make_large(&t, values, 0, 512);
	FAILS(soda_move_arrow(b, t.schema, t.batches, 1, NULL, &ticket), -EFBIG, "4096");
	FAILS(soda_move_arrow(b, t.schema, t.batches, 1, &as, &ticket), -EINVAL, "aligned");
	as.align = 8;
	as.reserved = 1;
	FAILS(soda_move_arrow_bytes(t.schema, t.batches, 1, &as, &bytes), -EINVAL, "reserved");
	as.reserved = 0;
	as.flags = 2;
	FAILS(soda_move_arrow(b, t.schema, t.batches, 1, &as, &ticket), -EINVAL, "flags");
	as.flags = 0;
	as.form = 3;
	FAILS(soda_move_arrow(b, t.schema, t.batches, 1, &as, &ticket), -EINVAL, "form 3");
	a->children[0]->length = -1;
	FAILS(soda_move_arrow(b, t.schema, t.batches, 1, NULL, &ticket), -EINVAL, "length -1");
	a->length = a->children[0]->length = 100;
	/* memory that is not there: the ticket's error, where the agent reads it */
	a->children[0]->buffers[1] = (void *)(uintptr_t)4096;
	OK(soda_move_arrow(b, t.schema, t.batches, 1, NULL, &ticket));
	FAILS(soda_move_wait(ticket, WAIT_MS, NULL), -EFAULT, "");
	a->children[0]->buffers[1] = values;
	OK(soda_move_arrow(b, t.schema, t.batches, 1, NULL, NULL)); /* nobody will ask */
	OK(soda_move_arrow(b, t.schema, t.batches, 1, NULL, &ticket));
	OK(soda_move_wait(ticket, WAIT_MS, &step));
	assert_int_equal(step, 2);
	for (int i = 0; i < 10; i++) /* under way at the end */
		OK(soda_move_arrow(b, t.schema, t.batches, 1, NULL, &ticket));
	soda_move_disconnect(m);
	arrow_table_free(&t);
	down();
}

static FILE *open_in(const char *dir, const char *name)
{
	char path[4096];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	file = fopen(path, "w");
	MUST(file);
	return file;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_shm),	    cmocka_unit_test(test_tcp),
		cmocka_unit_test(test_large_shm),   cmocka_unit_test(test_large_tcp),
		cmocka_unit_test(test_refused),	    cmocka_unit_test(test_file_shm),
		cmocka_unit_test(test_file_tcp),    cmocka_unit_test(test_structs_shm),
		cmocka_unit_test(test_structs_tcp),
	};

	if (argc == 3) {
		FILE *streams = open_in(argv[1], "streams"), *files = open_in(argv[1], "files"),
		     *tables = open_in(argv[1], "tables");

		tables_n = strtoull(argv[2], NULL, 10);
		passed_on(shm(), streams, tables);
		in_form(shm(), SODA_MOVE_ARROW_FILE, files);
		return fclose(streams) || fclose(files) || fclose(tables);
	}
	return cmocka_run_group_tests_name("arrow tables between processes", tests, NULL, NULL);
}
