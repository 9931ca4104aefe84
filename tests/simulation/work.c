/* SPDX-License-Identifier: BSD-3-Clause */
/* Threads of the application. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "base/log.h"
#include "disk.h"
#include "net.h"
#include "sealing/sealing.h"
#include "soda.h"
#include "trust/tenants.h"
#include "world.h"

static char keys; /* who wants an object */

/* Where there is a store, mostly what it takes. */
static bool for_the_store(void)
{
	return plan.agent_settings.store && sim_chance(60);
}

static bool may_be_stored(const struct sim_object *o)
{
	return plan.agent_settings.store && o->flags & SODA_READ_ONLY;
}

static unsigned prefer_stored(struct sim_object **objects, unsigned n)
{
	unsigned kept = 0;

	if (!for_the_store())
		return n;
	for (unsigned i = 0; i < n; i++)
		if (may_be_stored(objects[i]))
			objects[kept++] = objects[i];
	return kept ? kept : n;
}

/* Where in the object the rebuild is; false: it is at another one, or there was none. */
static bool is_rebuilt(const struct sim_object *o, size_t *cell_p)
{
	size_t at = (size_t)(sim_host_rebuilding() - o->base);

	if (!sim_host_rebuilding() || at >= o->bytes || sim_history.begun == sim_history.ended)
		return false;
	*cell_p = at / 4096 * SIM_SLOTS;
	return true;
}

/* In the middle of a rebuild, often its object. */
static unsigned prefer_rebuilt(struct sim_object **objects, unsigned n)
{
	size_t cell;

	for (unsigned i = 0; plan.mirrored && i < n; i++)
		if (is_rebuilt(objects[i], &cell) && sim_chance(60)) {
			objects[0] = objects[i];
			return 1;
		}
	return n;
}

static struct sim_object *use(void)
{
	struct sim_object *live[SIM_OBJECTS];
	unsigned n = 0;

	for (int i = 0; i < SIM_OBJECTS; i++)
		if (sim_objects[i].base && !sim_objects[i].taken)
			live[n++] = &sim_objects[i];
	if (!n)
		return NULL;
	n = prefer_stored(live, n);
	n = prefer_rebuilt(live, n);
	live[0] = live[sim_chance(plan.crowded) ? 0 : sim_below(n)];
	live[0]->users++;
	return live[0];
}

static void unuse(struct sim_object *o)
{
	o->users--;
	sim_wake(&keys, SIM_FIBERS);
}

/* For one thread alone; it is used already. NULL: another one takes it. */
static bool take(struct sim_object *o)
{
	if (o->taken)
		return false;
	o->taken = true;
	while (o->users > 1)
		sim_wait(&keys, SIM_NEVER, "others to let go of an object");
	return true;
}

/* One that another thread is about to take is none. */
static struct sim_object *find_place(void)
{
	for (int i = 0; i < SIM_OBJECTS; i++)
		if (!sim_objects[i].base && !sim_objects[i].taken)
			return &sim_objects[i];
	return NULL;
}

static void allocate(void)
{
	size_t chunks = sim_between(1, 120);
	struct sim_object *o = find_place();
	uint64_t began = sim_now();
	unsigned flags;
	size_t bytes;
	char *p;

	if (!o)
		return;
	o->taken = true;
	bytes = chunks * plan.chunk_bytes;
	if (bytes > 2u << 20)
		bytes = 2u << 20;
	if (plan.servers > 1 && sim_chance(10)) /* of several slabs */
		bytes += sim_between(1, SIM_SLABS - 1) * SIM_SLAB;
	if (sim_chance(30)) /* the last chunk is not whole */
		bytes -= sim_below(plan.chunk_bytes / 4096) * 4096;
	flags = plan.sealed && sim_chance(plan.sealed) ? SODA_SEALED : 0;
	p = soda_alloc(bytes, flags);
	sim_note("soda_alloc(%zu, %x): %s", bytes, flags, p ? "" : soda_last_error());
	if (!p && errno != ENOSPC && errno != EDQUOT && errno != ENOMEM)
		sim_model_excuse("soda_alloc", -errno, began);
	if (p) {
		*o = (struct sim_object){
			.base = p, .bytes = bytes, .born_ns = sim_now(), .taken = true
		};
		o->cells = calloc(sim_cells(o), sizeof(*o->cells));
		for (size_t i = 0; i < sim_cells(o); i++)
			o->cells[i].good_ns = sim_now();
	}
	o->taken = false;
}

