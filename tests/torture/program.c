/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The program of the campaign: threads that use objects, files and heap blocks and check every
 * value that they read (model.h), while a conductor does its worst to the servers behind them.
 *
 *   program KEY=VALUE...        as the plan of a seed says; see `options` below
 *   program KEY=VALUE... reader=1
 *                               one that reads the file `ro` beside others, and has nothing else
 *   program make FILE BYTES ID  a file of the export directory, in its round 0 (of object 1 or 2;
 *                               9: of object 1, after it was changed)
 *   program seal FILE BYTES ID  the same of a file of the server's, which seals it as the
 * environment says program verify FILE PROMISES BYTES whether the file keeps what syncs have
 * promised
 *
 * It ends with 0, or with 99 and a line "WHAT: ...".  Its progress is in a file that the
 * conductor maps: who stands still there has hung.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "lib/dice.h"
#include "memory.h"
#include "model.h"
#include "progress.h"

enum {
	HEAP_SLOTS = 24,
	HEAP_BYTES = 160 << 10,
	PINS_MAX = 2, /* a thread */
	CHURN_CHUNKS = 24,
	SCAN_CHUNKS = 24,
	ANONYMOUS_ID = 0,
	READ_ONLY_ID = 1,
	WRITABLE_ID = 2,
	CHANGED_ID = 9, /* conductor.py, change_file() */
	FIRST_CHURN_ID = 16,
	PLANT_AT = 100,
	REST_US = 3000,
	OPEN_S = 30, /* so long an OPEN may be refused where faults are under way, or just were */
};

static struct {
	uint64_t seed, ops;
	size_t chunks;
	const char *progress, *promises, *ro, *rw, *mix;
	const char *plant; /* a wrong that the conductor must find: "bytes", "hang", "code" */
	bool freeze, reader;
} options = { .seed = 1, .ops = 1000, .chunks = 64, .mix = "check:1,store:1" };

static struct progress *progress;
static struct object *objects[3]; /* anonymous, read-only, writable: may be NULL */
static size_t objects_n;	  /* that are synchronised: those that are not read-only */
static struct object *synced[2];

struct worker {
	unsigned index;
	pthread_t thread;
	struct dice dice;
	uint64_t churns;
	struct {
		size_t first;
		bool used;
	} pins[PINS_MAX];
	struct {
		uint64_t *words;
		size_t n;
		uint64_t id;
	} heap[HEAP_SLOTS];
};

static void step(const struct worker *w)
{
	atomic_fetch_add(&progress->threads[w->index].steps, 1);
}

static size_t pick(struct worker *w, size_t n)
{
	return dice_roll(&w->dice) % n;
}

static struct object *pick_object(struct worker *w)
{
	struct object *o = objects[pick(w, 3)];

	return o ? o : objects[0];
}

/* One that may be stored to. */
static struct object *pick_ours(struct worker *w)
{
	return synced[pick(w, objects_n)];
}

/* The same where the thread has chunks of its own: a small object has fewer blocks than there may
 * be threads. */
static struct object *pick_with_own(struct worker *w)
{
	struct object *o = pick_ours(w);

	return model.shared || o->chunks > (size_t)w->index * BLOCK ? o : objects[0];
}

/* A chunk and a mark of the thread's own, of which the object has some. */
static void pick_own(struct worker *w, const struct object *o, size_t *chunk_p, size_t *mark_p)
{
	do {
		*chunk_p = pick(w, o->chunks);
		*mark_p = pick(w, MARKS);
	} while (owner_of(*chunk_p, *mark_p) != w->index);
}

static size_t pick_range(struct worker *w, const struct object *o, size_t *first_p)
{
	size_t n = 1 + pick(w, SCAN_CHUNKS);

	n = n < o->chunks ? n : o->chunks;
	*first_p = pick(w, o->chunks - n + 1);
	return n;
}

/* Operations */

