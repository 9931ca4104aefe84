/* SPDX-License-Identifier: BSD-3-Clause */
/* The programs' work. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "several.h"
#include "soda.h"

unsigned several_done;

static struct {
	bool ended, leaving;
	unsigned done; /* operations, of all of its lives */
} programs[SIM_HOSTS];

static const char *const names[SEVERAL_NAMES] = { "index", "graph" };

static struct several_object *find(bool open)
{
	struct several_object *mine = several_objects[several_self()], *found[SEVERAL_OBJECTS];
	unsigned n = 0;

	for (unsigned i = 0; i < SEVERAL_OBJECTS; i++)
		if (open ? mine[i].base != NULL : !mine[i].asked_ns)
			found[n++] = &mine[i];
	return n ? found[sim_below(n)] : NULL;
}

/* No memory, where others may have it. */
static bool is_full(int err)
{
	return err == ENOSPC || err == EDQUOT || err == ENOMEM;
}

static void not_opened(struct several_object *o)
{
	o->asked_ns = 0;
}

/* Opening */

static bool allocate(struct several_object *o, unsigned pages)
{
	char *p;

	several_model_ask(o, SEVERAL_ANONYMOUS);
	p = soda_alloc(pages * 4096ull, 0);
	sim_note("soda_alloc of %u pages: %s", pages, p ? "" : soda_last_error());
	if (p) {
		several_model_open(o, p, pages * 4096ull);
		return true;
	}
	if (!is_full(errno))
		several_excuse("soda_alloc", -errno, o->asked_ns);
	not_opened(o);
	return false;
}

static void open_file(struct several_object *o)
{
	static const unsigned flags[] = { [SEVERAL_READ] = SODA_READ_ONLY,
					  [SEVERAL_WRITTEN] = SODA_WRITABLE,
					  [SEVERAL_PRIVATE] = SODA_PRIVATE };
	enum several_kind kind = sim_chance(45)	  ? SEVERAL_WRITTEN
				 : sim_chance(80) ? SEVERAL_READ
						  : SEVERAL_PRIVATE;
	int err;
	size_t bytes = 0;
	char *p;

	o->file = (int)sim_below(SEVERAL_FILES);
	several_model_ask(o, kind);
	p = soda_alloc_file(several_file_name(o->file), 0, flags[kind], &bytes);
	err = errno;
	sim_note("soda_alloc_file(%s, %x): %s", several_file_name(o->file), flags[kind],
		 p ? "" : soda_last_error());
	if (p && several_file_kept(o))
		sim_fail("INVARIANT: program %u has opened %s, of which another has the only use",
			 several_self(), several_file_name(o->file));
	if (p && bytes != several_file_pages(o->file) * 4096ull)
		sim_fail("INVARIANT: %s has %zu bytes", several_file_name(o->file), bytes);
	if (p) {
		several_model_open(o, p, bytes);
		return;
	}
	if (!is_full(err) && !(err == EBUSY && several_file_may_be_kept(o)))
		several_excuse("soda_alloc_file", -err, o->asked_ns);
	not_opened(o);
}

static void open_published(struct several_object *o)
{
	size_t bytes = 0;
	char *p;
	int err;

	o->name = (int)sim_below(SEVERAL_NAMES);
	several_model_ask(o, SEVERAL_PUBLISHED);
	p = soda_open_published(names[o->name], &bytes);
	err = errno;
	sim_note("soda_open_published(%s): %s", names[o->name], p ? "" : soda_last_error());
	if (p) {
		several_model_open(o, p, bytes);
		return;
	}
	if (!is_full(err) && !(err == ENOENT && !several_name_kept(o)))
		several_excuse("soda_open_published", -err, o->asked_ns);
	not_opened(o);
}

/* Changes of a file that the server does not take are given up. */
static void abandon(struct several_object *o)
{
	int ret = soda_advise(o->base, o->pages * 4096ull, SODA_ABANDON);

	if (!ret)
		ret = soda_try_free(o->base);
	sim_note("%p is abandoned: %d %s", (void *)o->base, ret, ret ? soda_last_error() : "");
	if (ret)
		sim_fail("WRONG CODE: soda_free of an abandoned file: %s", soda_strerror(ret));
	several_model_closed(o, false);
}

/* last: there is no other attempt. */
static void try_to_close(struct several_object *o, bool last)
{
	uint64_t began = sim_now();
	int ret;

	several_model_closing(o);
	ret = soda_try_free(o->base);
	sim_note("soda_free of %p: %d %s", (void *)o->base, ret, ret ? soda_last_error() : "");
	if (ret && o->kind != SEVERAL_WRITTEN)
		sim_fail("WRONG CODE: soda_free: %s", soda_strerror(ret));
	if (ret && !several_forgotten(o))
		several_excuse("soda_free", ret, began);
	if (!ret)
		several_model_closed(o, true);
	else if (several_forgotten(o) && (last || sim_chance(50)))
		abandon(o);
	else
		several_model_stays(o);
}