enum { FILE_PAGES = 60, FILE_CELLS = FILE_PAGES * SIM_SLOTS };

/* Files, as the application knows them: who has one open, and who is about to. */
static struct {
	const char *name;
	unsigned busy, readers, writers;
	unsigned released; /* how often soda_free() has been asked to close one of them */
	/* Of a sealed file: whether its last writer has gone, and what it may have left. */
	unsigned commits; /* under way */
	bool written;
	uint64_t least[FILE_CELLS], most[FILE_CELLS];
} files[] = { { .name = "f0" },	 { .name = "f1" },   { .name = "f2" },	{ .name = "f3" },
	      { .name = "d/n" }, { .name = "d/s0" }, { .name = "d/s1" } };

enum {
	SEALED = 5, /* from that one on */
	FILES = sizeof(files) / sizeof(*files),
	WRITTEN = 2,
};

static uint64_t file_word(int file, uint64_t offset, bool stable)
{
	return file < SEALED ? sim_disk_word(files[file].name, offset, stable)
			     : sim_sealed_word(files[file].name, offset, stable);
}

static size_t file_pages(int file)
{
	return file < SEALED ? sim_disk_pages(files[file].name)
			     : sim_sealed_bytes(files[file].name) / 4096;
}

/* A writer has let go of a sealed file: all that it has stored is there, or (lost) what it has
 * promised, or something between. */
static void leave_file(const struct sim_object *o, bool lost)
{
	for (size_t i = 0; i < sim_cells(o); i++) {
		files[o->file].least[i] = lost ? o->cells[i].synced : o->cells[i].value;
		files[o->file].most[i] = o->cells[i].value;
	}
	files[o->file].written = true;
}

/* What was promised is there, whatever happened meanwhile, and nothing that nobody has stored. */
static void check_left(int file, size_t cell, uint64_t has)
{
	if (file >= SEALED && files[file].written &&
	    (has < files[file].least[cell] || has > files[file].most[cell]))
		sim_fail(
			"BROKEN PROMISE: sealed file %s has %llu in cell %zu; %llu was left there, "
			"or up to %llu",
			files[file].name, (unsigned long long)has, cell,
			(unsigned long long)files[file].least[cell],
			(unsigned long long)files[file].most[cell]);
}

/* What the file has is what the object has. */
static void adopt(struct sim_object *o)
{
	if (o->flags & SODA_WRITABLE)
		files[o->file].writers++;
	if (o->flags & SODA_READ_ONLY)
		files[o->file].readers++;
	for (size_t i = 0; i < sim_cells(o); i++) {
		uint64_t offset = (uint64_t)(sim_cell_at(o, i) - o->base);

		o->cells[i].value = o->cells[i].synced = file_word(o->file, offset, false);
		check_left(o->file, i, o->cells[i].value);
	}
}

static unsigned open_flags(int file)
{
	unsigned sealed = plan.agent_settings.seal ? 0 : SODA_SEALED; /* by whom */

	if (file >= SEALED)
		return sealed | (sim_chance(70) ? SODA_WRITABLE | SODA_CREATE : SODA_READ_ONLY);
	if (plan.agent_settings.seal) /* others than to be read are refused */
		return SODA_READ_ONLY;
	if (file >= WRITTEN && sim_chance(60))
		return SODA_WRITABLE | (sim_chance(80) ? SODA_CREATE : 0);
	return sim_chance(60) ? SODA_READ_ONLY : SODA_PRIVATE;
}