static void op_check(struct worker *w)
{
	struct object *o = pick_object(w);

	check_mark(o, pick(w, o->chunks), pick(w, MARKS));
}

static void op_store(struct worker *w)
{
	struct object *o = pick_with_own(w);
	size_t chunk, mark;

	pick_own(w, o, &chunk, &mark);
	check_mark(o, chunk, mark);
	store_mark(o, chunk, mark);
}

static void op_scan(struct worker *w)
{
	struct object *o = pick_object(w);
	size_t first, n = pick_range(w, o, &first);

	for (size_t c = first; c < first + n; c++) {
		check_chunks(o, c, 1);
		step(w);
	}
}

static void op_fill(struct worker *w)
{
	struct object *o = pick_ours(w);
	size_t first, n = pick_range(w, o, &first);

	for (size_t c = first; c < first + n; c++) {
		for (size_t m = 0; m < MARKS; m++)
			if (owner_of(c, m) == w->index)
				store_mark(o, c, m);
		step(w);
	}
}

static void op_sync(struct worker *w)
{
	struct object *o = pick_ours(w);
	size_t first, n;

	if (!memory.sync)
		return;
	n = pick_range(w, o, &first);
	sync_chunks(o, first, n);
}

static void op_sync_all(struct worker *w)
{
	if (memory.sync)
		sync_objects(synced, objects_n);
}

static bool has_pins(const struct object *o, size_t first, size_t n)
{
	for (size_t c = first; c < first + n; c++)
		if (o->table[c].pinned)
			return true;
	return false;
}

static void op_discard(struct worker *w)
{
	struct object *o = objects[0];
	size_t n = 1 + pick(w, BLOCK), first = pick(w, o->chunks / BLOCK) * BLOCK;

	if (model.shared || owner_of(first, 0) != w->index || has_pins(o, first, n))
		return;
	discard_chunks(o, first, n);
}

static void op_cold(struct worker *w)
{
	struct object *o = pick_ours(w);
	size_t first, n = pick_range(w, o, &first);

	if (memory.cold)
		judge_call("COLD",
			   memory.cold(&o->words[first * chunk_words()], n * model.chunk_bytes));
}

static void op_prefetch(struct worker *w)
{
	struct object *o = pick_object(w);
	size_t first, n = pick_range(w, o, &first);
	int ret = memory.prefetch
			  ? memory.prefetch(&o->words[first * chunk_words()], n * model.chunk_bytes)
			  : 0;

	if (ret)
		wrong("wrong code", "prefetch: %s", strerror(-ret));
}

/* Pin a chunk, or let one go; sometimes ask for far too much, which must change nothing. */
static void op_pin(struct worker *w)
{
	struct object *o = objects[0];
	size_t i = pick(w, PINS_MAX), chunk, mark;
	int ret;

	if (!memory.pin)
		return;
	if (w->pins[i].used) {
		struct chunk *c = &o->table[w->pins[i].first];

		atomic_store(&c->pinned, 0);
		ret = memory.unpin(&o->words[w->pins[i].first * chunk_words()], model.chunk_bytes);
		if (ret)
			wrong("wrong code", "UNPIN: %s", strerror(-ret));
		w->pins[i].used = false;
		return;
	}
	pick_own(w, o, &chunk, &mark);
	if (model.shared || o->table[chunk].pinned)
		return;
	ret = memory.pin(&o->words[chunk * chunk_words()], model.chunk_bytes);
	if (ret == -ENOMEM)
		return;
	if (!judge_call("PIN", ret))
		return;
	atomic_store(&o->table[chunk].pinned, 1);
	w->pins[i].first = chunk;
	w->pins[i].used = true;
}

/* An allocation was refused, rightly or not. */
static void judge_refusal(const char *what, int err)
{
	bool room = err == ENOSPC || err == EDQUOT || err == ENOMEM;

	if (room && model.rules.full)
		return;
	if (model.rules.error)
		return;
	wrong("wrong code", "%s: %s", what, strerror(err));
}

