/* SPDX-License-Identifier: BSD-3-Clause */
/* `soda bench move`: an agent, a mover, memory. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "soda/bench/move/move.h"
#include "soda/stage/patience.h"

enum { PAGE = 4096, PLAIN_BYTES = 1 << 20, PLAIN_DEPTH = 32, ROOM_BYTES = 64 << 20, COPIES = 2 };
enum { ARROW_BYTES = 256 << 10 }; /* of a table, beside its columns */

const char *const soda_bench_move_transports[] = {
	[SODA_BENCH_MOVE_SHM] = "shm",
	[SODA_BENCH_MOVE_TCP] = "tcp",
	[SODA_BENCH_MOVE_VERBS] = "verbs",
};

int soda_bench_move_complain(const char *what, int err, const char *why)
{
	fprintf(stderr, "soda bench move: %s: %s\n", what, why && *why ? why : strerror(-err));
	return err;
}

static uint64_t max_of(const uint64_t *list, unsigned n)
{
	uint64_t max = 0;

	for (unsigned i = 0; i < n; i++)
		max = list[i] > max ? list[i] : max;
	return max;
}

static uint64_t pages(uint64_t bytes)
{
	return (bytes + PAGE - 1) / PAGE * PAGE;
}

static uint64_t source_bytes(const struct soda_bench_move_plan *plan)
{
	uint64_t host = max_of(plan->host_sizes, plan->host_n),
		 arrow = max_of(plan->arrow_sizes, plan->arrow_n),
		 other = max_of(plan->sizes, plan->sizes_n);

	other = other > arrow ? other : arrow;
	return pages(host > other ? host : other);
}

/* All that is reserved at a time, and what is being given back beside it. */
static uint64_t move_memory(const struct soda_bench_move_plan *plan)
{
	uint64_t throughput = COPIES * max_of(plan->sizes, plan->sizes_n),
		 arrow = ((SODA_BENCH_MOVE_STRATEGIES + 1) * COPIES + 1) * /* and a stage */
			 (max_of(plan->arrow_sizes, plan->arrow_n) + ARROW_BYTES),
		 sum = ROOM_BYTES + 2 * (throughput > arrow ? throughput : arrow);

	for (unsigned i = 0; i < plan->host_n; i++)
		sum += pages(plan->host_sizes[i]);
	return sum + (plan->shared ? source_bytes(plan) + PAGE : 0);
}

/* By environment: the user's own variables decide the rest (workers, ...). */
static int before_agent(void *arg)
{
	char bytes[32];

	snprintf(bytes, sizeof(bytes), "%" PRIu64, move_memory(arg));
	setenv("SODA_DPU_MOVE_MEMORY", bytes, 1);
	return 0;
}

static int start_daemons(struct soda_bench_move_stage *stage)
{
	const struct soda_bench_start nothing = { 0 };
	const struct soda_bench_start agent = { before_agent, (void *)(uintptr_t)stage->plan };
	char listen[128] = "tcp://127.0.0.1:0";
	int err;

	if (stage->transport == SODA_BENCH_MOVE_VERBS)
		snprintf(listen, sizeof(listen), "verbs://%s:0", stage->plan->device);
	err = soda_bench_server_start(&stage->server, listen, 4 * ROOM_BYTES, NULL, &nothing);
	if (stage->transport == SODA_BENCH_MOVE_SHM)
		snprintf(listen, sizeof(listen), "shm://@soda-bench-move-%ld", (long)stage->owner);
	return err ? err
		   : soda_bench_agent_start(&stage->agent, listen, stage->server.address, &agent);
}

static int map(int fd, uint64_t bytes, uint8_t **memory_p)
{
	int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags | MAP_POPULATE, fd, 0);

	if (memory == MAP_FAILED)
		return soda_bench_move_complain("memory for the data", -errno, NULL);
	*memory_p = memory;
	return 0;
}

/* Where plain reads land: such memory as the agent's is. */
static int make_target(struct soda_bench_move_stage *stage)
{
	int fd = memfd_create("soda-bench-move", MFD_CLOEXEC), err = 0;

	stage->target_bytes = COPIES * pages(max_of(stage->plan->sizes, stage->plan->sizes_n));
	if (fd < 0 || ftruncate(fd, (off_t)stage->target_bytes))
		err = soda_bench_move_complain("memory for the data", -errno, NULL);
	if (!err)
		err = map(fd, stage->target_bytes, &stage->target);
	if (fd >= 0)
		close(fd);
	return err;
}

static int share_source(struct soda_bench_move_stage *stage)
{
	void *memory;
	int err = soda_move_alloc(stage->mover, stage->source_bytes, &memory);

	if (err)
		return soda_bench_move_complain("memory for the data", err, soda_move_last_error());
	stage->source = memory;
	return 0;
}

static int make_source(struct soda_bench_move_stage *stage)
{
	uint32_t x = 1;
	int err;

	stage->source_bytes = source_bytes(stage->plan);
	err = stage->plan->shared ? share_source(stage)
				  : map(-1, stage->source_bytes, &stage->source);
	for (uint64_t i = 0; !err && i < stage->source_bytes; i += sizeof(x)) {
		x = x * 1664525u + 1013904223u;
		memcpy(stage->source + i, &x, sizeof(x));
	}
	return err;
}