/* Why it may be refused, without a fault. */
static bool may_refuse(int file, unsigned flags, size_t bytes, int err, bool rival)
{
	size_t pages = file_pages(file);

	switch (err) {
	case ENOENT:
		return !pages && !(flags & SODA_CREATE);
	case EINVAL: /* of a sealed file: it was never committed, or has another size */
		return pages ? file >= SEALED && bytes && bytes != pages * 4096
			     : !bytes || (file >= SEALED && !(flags & SODA_WRITABLE));
	case EFBIG:
		return file >= SEALED ? bytes != pages * 4096
				      : bytes > pages * 4096 && !(flags & SODA_WRITABLE);
	case EBUSY: /* or of a client that the server has not given up yet */
		return rival || sim_history.disturbed_ns;
	default:
		return err == ENOSPC || err == EDQUOT || err == ENOMEM;
	}
}

static int some_file(void)
{
	if (plan.sealed_files && sim_chance(50))
		return SEALED + (int)sim_below(FILES - SEALED);
	return (int)sim_below(SEALED);
}

static void allocate_file(void)
{
	bool stored = for_the_store();
	int file = stored ? 0 : some_file();
	unsigned flags = stored ? SODA_READ_ONLY : open_flags(file);
	bool writes = flags & SODA_WRITABLE;
	size_t bytes = sim_chance(30) ? sim_between(1, FILE_PAGES) * 4096 : 0, got = 0;
	bool rival = files[file].writers || (writes && files[file].readers);
	struct sim_object *o = find_place();
	unsigned released = files[file].released;
	uint64_t began = sim_now();
	char *p;

	if (!o || files[file].busy)
		return;
	files[file].busy++;
	o->taken = true;
	p = soda_alloc_file(files[file].name, bytes, flags, &got);
	sim_note("soda_alloc_file(%s, %zu, %x): %zu %s", files[file].name, bytes, flags, got,
		 p ? "" : soda_last_error());
	if (!p && !may_refuse(file, flags, bytes, errno, rival))
		sim_model_excuse("soda_alloc_file", -errno, began);
	rival = rival && files[file].released == released; /* all the time */
	if (p && (rival || (bytes && got != bytes)))
		sim_fail("INVARIANT: %s is open %s, of %zu bytes", files[file].name,
			 rival ? "although a writer must be alone" : "", got);
	if (p) {
		*o = (struct sim_object){ .base = p,
					  .bytes = (got + 4095) / 4096 * 4096,
					  .born_ns = sim_now(),
					  .taken = true,
					  .flags = flags,
					  .frozen = flags & SODA_READ_ONLY,
					  .file = file };
		o->cells = calloc(sim_cells(o) + 1, sizeof(*o->cells));
		for (size_t i = 0; i < sim_cells(o); i++)
			o->cells[i].good_ns = sim_now();
		adopt(o);
	}
	o->taken = false;
	files[file].busy--;
}

static bool is_sealed_file(const struct sim_object *o)
{
	return o->flags && o->file >= SEALED;
}

/* On stable storage is what soda_sync has promised, or newer; exactly: the last of all. */
static void check_file(const struct sim_object *o, bool exactly)
{
	if (is_sealed_file(o))
		sim_sealed_look(files[o->file].name);
	for (size_t i = 0; o->flags & SODA_WRITABLE && i < sim_cells(o); i++) {
		const struct sim_cell *c = &o->cells[i];
		uint64_t offset = (uint64_t)(sim_cell_at(o, i) - o->base);
		uint64_t has = file_word(o->file, offset, true);

		if (has < c->synced || has > c->value || (exactly && has != c->value))
			sim_fail("BROKEN PROMISE: file %s has %llu at %llu; %llu was synced, %llu "
				 "stored",
				 files[o->file].name, (unsigned long long)has,
				 (unsigned long long)offset, (unsigned long long)c->synced,
				 (unsigned long long)c->value);
	}
}