static void close_object(struct several_object *o)
{
	try_to_close(o, false);
}

static void publish(struct several_object *o)
{
	const char *name = names[o->name];
	bool unknown;
	int ret;

	several_publish_begins(o);
	ret = soda_publish(o->base, name);
	sim_note("soda_publish(%p, %s): %d %s", (void *)o->base, name, ret,
		 ret ? soda_last_error() : "");
	unknown = ret && strstr(soda_last_error(), "not said");
	several_publish_ends(o, ret, unknown);
	if (!ret) {
		o->kind = SEVERAL_PUBLISHED;
		if (several_name_kept(o))
			sim_fail("INVARIANT: %s is published, and another program has it", name);
		return;
	}
	if (!is_full(-ret) && !(ret == -EEXIST && several_name_may_be_kept(o)) &&
	    !(ret == -EIO && several_forgotten(o)))
		several_excuse("soda_publish", ret, o->asked_ns);
	close_object(o);
}

/* A new version, which is whole before others can have it. */
static void make_version(struct several_object *o)
{
	if (!allocate(o, (unsigned)sim_between(1, SEVERAL_PAGES)))
		return;
	several_version_begin(o, (int)sim_below(SEVERAL_NAMES));
	for (unsigned i = 0; i < several_cells(o); i++) {
		if (!several_version_value(o->version, i))
			continue;
		several_store(o, i);
		if (o->low[i] != several_version_value(o->version, i)) { /* it could not */
			close_object(o);
			return;
		}
	}
	publish(o);
}

static void open_some(void)
{
	struct several_object *o = find(false);
	uint64_t dice = sim_below(100);

	if (!o)
		return;
	if (dice < 20)
		allocate(o, (unsigned)sim_between(1, SEVERAL_PAGES));
	else if (dice < 65)
		open_file(o);
	else if (dice < 80)
		make_version(o);
	else
		open_published(o);
}

/* Using */

static bool may_be_stored_to(const struct several_object *o)
{
	return o->kind != SEVERAL_READ && o->kind != SEVERAL_PUBLISHED;
}

static void touch(struct several_object *o)
{
	unsigned cell = (unsigned)sim_below(several_cells(o)), n = (unsigned)sim_between(1, 16);
	bool stores = may_be_stored_to(o) && sim_chance(50);

	for (; n; n--) {
		if (stores && sim_chance(70))
			several_store(o, cell);
		else
			several_load(o, cell);
		cell = (cell + 1 + (sim_chance(20) ? (unsigned)sim_below(20) : 0)) %
		       several_cells(o);
	}
}

static void advise(struct several_object *o)
{
	static const int list[] = { SODA_COLD, SODA_COLD, SODA_WILLNEED, SODA_SEQUENTIAL,
				    SODA_NORMAL };
	uint64_t began = sim_now();
	int ret = soda_advise(o->base, o->pages * 4096ull, list[sim_below(5)]);

	sim_note("soda_advise of %p: %d %s", (void *)o->base, ret, ret ? soda_last_error() : "");
	if (ret && !(ret == -EIO && several_forgotten(o)))
		several_excuse("soda_advise", ret, began);
}

/* Whole chunks become zeros; of the last one, which may not be whole, nothing is said. */
static void discard(struct several_object *o)
{
	unsigned chunk = several_plan.program[several_self()].chunk_bytes / 4096 * SEVERAL_SLOTS;
	unsigned cells = several_cells(o);
	uint64_t began = sim_now();
	int ret;

	if (o->kind != SEVERAL_ANONYMOUS && o->kind != SEVERAL_PRIVATE)
		return;
	memset(o->low, 0, sizeof(o->low));
	ret = soda_advise(o->base, o->pages * 4096ull, SODA_DISCARD);
	sim_note("DISCARD of %p: %d %s", (void *)o->base, ret, ret ? soda_last_error() : "");
	if (ret)
		several_excuse("DISCARD", ret, began);
	else
		memset(o->high, 0, cells / chunk * chunk * sizeof(o->high[0]));
}

static void step(void)
{
	struct several_object *o = find(true);
	uint64_t dice = sim_below(100);

	if (!o || dice < 14)
		open_some();
	else if (dice < 70)
		touch(o);
	else if (dice < 78)
		several_sync(o);
	else if (dice < 86)
		advise(o);
	else if (dice < 88)
		discard(o);
	else
		close_object(o);
	sim_host_check(false);
}

/* Beginning and ending */

static void on_log(int level, const char *line, void *arg)
{
	sim_note("log %d of program %u: %s", level, several_self(), line);
}