/* An object that comes and goes: zeros at first, whatever was there before. */
static void op_churn(struct worker *w)
{
	size_t bytes = (1 + pick(w, CHURN_CHUNKS)) * model.chunk_bytes;
	void *p = memory.alloc(bytes);
	struct object *o;

	if (!p) {
		judge_refusal("alloc", errno);
		return;
	}
	o = object_new(FIRST_CHURN_ID + w->index + (++w->churns) * THREADS_MAX, ANONYMOUS, p,
		       bytes);
	check_chunks(o, 0, o->chunks);
	step(w);
	for (size_t c = 0; c < o->chunks; c++) {
		for (size_t m = 0; m < MARKS; m++)
			store_mark(o, c, m);
		step(w);
	}
	if (memory.sync && pick(w, 2))
		sync_chunks(o, 0, o->chunks);
	check_chunks(o, 0, o->chunks);
	memory.free(p, bytes);
	object_delete(o);
}

/* Take all the room that the server has, and give it back. */
static void op_greedy(struct worker *w)
{
	enum { PIECES = 64 };
	size_t bytes = 16 << 20;
	void *pieces[PIECES];
	unsigned n = 0;

	while (n < PIECES && (pieces[n] = memory.alloc(bytes))) {
		n++;
		step(w);
	}
	if (n < PIECES)
		judge_refusal("alloc of all that there is", errno);
	while (n)
		memory.free(pieces[--n], bytes);
}

static bool heap_touch_failed(const char *what)
{
	if (!model.rules.lose && !model.rules.error)
		wrong("wrong code", "SIGBUS in a heap block: %s", what);
	atomic_fetch_add(&model.errors, 1);
	return false;
}

static void heap_fill(struct worker *w, size_t slot)
{
	size_t bytes = 64 + pick(w, HEAP_BYTES);

	bytes >>= pick(w, 8);
	w->heap[slot].n = bytes / sizeof(uint64_t) + 1;
	w->heap[slot].id = dice_roll(&w->dice) >> 32;
	w->heap[slot].words = memory.heap_alloc(w->heap[slot].n * sizeof(uint64_t));
	if (!w->heap[slot].words) {
		judge_refusal("heap", errno);
		return;
	}
	for (size_t i = 0; i < w->heap[slot].n; i++)
		if (!store_word(&w->heap[slot].words[i], mix(i, (uint32_t)w->heap[slot].id))) {
			heap_touch_failed("a store");
			w->heap[slot].n = i;
		}
}

static void heap_check(struct worker *w, size_t slot)
{
	for (size_t i = 0; i < w->heap[slot].n; i++) {
		uint64_t got, want = mix(i, (uint32_t)w->heap[slot].id);

		if (!load_word(&w->heap[slot].words[i], &got)) {
			heap_touch_failed("a load");
			return;
		}
		if (got != want)
			wrong("wrong bytes", "heap block %p, word %zu of %zu: %llx, expected %llx",
			      (void *)w->heap[slot].words, i, w->heap[slot].n,
			      (unsigned long long)got, (unsigned long long)want);
	}
}

static void op_heap(struct worker *w)
{
	size_t slot = pick(w, HEAP_SLOTS);

	if (!w->heap[slot].words) {
		heap_fill(w, slot);
		return;
	}
	heap_check(w, slot);
	if (pick(w, 3))
		return;
	memory.heap_free(w->heap[slot].words);
	w->heap[slot].words = NULL;
}

/* A reader that takes no processor from the others. */
static void op_rest(struct worker *w)
{
	usleep(1 + (useconds_t)pick(w, REST_US));
}

/* What a file that may be another one by now has; false: its first word cannot be had. */
static bool content_of(const uint64_t *words, uint64_t *id_p)
{
	uint64_t got;

	if (!load_word(words, &got))
		return false;
	*id_p = got == word_value(CHANGED_ID, 0, 0) ? CHANGED_ID : READ_ONLY_ID;
	return true;
}