/* False: a file that could not be written back stays. */
static bool release(struct sim_object *o)
{
	bool writes = o->flags & SODA_WRITABLE, is_file = o->flags & ~SODA_SEALED;
	uint64_t began = sim_now();
	int ret;

	if (!take(o))
		return false;
	files[o->file].busy += is_file;
	files[o->file].released += is_file;
	ret = soda_try_free(o->base);
	sim_note("soda_free: %d %s", ret, ret ? soda_last_error() : "");
	files[o->file].busy -= is_file;
	if (ret && !writes)
		sim_fail("WRONG CODE: soda_free: %s", soda_strerror(ret));
	if (ret && !(ret == -EIO && (sim_model_lost() || sim_model_spoiled(o))))
		sim_model_excuse("soda_free", ret, began);
	if (!ret) {
		check_file(o, !sim_model_lost());
		if (writes && is_sealed_file(o))
			leave_file(o, sim_model_lost());
		files[o->file].writers -= writes;
		files[o->file].readers -= !!(o->flags & SODA_READ_ONLY);
		sim_seal_gone(o->base, o->bytes);
		free(o->cells);
		o->base = NULL;
	}
	o->taken = false;
	sim_wake(&keys, SIM_FIBERS);
	return !ret;
}

/* Where of so many: where the threads meet, often, or anywhere. */
static size_t some_place(size_t n)
{
	return sim_chance(plan.crowded) ? sim_below(n < 16 ? n : 16) : sim_below(n);
}

/* Pages of one object; whole chunks where it says so. */
static size_t range(const struct sim_object *o, bool chunks, size_t *first_p)
{
	size_t unit = (chunks ? plan.chunk_bytes / 4096 : 1) * SIM_SLOTS, all = sim_cells(o) / unit;
	size_t n, first;

	if (!all) {
		*first_p = 0;
		return sim_cells(o);
	}
	n = sim_chance(20) ? all : sim_between(1, all < 24 ? all : 24);
	first = some_place(all - n + 1);
	*first_p = first * unit;
	return n * unit;
}

/* What is just copied is stored to, and brought to the servers. */
static bool meet_rebuild(struct sim_object *o)
{
	size_t cell, chunk = plan.chunk_bytes / 4096 * SIM_SLOTS;

	if (!plan.mirrored || !is_rebuilt(o, &cell) || !sim_chance(60))
		return false;
	if (sim_chance(30)) /* the next one that it comes to */
		cell += chunk;
	if (cell >= sim_cells(o))
		return false;
	if (cell + chunk > sim_cells(o))
		chunk = sim_cells(o) - cell;
	for (uint64_t n = sim_between(1, 3); n; n--)
		sim_model_store(o, cell + sim_below(chunk));
	if (sim_chance(80))
		sim_model_sync(o, cell, chunk);
	return true;
}

static void touch_some(struct sim_object *o, bool store)
{
	size_t cells = sim_cells(o), n = sim_between(1, 12), step = sim_chance(70) ? 1 : SIM_SLOTS;
	size_t at = some_place(cells);

	for (size_t i = 0; i < n; i++) {
		if (store && !o->frozen)
			sim_model_store(o, at % cells);
		else
			sim_model_load(o, at % cells);
		at += sim_chance(10) ? sim_below(cells) : step;
	}
}