static int open_plain(struct soda_bench_move_stage *stage)
{
	struct soda_why why = { "" };
	int err;

	if (!stage->plan->sizes_n)
		return 0; /* nothing is compared */
	if (stage->transport == SODA_BENCH_MOVE_SHM)
		return make_target(stage);
	err = soda_transport_link_open(&stage->plain, stage->server.address, PLAIN_BYTES,
				       PLAIN_DEPTH, &why);
	return err ? soda_bench_move_complain(stage->server.address, err, why.text) : 0;
}

int soda_bench_move_stage_open(struct soda_bench_move_stage *stage)
{
	int err = start_daemons(stage);

	if (!err)
		err = open_plain(stage);
	if (err)
		return err;
	err = soda_move_connect(stage->agent.address, &stage->mover);
	if (err)
		return soda_bench_move_complain(stage->agent.address, err, soda_move_last_error());
	return make_source(stage);
}

void soda_bench_move_stage_close(struct soda_bench_move_stage *stage)
{
	soda_move_disconnect(stage->mover);
	soda_transport_link_close(&stage->plain);
	if (stage->source && !stage->plan->shared)
		munmap(stage->source, stage->source_bytes);
	if (stage->target)
		munmap(stage->target, stage->target_bytes);
	soda_bench_daemon_stop(&stage->agent);
	soda_bench_daemon_stop(&stage->server);
}

/* Equal pieces of whole words, and a last one with the rest. */
static void cut(const struct soda_bench_move_stage *stage, struct soda_bench_move_load *load)
{
	uint64_t each = load->bytes / stage->plan->pieces / 8 * 8, at = 0;
	uint32_t n = each ? stage->plan->pieces : 1;

	for (uint32_t i = 0; i < n; i++) {
		uint64_t bytes = i + 1 < n ? each : load->bytes - at;

		load->pieces[i] = (struct soda_move_piece){
			.from = stage->source + at, .bytes = bytes, .count = 1, .offset = at
		};
		at += bytes;
	}
	load->pieces_n = n;
}

int soda_bench_move_load_open(const struct soda_bench_move_stage *stage, const char *name,
			      uint64_t bytes, unsigned copies, struct soda_bench_move_load *load)
{
	/* by tcp nobody's user is known: a buffer that others may not read could not be read */
	const struct soda_move_buffer_options how = { .bytes = bytes,
						      .copies = copies,
						      .mode = 0444 };
	int err;

	load->name = name;
	load->bytes = bytes;
	cut(stage, load);
	err = soda_move_reserve(stage->mover, name, &how, &load->buffer);
	return err ? soda_bench_move_complain(name, err, soda_move_last_error()) : 0;
}

void soda_bench_move_load_close(struct soda_bench_move_load *load)
{
	if (load->buffer)
		soda_move_end(load->buffer);
	load->buffer = NULL;
}

void soda_bench_move_stamp(struct soda_bench_move_stage *stage)
{
	stage->stamp++;
	for (uint64_t at = 0; at < stage->source_bytes; at += PAGE)
		memcpy(stage->source + at, &stage->stamp, sizeof(stage->stamp));
}

int soda_bench_move_post(const struct soda_bench_move_load *load,
			 struct soda_move_ticket **ticket_p)
{
	int err = soda_move(load->buffer, load->pieces, load->pieces_n, ticket_p);

	return err ? soda_bench_move_complain("soda_move", err, soda_move_last_error()) : 0;
}

int soda_bench_move_await(struct soda_move_ticket *ticket, uint64_t *step_p)
{
	/* an agent that stands still is the library's to notice, and the guard's */
	int err = soda_move_wait(ticket, -1, step_p);

	return err ? soda_bench_move_complain("a ticket", err, NULL) : 0;
}

int soda_bench_move_step(const struct soda_bench_move_stage *stage, const char *name,
			 uint64_t number, struct soda_move_reader **reader_p,
			 struct soda_move_step *step_p)
{
	int patience = (int)soda_patience_ms(),
	    err = soda_move_open(stage->agent.address, name, patience, reader_p);

	if (!err)
		err = soda_move_next(*reader_p, number - 1, patience, step_p);
	if (err)
		return soda_bench_move_complain(name, err, soda_move_last_error());
	return step_p->number == number
		       ? 0
		       : soda_bench_move_complain(name, -EILSEQ, "the last step is not there");
}

int soda_bench_move_verify(const struct soda_bench_move_stage *stage,
			   const struct soda_bench_move_load *load, uint64_t number)
{
	struct soda_move_reader *reader = NULL;
	struct soda_move_step step;
	int err = soda_bench_move_step(stage, load->name, number, &reader, &step);

	if (!err &&
	    (step.bytes != load->bytes || memcmp(step.data, stage->source, load->bytes) != 0))
		err = soda_bench_move_complain(load->name, -EILSEQ,
					       "the step is not what was handed over");
	soda_move_close(reader);
	return err;
}