/* The file that others read, too; NULL: not now. */
static struct object *open_shared(void)
{
	size_t bytes;
	uint64_t id;
	void *p = memory.file(options.ro, false, &bytes);

	if (!p)
		return NULL;
	if (content_of(p, &id))
		return object_new(id, READ_ONLY, p, bytes);
	if (!model.rules.changed && !model.rules.error)
		wrong("wrong code", "SIGBUS at the beginning of a file that was just opened");
	memory.free(p, bytes);
	return NULL;
}

/* The file is opened once more, looked at, and closed: a place in the store comes and goes. */
static void op_again(struct worker *w)
{
	struct object *o = open_shared();

	for (int i = 0; o && i < SCAN_CHUNKS; i++) {
		check_mark(o, pick(w, o->chunks), pick(w, MARKS));
		step(w);
	}
	if (!o)
		return;
	memory.free(o->words, o->chunks * model.chunk_bytes);
	object_delete(o);
}

static const struct {
	const char *name;
	void (*run)(struct worker *w);
} ops[] = {
	{ "check", op_check },	     { "store", op_store }, { "scan", op_scan },
	{ "fill", op_fill },	     { "sync", op_sync },   { "syncall", op_sync_all },
	{ "discard", op_discard },   { "cold", op_cold },   { "pin", op_pin },
	{ "prefetch", op_prefetch }, { "churn", op_churn }, { "greedy", op_greedy },
	{ "heap", op_heap },	     { "rest", op_rest },   { "again", op_again },
};

enum { OPS = sizeof(ops) / sizeof(ops[0]) };

static unsigned weights[OPS], weights_sum;

static unsigned pick_op(struct worker *w)
{
	size_t at = pick(w, weights_sum);
	unsigned op = 0;

	while (at >= weights[op])
		at -= weights[op++];
	return op;
}

/* Whether the conductor finds what is wrong is tested, too. */
static void do_wrong(void)
{
	struct object *o = objects[0];

	for (size_t c = 0; !strcmp(options.plant, "bytes") && c < o->chunks; c++)
		store_word(&o->words[mark_word(c, 0)], UINT64_MAX);
	if (!strcmp(options.plant, "code"))
		_exit(3);
	while (!strcmp(options.plant, "hang"))
		pause();
}

static void *work(void *arg)
{
	struct worker *w = arg;
	uint64_t most = options.ops / model.threads;

	for (uint64_t n = 0; n < most || !atomic_load(&progress->calm); n++) {
		unsigned op = pick_op(w);

		if (options.plant && n == PLANT_AT)
			do_wrong();
		atomic_store(&progress->threads[w->index].doing, op);
		ops[op].run(w);
		atomic_fetch_add(&progress->threads[w->index].ops, 1);
		step(w);
	}
	for (size_t i = 0; i < HEAP_SLOTS; i++) {
		if (!w->heap[i].words)
			continue;
		heap_check(w, i);
		memory.heap_free(w->heap[i].words);
		step(w);
	}
	atomic_store(&progress->threads[w->index].doing, ENDED);
	return NULL;
}

/* All is calm: everything is there, or was rightly lost; and again after a way to the server. */
static void finish(void)
{
	struct worker self = { .index = THREADS_MAX };

	model.rules.error = false;
	for (int way = 0; way < 2; way++) {
		for (size_t i = 0; i < 3; i++)
			for (size_t c = 0; objects[i] && c < objects[i]->chunks; c++) {
				check_chunks(objects[i], c, 1);
				step(&self);
			}
		for (int tries = 0; memory.sync && objects_n && !sync_objects(synced, objects_n);
		     tries++)
			if (tries == 8)
				wrong("wrong code", "sync goes on failing when all is calm");
		for (size_t i = 0; memory.cold && i < objects_n; i++)
			judge_call("COLD of all",
				   memory.cold(synced[i]->words,
					       synced[i]->chunks * model.chunk_bytes));
		step(&self);
	}
}