static void advise(struct sim_object *o)
{
	static const int list[] = { SODA_NORMAL,   SODA_SEQUENTIAL, SODA_RANDOM, SODA_WILLNEED,
				    SODA_WILLNEED, SODA_COLD,	    SODA_COLD,	 SODA_PIN,
				    SODA_UNPIN,	   SODA_UNPIN };
	int advice = list[sim_below(sizeof(list) / sizeof(*list))], ret;
	size_t first, n = range(o, false, &first);
	uint64_t began = sim_now();

	ret = soda_advise(sim_cell_at(o, first), n / SIM_SLOTS * 4096, advice);
	sim_note("advice %d: %d %s", advice, ret, ret ? soda_last_error() : "");
	if (ret == -ENOTSUP && advice == SODA_PIN && may_be_stored(o))
		return;	 /* nobody keeps a chunk of the store for one program */
	if (ret == -EIO) /* PIN of a lost page; COLD of what an agent has lost */
		return;
	if (ret && !(ret == -ENOMEM && advice == SODA_PIN))
		sim_model_excuse("soda_advise", ret, began);
}

static void prefetch(struct sim_object *o)
{
	struct iovec v[4];
	int n = (int)sim_between(1, 4), ret;

	for (int i = 0; i < n; i++) {
		size_t first, cells = range(o, false, &first);

		v[i] = (struct iovec){ sim_cell_at(o, first), cells / SIM_SLOTS * 4096 };
	}
	ret = soda_prefetchv(v, n);
	if (ret)
		sim_fail("WRONG CODE: soda_prefetchv: %s", soda_strerror(ret));
}

static void discard(struct sim_object *o)
{
	size_t first, n = range(o, true, &first);

	/* zeros for a file are stored to it, as by the application itself */
	if (o->frozen || o->flags & SODA_WRITABLE)
		return;
	sim_model_discard(o, first, n);
	for (size_t i = first; i < first + n && sim_chance(80); i++) /* is it zero? */
		sim_model_load(o, i);
}

static void sync_some(struct sim_object *o)
{
	size_t first = 0, n = sim_cells(o);
	int ret;

	if (sim_chance(60))
		n = range(o, false, &first);
	files[o->file].commits++;
	ret = sim_model_sync(o, first, n);
	/* what is being committed, or was not to its end, is in no state to be looked at */
	if (!is_sealed_file(o) || (ret == 0 && files[o->file].commits == 1))
		check_file(o, false);
	files[o->file].commits--;
}

static void freeze(struct sim_object *o)
{
	static const int list[] = { SODA_STATIC_CACHE, SODA_DYNAMIC_CACHE, SODA_NO_CACHE };
	int advice = list[sim_below(3)], ret;
	uint64_t began = sim_now();

	if (!take(o))
		return;
	ret = soda_advise(o->base, o->bytes, advice);
	sim_note("cache advice %d: %d %s", advice, ret, ret ? soda_last_error() : "");
	if (!ret)
		o->frozen = advice == SODA_STATIC_CACHE || o->flags & SODA_READ_ONLY;
	else if (ret != -ENOTSUP && ret != -ENOSPC && ret != -EBUSY && ret != -EIO)
		sim_model_excuse("cache advice", ret, began);
	o->taken = false;
	sim_wake(&keys, SIM_FIBERS);
}

/* A name is all that changes, unless the agent's operator has a rule for it; there is none. */
static void name(struct sim_object *o)
{
	static const char *const names[] = { "", "a", "matrix", "a name with blanks \"\\" };
	uint64_t began = sim_now();
	int ret = soda_set_name(o->base, names[sim_below(4)]);

	sim_note("soda_set_name: %d %s", ret, ret ? soda_last_error() : "");
	if (ret)
		sim_model_excuse("soda_set_name", ret, began);
	if (soda_set_name(o->base + 4096, "none") != -EINVAL)
		sim_fail("WRONG CODE: soda_set_name names what is no object");
}

