/* SPDX-License-Identifier: BSD-3-Clause */
#include "model.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lib/dice.h"
#include "memory.h"

struct model model;

_Noreturn void wrong(const char *what, const char *fmt, ...)
{
	char text[512];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	dprintf(STDERR_FILENO, "%s: %s [last error: %s]\n", what, text, memory.why());
	_exit(99);
}

/* Touches */

static __thread sigjmp_buf bus_jump;
static __thread volatile sig_atomic_t bus_armed;

static void on_bus(int sig, siginfo_t *info, void *context)
{
	if (bus_armed)
		siglongjmp(bus_jump, 1);
	dprintf(STDERR_FILENO, "wrong code: SIGBUS at %p outside of any touch\n", info->si_addr);
	_exit(99);
}

void model_begin(void)
{
	struct sigaction act = { .sa_sigaction = on_bus, .sa_flags = SA_SIGINFO };

	sigaction(SIGBUS, &act, NULL);
}

bool load_word(const uint64_t *word, uint64_t *value_p)
{
	if (sigsetjmp(bus_jump, 1)) {
		bus_armed = 0;
		return false;
	}
	bus_armed = 1;
	*value_p = *(const volatile uint64_t *)word;
	bus_armed = 0;
	return true;
}

bool store_word(uint64_t *word, uint64_t value)
{
	if (sigsetjmp(bus_jump, 1)) {
		bus_armed = 0;
		return false;
	}
	bus_armed = 1;
	*(volatile uint64_t *)word = value;
	bus_armed = 0;
	return true;
}

/* Objects */

size_t chunk_words(void)
{
	return model.chunk_bytes / sizeof(uint64_t);
}

uint64_t word_value(uint64_t id, size_t word, uint32_t round)
{
	return mix(id << 40 | word, round);
}

size_t mark_word(size_t chunk, size_t mark)
{
	return chunk * chunk_words() + mark * (chunk_words() / MARKS);
}

unsigned owner_of(size_t chunk, size_t mark)
{
	return (unsigned)((model.shared ? mark : chunk / BLOCK) % model.threads);
}

/* Zeros that are no fabric memory under `soda run`, either: what the oracle knows is not lost. */
static void *local(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		wrong("cannot start", "%zu bytes of local memory: %s", bytes, strerror(errno));
	return p;
}

struct object *object_new(uint64_t id, enum kind kind, void *words, size_t bytes)
{
	struct object *o = local(sizeof(*o));

	*o = (struct object){ .id = id, .kind = kind, .words = words };
	o->chunks = bytes / model.chunk_bytes;
	o->table = local(o->chunks * sizeof(*o->table));
	for (size_t c = 0; c < o->chunks && kind != ANONYMOUS; c++)
		for (size_t m = 0; m < MARKS; m++)
			o->table[c].marks[m].zero_at = UINT32_MAX;
	return o;
}

void object_delete(struct object *o)
{
	munmap(o->table, o->chunks * sizeof(*o->table));
	munmap(o, sizeof(*o));
}

static uint64_t value_at(const struct object *o, size_t chunk, size_t mark, uint32_t round)
{
	if (round == atomic_load(&o->table[chunk].marks[mark].zero_at))
		return 0;
	return word_value(o->id, mark_word(chunk, mark), round);
}

/* Verdicts */

static _Noreturn void wrong_value(struct object *o, size_t chunk, size_t mark, uint64_t got,
				  uint32_t from, uint32_t to)
{
	struct chunk *c = &o->table[chunk];
	char what[64] = "no content of this word";

	if (!got)
		snprintf(what, sizeof(what), "zeros");
	for (uint32_t r = 0; r < from; r++)
		if (got == word_value(o->id, mark_word(chunk, mark), r))
			snprintf(what, sizeof(what), "the older round %u", r);
	wrong("wrong bytes",
	      "object %llu, chunk %zu, mark %zu at %p: %llx (%s), expected round %u to %u; zeros "
	      "at "
	      "%u, lost %u, pinned %u, stores %llu, synced %llu",
	      (unsigned long long)o->id, chunk, mark, (void *)&o->words[mark_word(chunk, mark)],
	      (unsigned long long)got, what, from, to, c->marks[mark].zero_at, c->lost, c->pinned,
	      (unsigned long long)c->stores, (unsigned long long)c->synced);
}