/* Set-up */

static struct object *open_file(uint64_t id, const char *name, bool writable)
{
	size_t bytes;
	void *p = memory.file(name, writable, &bytes);
	struct object *o;

	if (!p)
		wrong("cannot start", "file %s: %s", name, strerror(errno));
	o = object_new(id, writable ? WRITABLE : READ_ONLY, p, bytes);
	if (writable)
		o->promises =
			map_file(options.promises, o->chunks * MARKS * sizeof(struct promise));
	return o;
}

/* One that begins in the middle of faults asks until it is answered. */
static void open_as_reader(void)
{
	struct worker self = { .index = THREADS_MAX };
	time_t end = time(NULL) + OPEN_S;

	while (!(objects[0] = open_shared())) {
		if (time(NULL) > end)
			wrong("wrong code", "file %s cannot be opened for %d s", options.ro,
			      OPEN_S);
		usleep(20000);
		step(&self);
	}
}

static void open_objects(void)
{
	size_t bytes = options.chunks * model.chunk_bytes;
	void *p = memory.alloc(bytes);

	if (!p)
		wrong("cannot start", "%zu bytes: %s", bytes, strerror(errno));
	objects[0] = synced[0] = object_new(ANONYMOUS_ID, ANONYMOUS, p, bytes);
	objects_n = 1;
	if (options.ro && memory.file)
		objects[1] = open_file(READ_ONLY_ID, options.ro, false);
	if (options.rw && memory.file)
		objects[2] = synced[objects_n++] = open_file(WRITABLE_ID, options.rw, true);
	if (options.freeze && objects[1]) {
		int ret = memory.freeze(objects[1]->words, objects[1]->chunks * model.chunk_bytes);

		if (ret)
			wrong("wrong code", "STATIC_CACHE: %s", strerror(-ret));
	}
}

static void read_mix(const char *mix_text)
{
	char *text = strdup(mix_text), *rest = text, *part;

	while ((part = strsep(&rest, ","))) {
		char *colon = strchr(part, ':');
		unsigned op = 0;

		if (colon)
			*colon = 0;
		while (op < OPS && strcmp(ops[op].name, part))
			op++;
		if (op == OPS || !colon)
			wrong("cannot start", "no operation \"%s\"", part);
		weights[op] = (unsigned)atoi(colon + 1);
		weights_sum += weights[op];
	}
	free(text);
}

static void read_rules(const char *text)
{
	model.rules = (struct rules){
		.lose = strstr(text, "lose"),
		.error = strstr(text, "error"),
		.full = strstr(text, "full"),
		.changed = strstr(text, "changed"),
		.fills = strstr(text, "fills"),
		.store = strstr(text, "store"),
	};
}

static void read_option(const char *arg)
{
	const char *value = strchr(arg, '=');
	size_t n = value ? (size_t)(value++ - arg) : 0;
	uint64_t number = value ? strtoull(value, NULL, 0) : 0;

#define IS(name) (n == sizeof(name) - 1 && !memcmp(arg, name, n))
	if (IS("seed"))
		options.seed = number;
	else if (IS("ops"))
		options.ops = number;
	else if (IS("chunks"))
		options.chunks = number;
	else if (IS("chunk"))
		model.chunk_bytes = number;
	else if (IS("threads"))
		model.threads = (unsigned)number;
	else if (IS("shared"))
		model.shared = number;
	else if (IS("freeze"))
		options.freeze = number;
	else if (IS("reader"))
		options.reader = number;
	else if (IS("rules"))
		read_rules(value);
	else if (IS("mix"))
		options.mix = value;
	else if (IS("plant"))
		options.plant = value;
	else if (IS("progress"))
		options.progress = value;
	else if (IS("promises"))
		options.promises = value;
	else if (IS("ro"))
		options.ro = value;
	else if (IS("rw"))
		options.rw = value;
	else
		wrong("cannot start", "option \"%s\"", arg);
#undef IS
}