/* What is counted is what the model knows, and all of it is JSON. */
static void look_at_stats(void)
{
	char text[4096];
	struct soda_stats s;
	json_t *all;
	size_t bytes;
	int ret = soda_get_stats(&s, sizeof(s));

	if (ret)
		sim_fail("WRONG CODE: soda_get_stats: %s", soda_strerror(ret));
	if (s.chunk_bytes != plan.chunk_bytes)
		sim_fail("INVARIANT: statistics: chunks of %u", s.chunk_bytes);
	bytes = sim_host_stats(text, sizeof(text));
	all = json_loadb(text, bytes, 0, NULL);
	if (!json_object_get(all, "soda_stats"))
		sim_fail("WRONG BYTES: statistics that are no JSON: %.*s", (int)bytes, text);
	json_decref(all);
}

static void pause_some(void)
{
	static const uint64_t lengths[] = { SIM_US * 100, SIM_MS * 5, SIM_MS * 300, SIM_S * 8 };

	sim_sleep(1 + sim_below(lengths[sim_below(4)]), "nothing: it pauses");
}

static void step(void)
{
	struct sim_object *o = use();
	uint64_t dice = sim_below(1000);

	if (!o || dice < 15) {
		if (plan.server.files && sim_chance(50))
			allocate_file();
		else
			allocate();
		if (o)
			unuse(o);
		return;
	}
	if (sim_model_abandoned(o) && sim_chance(10))
		release(o);
	else if (meet_rebuild(o))
		;
	else if (dice < 400)
		touch_some(o, false);
	else if (dice < 750)
		touch_some(o, true);
	else if (dice < 820)
		sync_some(o);
	else if (dice < 860)
		discard(o);
	else if (dice < 920)
		advise(o);
	else if (dice < 960)
		prefetch(o);
	else if (dice < 970)
		release(o);
	else if (dice < 980)
		freeze(o);
	else if (dice < 985)
		look_at_stats();
	else if (dice < 988)
		name(o);
	else
		pause_some();
	unuse(o);
}

static struct sim_fiber *neighbour;

void *sim_work_main(void *thread)
{
	if (plan.neighbour && !neighbour)
		neighbour = sim_spawn(SIM_WORLD, "neighbour", sim_neighbour_main, NULL);
	while (sim_history.done < plan.ops) {
		sim_history.done++;
		sim_wake(&sim_history.done, SIM_FIBERS);
		step();
		sim_host_check(false);
		sim_agent_check();
		sim_tenants_check();
		if (plan.mirrored)
			sim_copies_check_some();
	}
	return NULL;
}

static bool any_spoiled(void)
{
	for (int i = 0; i < SIM_OBJECTS; i++)
		if (sim_objects[i].base && sim_model_spoiled(&sim_objects[i]))
			return true;
	return false;
}

/* Of the server that has the most in use. */
static uint64_t used_most(void)
{
	uint64_t most = 0;

	for (unsigned i = 0; i < plan.servers; i++)
		if (sim_server(SIM_SERVER + i)->used() > most)
			most = sim_server(SIM_SERVER + i)->used();
	return most;
}

/* Nobody comes back, and after its patience the agent has the keys and tables of nobody. */
static void await_no_state(void)
{
	uint64_t s = 60 + plan.agent_settings.seal_keep_ms / 1000;

	for (uint64_t i = 0; sim_state_files() && i < s; i++)
		sim_sleep(SIM_S, "the agent to forget all keys");
	if (sim_state_files())
		sim_fail("LEAK: nobody has anything, and --seal-state has %u files",
			 sim_state_files());
}

static uint64_t charged(void)
{
	uint64_t sum = 0;

	for (enum sim_process p = SIM_AGENT; p < SIM_SERVER + plan.servers; p++)
		if (sim_tenants_has(p))
			sum += p == SIM_AGENT ? sim_agent_used("host")
					      : sim_server(p)->used_by("host", 0);
	return sum;
}

/* As all is freed, nothing is charged to anybody; an agent hears of that last. */
static void await_accounts(void)
{
	for (int i = 0; charged() && i < 100; i++)
		sim_sleep(SIM_S, "nothing to be charged");
	if (charged())
		sim_fail("LEAK: nobody has anything, and to its tenant %llu bytes are charged",
			 (unsigned long long)charged());
}