/* What is in the node's store is there for all, whoever of them has lost the file. */
static bool may_be_back(const struct object *o)
{
	return o->kind == READ_ONLY && model.rules.store;
}

static bool may_be_lost(const struct object *o)
{
	if (model.rules.error)
		return true;
	if (o->kind == READ_ONLY)
		return model.rules.changed;
	return model.rules.lose;
}

/* A touch ended as SIGBUS; pinned: it was before the touch, too. */
static void judge_bus(struct object *o, size_t chunk, uint32_t era, bool pinned)
{
	struct chunk *c = &o->table[chunk];
	bool blank = o->kind == ANONYMOUS && c->stores == c->zeroed && !model.rules.fills;
	const char *why = NULL;

	if (atomic_load(&c->era) != era || atomic_load(&c->lost))
		return;
	atomic_fetch_add(&model.errors, 1);
	pinned = pinned && c->pinned;
	if (blank)
		why = "nobody has stored to it";
	else if (pinned)
		why = "it is pinned";
	else if (!may_be_lost(o))
		why = "nothing may be lost";
	if (why && atomic_load(&c->era) == era)
		wrong("wrong code",
		      "SIGBUS at object %llu, chunk %zu: %s; stores %llu, synced %llu",
		      (unsigned long long)o->id, chunk, why, (unsigned long long)c->stores,
		      (unsigned long long)c->synced);
	if (!model.rules.error && !atomic_exchange(&c->lost, 1))
		atomic_fetch_add(&model.losses, 1);
}

void check_mark(struct object *o, size_t chunk, size_t mark)
{
	struct chunk *c = &o->table[chunk];
	struct mark *m = &c->marks[mark];
	uint32_t era = atomic_load(&c->era), from = atomic_load(&m->done), to;
	bool lost = atomic_load(&c->lost), pinned = atomic_load(&c->pinned);
	uint64_t got;

	if (era & 1)
		return;
	if (!load_word(&o->words[mark_word(chunk, mark)], &got)) {
		judge_bus(o, chunk, era, pinned);
		return;
	}
	to = atomic_load(&m->begun);
	for (uint32_t r = from; r - from <= to - from; r++)
		if (got == value_at(o, chunk, mark, r)) {
			if (lost && !may_be_back(o) && atomic_load(&c->era) == era)
				wrong("wrong code", "object %llu, chunk %zu was lost, and is back",
				      (unsigned long long)o->id, chunk);
			return;
		}
	if (atomic_load(&c->era) == era)
		wrong_value(o, chunk, mark, got, from, to);
}

void check_chunks(struct object *o, size_t first, size_t n)
{
	for (size_t c = first; c < first + n; c++)
		for (size_t m = 0; m < MARKS; m++)
			check_mark(o, c, m);
}

void store_mark(struct object *o, size_t chunk, size_t mark)
{
	struct chunk *c = &o->table[chunk];
	struct mark *m = &c->marks[mark];
	uint32_t round = m->done + 1;
	bool pinned = atomic_load(&c->pinned);

	if (o->promises)
		atomic_store(&o->promises[chunk * MARKS + mark].most, round);
	atomic_store(&m->begun, round);
	atomic_fetch_add(&c->stores, 1);
	if (!store_word(&o->words[mark_word(chunk, mark)],
			word_value(o->id, mark_word(chunk, mark), round))) {
		atomic_store(&m->begun, round - 1);
		judge_bus(o, chunk, atomic_load(&c->era), pinned);
		if (atomic_load(&c->lost) && o->kind == ANONYMOUS && !model.shared)
			discard_chunks(o, chunk, 1);
		return;
	}
	atomic_store(&c->told, 0);
	atomic_store(&m->done, round);
}