static void begin(void)
{
	const struct several_settings *mine = &several_plan.program[several_self()];
	struct soda_config cfg = SODA_CONFIG_INIT;
	char buffer[32];
	int ret;

	snprintf(buffer, sizeof(buffer), "%llu",
		 (unsigned long long)mine->buffer_chunks * mine->chunk_bytes);
	cfg.server = several_plan.by_agent ? NULL : several_plan.agent.servers;
	cfg.dpu = several_plan.by_agent ? sim_net_address(SIM_AGENT) : NULL;
	cfg.buffer = buffer;
	cfg.evict = mine->evict;
	cfg.chunk_bytes = mine->chunk_bytes;
	cfg.threads = 1;
	cfg.prefetch_chunks = mine->prefetch ? mine->prefetch : SODA_OFF;
	cfg.connect_timeout_ms = several_plan.connect_ms;
	cfg.fault_timeout_ms = several_plan.fault_ms;
	cfg.mode = mine->handler ? SODA_MODE_HANDLER : SODA_MODE_INLINE;
	cfg.log = on_log;
	cfg.log_level = 3 + 1;
	several_prepare();
	for (;;) {
		uint64_t began = sim_now();

		ret = soda_init(&cfg);
		if (!ret)
			return;
		several_excuse("soda_init", ret, began);
		sim_sleep(500 * SIM_MS, "another beginning");
	}
}

/* True: it has nothing open any more. */
static bool close_all(bool last)
{
	struct several_object *mine = several_objects[several_self()];
	bool all = true;

	for (unsigned i = 0; i < SEVERAL_OBJECTS; i++) {
		for (unsigned cell = 0; mine[i].base && cell < several_cells(&mine[i]); cell++)
			several_load(&mine[i], cell);
		if (mine[i].base)
			try_to_close(&mine[i], last);
		all = all && !mine[i].base;
	}
	return all;
}

/* Data that the server refuses are lost where it has forgotten the program. */
static bool any_forgotten(void)
{
	struct several_object *mine = several_objects[several_self()];

	for (unsigned i = 0; i < SEVERAL_OBJECTS; i++)
		if (mine[i].base && several_forgotten(&mine[i]))
			return true;
	return false;
}

static void end(void)
{
	enum { TRIES = 20 };
	bool all = false;
	int ret;

	for (int tries = 1; !all && tries <= TRIES; tries++) {
		all = close_all(tries == TRIES);
		if (!all)
			sim_sleep(5 * SIM_S, "a file that cannot be written back");
	}
	if (!all)
		sim_fail("BROKEN PROMISE: all is mended, and a file cannot be closed: %s",
			 soda_last_error());
	ret = soda_shutdown();
	sim_note("soda_shutdown: %d", ret);
	if (ret)
		sim_fail("WRONG CODE: soda_shutdown: %s", soda_strerror(ret));
}

bool several_is_leaving(unsigned program)
{
	return programs[program].leaving;
}

/* Its shell begins it anew. */
static void *shell_main(void *program)
{
	unsigned i = (unsigned)(uintptr_t)program;

	several_gone(several_process(i), false);
	sim_sleep(sim_below(100 * SIM_MS), "the next life of a program");
	programs[i].leaving = false;
	several_begin(i);
	return NULL;
}

/* It ends by itself, with all that it has open. */
static void leave(void)
{
	struct several_object *mine = several_objects[several_self()];
	uint64_t began = sim_now();
	bool forgotten;
	int ret;

	programs[several_self()].leaving = true;
	for (unsigned i = 0; i < SEVERAL_OBJECTS; i++)
		several_model_closing(&mine[i]);
	ret = soda_shutdown();
	sim_note("soda_shutdown: %d", ret);
	forgotten = any_forgotten();
	if (ret && !forgotten)
		several_excuse("soda_shutdown", ret, began);
	for (unsigned i = 0; i < SEVERAL_OBJECTS; i++)
		if (mine[i].base)
			several_model_closed(&mine[i], !ret);
	sim_detach(sim_spawn(SIM_WORLD, "shell", shell_main, (void *)(uintptr_t)several_self()));
	sim_wait(&programs, SIM_NEVER, "its end");
}

static void *program_main(void *arg)
{
	unsigned me = several_self();

	begin();
	sim_note("program %u has begun", me);
	while (programs[me].done < several_plan.ops) {
		step();
		programs[me].done++;
		several_done++;
		sim_wake(&several_done, SIM_FIBERS);
		if (sim_chance(1))
			leave();
	}
	while (!several_calm)
		sim_wait(&several_calm, SIM_NEVER, "the end of all faults");
	end();
	programs[me].ended = true;
	return NULL;
}

void several_begin(unsigned program)
{
	sim_detach(sim_spawn(several_process(program), "program", program_main, NULL));
}

bool several_all_ended(void)
{
	for (unsigned i = 0; i < several_plan.programs; i++)
		if (!programs[i].ended)
			return false;
	return true;
}