/* The end of the application; what it had on the server is freed, now or after its patience. */
static void leave(void)
{
	bool spoiled = any_spoiled();
	int ret = soda_shutdown();

	if (ret && !(ret == -EIO && (sim_model_lost() || sim_seal_was_changed() || spoiled)))
		sim_fail("WRONG CODE: soda_shutdown: %d", ret);
	for (int i = 0; !ret && i < SIM_OBJECTS; i++)
		if (sim_objects[i].base)
			check_file(&sim_objects[i], !sim_model_lost());
	for (int i = 0; used_most() && i < 300; i++)
		sim_sleep(SIM_S, "the server to free all");
	if (used_most())
		sim_fail("LEAK: nobody has anything, and a server has %llu bytes in use",
			 (unsigned long long)used_most());
	await_no_state();
	await_accounts();
}

static void *neighbour_end(void *arg)
{
	sim_neighbour_end();
	return NULL;
}

/* With what the server adds to it. */
static bool has_room(const struct sim_object *o)
{
	return !o->flags && !plan.server.quota && !plan.tenant_quota &&
	       used_most() + o->bytes + (2u << 20) <= plan.server.capacity;
}

/* A client that no agent knows any more has its files until the server gives it up. */
static uint64_t seconds_of_patience(void)
{
	return 90 + (SIM_NET_SILENCE_NS + plan.server.grace_ms * SIM_MS) / SIM_S;
}

/* What was refused in bad times is asked for again. */
static void await_places(void)
{
	uint64_t patience = seconds_of_patience();

	for (int i = 0; i < SIM_OBJECTS; i++) {
		struct sim_object *o = &sim_objects[i];

		for (uint64_t s = 0; s < patience && sim_model_abandoned(o); s++)
			sim_sleep(SIM_S, "an object to be opened again");
		if (sim_model_abandoned(o) && has_room(o))
			sim_fail("BROKEN PROMISE: there is room for an object, and it has no place "
				 "on the server");
	}
}

static void release_all(void)
{
	for (int i = 0; i < SIM_OBJECTS; i++) {
		sim_objects[i].users += !!sim_objects[i].base;
		if (sim_objects[i].base && !release(&sim_objects[i]))
			sim_objects[i].users--;
	}
}

/* Until the server has given up those who have the file, or what a quota is for. */
static bool may_pass(int err)
{
	return err == EBUSY || err == EDQUOT || err == ENOSPC;
}

/*
 * WRITABLE: its server may have ended while it wrote the file back, and a quota may have become
 * less than what was left for soda_shutdown() to free. NULL: soda_last_error() says why.
 */
static char *open_again(int file, size_t *bytes_p)
{
	unsigned flags = SODA_WRITABLE | (plan.agent_settings.seal ? 0 : SODA_SEALED);
	char *p = soda_alloc_file(files[file].name, 0, flags, bytes_p);

	if (!p && (errno == EDQUOT || errno == ENOSPC)) {
		release_all();
		p = soda_alloc_file(files[file].name, 0, flags, bytes_p);
	}
	for (uint64_t s = 0; !p && may_pass(errno) && s < seconds_of_patience(); s++) {
		sim_sleep(SIM_S, "a file to be let go of");
		p = soda_alloc_file(files[file].name, 0, flags, bytes_p);
	}
	return p;
}