void discard_chunks(struct object *o, size_t first, size_t n)
{
	int ret;

	for (size_t i = first; i < first + n; i++)
		atomic_fetch_add(&o->table[i].era, 1);
	ret = memory.discard(&o->words[first * chunk_words()], n * model.chunk_bytes);
	if (ret)
		wrong("wrong code", "DISCARD: %s", strerror(-ret));
	for (size_t i = first; i < first + n; i++) {
		struct chunk *c = &o->table[i];

		for (size_t m = 0; m < MARKS; m++)
			atomic_store(&c->marks[m].zero_at, c->marks[m].done);
		c->zeroed = c->synced = atomic_load(&c->stores);
		c->lost = c->told = 0;
		atomic_fetch_add(&c->era, 1);
	}
}

/* Calls */

bool judge_call(const char *call, int ret)
{
	bool allowed = ret == -EIO && (model.rules.lose || model.rules.changed);

	if (!ret)
		return true;
	allowed |= model.rules.error && (ret == -EIO || ret == -ETIMEDOUT || ret == -ENOTCONN);
	if (!allowed)
		wrong("wrong code", "%s: %s", call, strerror(-ret));
	atomic_fetch_add(&model.refusals, 1);
	return false;
}

/* What a sync of it will have acknowledged. */
struct before {
	uint64_t stores;
	uint32_t done[MARKS];
};

static void look_before(const struct object *o, size_t first, size_t n, struct before *b)
{
	for (size_t i = 0; i < n; i++) {
		const struct chunk *c = &o->table[first + i];

		/* stores that are counted and not done yet are not promised */
		for (size_t m = 0; m < MARKS; m++)
			b[i].done[m] = atomic_load(&c->marks[m].done);
		b[i].stores = atomic_load(&c->stores);
		for (size_t m = 0; m < MARKS; m++)
			if (atomic_load(&c->marks[m].begun) != b[i].done[m])
				b[i].stores = 0;
	}
}

static void raise_to(_Atomic uint64_t *to, uint64_t value)
{
	uint64_t now = atomic_load(to);

	while (now < value && !atomic_compare_exchange_weak(to, &now, value))
		;
}

static void raise_to32(_Atomic uint32_t *to, uint32_t value)
{
	uint32_t now = atomic_load(to);

	while (now < value && !atomic_compare_exchange_weak(to, &now, value))
		;
}

/* A sync has acknowledged them. */
static void note_synced(struct object *o, size_t first, size_t n, const struct before *b)
{
	for (size_t i = 0; i < n; i++) {
		struct chunk *c = &o->table[first + i];

		raise_to(&c->synced, b[i].stores);
		/* of what is lost, and was said to be, nothing is promised */
		for (size_t m = 0; o->promises && !c->told && m < MARKS; m++)
			raise_to32(&o->promises[(first + i) * MARKS + m].least, b[i].done[m]);
	}
}

/* A sync has said, once for the object, that some of its data are lost. */
static void note_told(struct object *o)
{
	for (size_t i = 0; i < o->chunks; i++)
		if (o->table[i].stores > atomic_load(&o->table[i].synced))
			atomic_store(&o->table[i].told, 1);
}

bool sync_chunks(struct object *o, size_t first, size_t n)
{
	struct before *b = local(n * sizeof(*b));
	bool done;

	look_before(o, first, n, b);
	done = judge_call("sync",
			  memory.sync(&o->words[first * chunk_words()], n * model.chunk_bytes));
	if (done)
		note_synced(o, first, n, b);
	else
		note_told(o);
	munmap(b, n * sizeof(*b));
	return done;
}

bool sync_objects(struct object *const *objects, size_t n)
{
	struct before *b[8] = { NULL };
	bool done;

	for (size_t i = 0; i < n; i++) {
		b[i] = local(objects[i]->chunks * sizeof(**b));
		look_before(objects[i], 0, objects[i]->chunks, b[i]);
	}
	done = judge_call("sync of everything", memory.sync(NULL, 0));
	for (size_t i = 0; i < n; i++) {
		if (done)
			note_synced(objects[i], 0, objects[i]->chunks, b[i]);
		else
			note_told(objects[i]);
		munmap(b[i], objects[i]->chunks * sizeof(**b));
	}
	return done;
}