static int run(void)
{
	static struct worker workers[THREADS_MAX];

	if (!options.progress || model.threads < 1 || model.threads > THREADS_MAX)
		wrong("cannot start", "progress=FILE, threads=1 to %d", THREADS_MAX);
	progress = map_file(options.progress, sizeof(*progress));
	read_mix(options.mix);
	model_begin();
	if (options.reader)
		open_as_reader();
	else
		open_objects();
	atomic_store(&progress->state, RUNNING);
	for (unsigned i = 0; i < model.threads; i++) {
		workers[i].index = i;
		workers[i].dice.state = mix(options.seed, i) | 1;
		if (pthread_create(&workers[i].thread, NULL, work, &workers[i]))
			wrong("cannot start", "a thread");
	}
	for (unsigned i = 0; i < model.threads; i++)
		pthread_join(workers[i].thread, NULL);
	atomic_store(&progress->state, FINISHING);
	finish();
	for (size_t i = 0; i < 3; i++)
		if (objects[i])
			memory.free(objects[i]->words, objects[i]->chunks * model.chunk_bytes);
	printf("lost %llu, errors %llu, refusals %llu\n", (unsigned long long)model.losses,
	       (unsigned long long)model.errors, (unsigned long long)model.refusals);
	atomic_store(&progress->state, DONE);
	return 0;
}

/* Files */

static int make(const char *path, size_t bytes, uint64_t id)
{
	uint64_t *words = map_file(path, bytes);

	for (size_t i = 0; i < bytes / sizeof(*words); i++)
		words[i] = word_value(id, i, 0);
	munmap(words, bytes);
	return 0;
}

static int make_there(const char *name, size_t bytes, uint64_t id)
{
	uint64_t *words = memory.make ? memory.make(name, bytes) : NULL;

	if (!words)
		wrong("cannot start", "file %s: %s", name, memory.why());
	for (size_t i = 0; i < bytes / sizeof(*words); i++)
		words[i] = word_value(id, i, 0);
	if (memory.sync(words, bytes))
		wrong("cannot start", "file %s: %s", name, memory.why());
	memory.free(words, bytes);
	return 0;
}

static int verify(const char *path, const char *promises, size_t bytes)
{
	const uint64_t *words = map_file(path, bytes);
	size_t chunks = bytes / model.chunk_bytes;
	const struct promise *p = map_file(promises, chunks * MARKS * sizeof(*p));

	for (size_t i = 0; i < chunks * MARKS; i++) {
		size_t word = mark_word(i / MARKS, i % MARKS);
		uint32_t r = p[i].least;

		while (r <= p[i].most && words[word] != word_value(WRITABLE_ID, word, r))
			r++;
		if (r > p[i].most)
			wrong("wrong bytes",
			      "file %s, chunk %zu, mark %zu: %llx is none of the rounds %u to %u, "
			      "the first of which a sync has acknowledged%s",
			      path, i / MARKS, i % MARKS, (unsigned long long)words[word],
			      p[i].least, p[i].most, words[word] ? "" : "; zeros");
	}
	return 0;
}

int main(int argc, char **argv)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL); /* nobody is left behind */
	model.chunk_bytes = 65536;
	model.threads = 1;
	if (argc == 5 && !strcmp(argv[1], "make"))
		return make(argv[2], strtoull(argv[3], NULL, 0), strtoull(argv[4], NULL, 0));
	if (argc == 5 && !strcmp(argv[1], "seal"))
		return make_there(argv[2], strtoull(argv[3], NULL, 0), strtoull(argv[4], NULL, 0));
	if (argc == 6 && !strcmp(argv[1], "verify")) {
		model.chunk_bytes = strtoull(argv[5], NULL, 0);
		return verify(argv[2], argv[3], strtoull(argv[4], NULL, 0));
	}
	for (int i = 1; i < argc; i++)
		read_option(argv[i]);
	return run();
}