/* All is mended: sealed files that nobody has open can be opened, and read to their end. */
static void read_sealed(int file)
{
	uint64_t bytes = sim_sealed_bytes(files[file].name), v;
	size_t got;
	char *p;

	if (!bytes || files[file].writers || files[file].readers)
		return;
	p = open_again(file, &got);
	if (!p || got != bytes)
		sim_fail("BROKEN PROMISE: sealed file %s cannot be opened any more: %s",
			 files[file].name, p ? "another size" : soda_last_error());
	for (size_t cell = 0; cell < bytes / 4096 * SIM_SLOTS; cell++) {
		size_t at = cell / SIM_SLOTS * 4096 + (cell % SIM_SLOTS ? 4088 : 0);

		if (sim_load(p + at, &v))
			sim_fail("BROKEN PROMISE: sealed file %s cannot be read at %zu",
				 files[file].name, at);
		check_left(file, cell, v);
	}
	if (soda_try_free(p))
		sim_fail("WRONG CODE: soda_free of sealed file %s: %s", files[file].name,
			 soda_last_error());
}

/* An object is refused for want of room, which the application could make. */
static bool lacks_room(const struct sim_object *o)
{
	int err = sim_model_abandoned(o) ? sim_host_refused(o->base) : 0;

	return err == -ENOSPC || err == -EDQUOT;
}

static bool any_lacks_room(void)
{
	bool any = false;

	for (int i = 0; i < SIM_OBJECTS; i++)
		any = any || lacks_room(&sim_objects[i]);
	return any;
}

/*
 * Room that was refused may be free by now, and taken by objects that the application has made
 * since: then those are freed, until there is room for all that waits.
 */
static void make_room(void)
{
	for (int i = 0; i < SIM_OBJECTS; i++) {
		struct sim_object *o = &sim_objects[i];

		if (!any_lacks_room())
			return;
		if (!o->base || lacks_room(o))
			continue;
		o->users++;
		if (!release(o))
			o->users--;
		else
			sim_sleep(40 * SIM_S, "what is asked for again to have the room");
	}
}

/* All slabs have their copies, if the servers have room for them. */
static void await_copies(void)
{
	if (plan.mirrored && plan.server.capacity >= 64u << 20 && !plan.server.quota)
		sim_fate_await_copies();
}

/* Everything is mended: all is brought to the server, all is seen once more, and freed. */
void sim_work_end(void)
{
	int ret = -1;

	if (neighbour)
		sim_join(neighbour);
	sim_join(sim_spawn(SIM_WORLD, "neighbour", neighbour_end, NULL)); /* not the host's */
	await_places();
	await_copies();
	for (int i = 0; i < SIM_OBJECTS; i++)
		if (sim_model_abandoned(&sim_objects[i]))
			release(&sim_objects[i]);
	make_room();
	for (int tries = 0; ret && tries < 4 + SIM_OBJECTS; tries++) {
		ret = soda_sync(NULL, 0);
		sim_note("soda_sync of all: %d %s", ret, ret ? soda_last_error() : "");
	}
	if (ret && !(ret == -EIO && any_spoiled()))
		sim_fail("BROKEN PROMISE: all is mended, and soda_sync says %s: %s",
			 soda_strerror(ret), soda_last_error());
	for (int i = 0; i < SIM_OBJECTS; i++) {
		struct sim_object *o = &sim_objects[i];

		if (!o->base)
			continue;
		sim_model_sync(o, 0, sim_cells(o));
		for (size_t cell = 0; cell < sim_cells(o); cell++)
			sim_model_load(o, cell);
		sim_copies_check(o, 0, sim_cells(o));
	}
	sim_model_look();
	/* The loads have sent dirty chunks away, and a fault's server is at it longer than who has
	 * it. */
	sim_sleep(SIM_S, "the end of write-back and of the last fault");
	await_copies(); /* the loads may have found a copy that its server has changed */
	sim_host_check(!sim_host_missing());
	sim_agent_check();
	for (int i = 0; i < SIM_OBJECTS * 3; i++) {
		struct sim_object *o = &sim_objects[i % SIM_OBJECTS];

		if (!o->base || sim_chance(10)) /* soda_shutdown frees what is left */
			continue;
		o->users++;
		if (!release(o))
			o->users--;
	}
	for (int file = SEALED; plan.sealed_files && file < FILES; file++)
		read_sealed(file);
	leave();
}
