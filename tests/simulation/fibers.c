/* SPDX-License-Identifier: BSD-3-Clause */
#include "fibers.h"

#include <assert.h>
#include <errno.h>
#include <execinfo.h>
#include <link.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { EVENTS = 1 << 16, NOTES = 300, NOTE = 240, TLS_MAX = 2048, PAGE = 4096 };

#define SPIN_NS SIM_S

enum { ALONE = 2000, BUCKETS = 256 };

enum { UNUSED, READY, WAITING, DEAD };

struct sim_fiber {
	void *sp;
	char *stack;
	int state, place;
	int id;	       /* another one for each thread that it was */
	bool detached; /* nobody asks for its end, or has asked */
	enum sim_process process;
	char name[24];
	void *(*run)(void *);
	void *arg, *result;
	const void *key;
	struct sim_fiber *next, **link; /* others that wait for such a key; who leads here */
	const char *what;		/* it waits for */
	uint64_t since, deadline;
	bool woken;
	int ready_at, due_at; /* its places in sim.ready and sim.due; none: -1 */
	int saved_errno;
	char tls[TLS_MAX];
};

struct event {
	uint64_t when, number;
	void (*fn)(void *);
	void *arg;
};

static struct {
	struct sim_fiber fibers[SIM_FIBERS], root;
	int used; /* fibers below it may be in use */
	int spawned;
	struct sim_fiber *now;
	struct sim_fiber *ready[SIM_FIBERS]; /* READY, and of no process that is stopped */
	struct sim_fiber *due[SIM_FIBERS];   /* WAITING with a deadline: a heap, the next first */
	struct sim_fiber *waiting[BUCKETS];  /* WAITING for a key, by the key */
	int ready_n, due_n;
	uint64_t clock, limit, dice, schedule, decisions, leaps;
	uint64_t alone, alone_since; /* decisions in a row for the thread that runs */
	unsigned slow, stalls;
	bool stopped[SIM_PROCESSES], ended, asking;
	int64_t held_countdown;
	struct event heap[EVENTS];
	uint32_t events;
	uint64_t event_number;
	char notes[NOTES][NOTE];
	uint64_t notes_n;
	uintptr_t base;
	char *tls;
	size_t tls_bytes;
	char tls_fresh[TLS_MAX];
} sim;

int64_t sim_countdown;
enum sim_notes sim_notes;
void (*sim_at_failure)(void);

/* Randomness: splitmix64; two streams, so that what happens does not depend on who ran. */
static uint64_t roll(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

uint64_t sim_random(void)
{
	return roll(&sim.dice);
}

static uint64_t pick(uint32_t n)
{
	return (roll(&sim.schedule) >> 32) * n >> 32;
}

/* Switching */

#if defined(__x86_64__)
/* Saves what a call must keep on the old stack, and the stack's pointer at *from. */
void sim_switch(void **from, void *to);
__asm__(".text\n.globl sim_switch\n.type sim_switch,@function\nsim_switch:\n"
	"	pushq %rbp\n	pushq %rbx\n	pushq %r12\n	pushq %r13\n"
	"	pushq %r14\n	pushq %r15\n"
	"	movq %rsp, (%rdi)\n	movq %rsi, %rsp\n"
	"	popq %r15\n	popq %r14\n	popq %r13\n	popq %r12\n"
	"	popq %rbx\n	popq %rbp\n	ret\n"
	".size sim_switch,.-sim_switch\n");
#else
#error "the simulation knows how to switch stacks on x86-64 only"
#endif

/*
 * A page without access below each stack would be two maps a thread, to be copied for each seed.
 * What lies at a stack's end is zero as long as nobody came there.
 */
static bool has_room(const struct sim_fiber *f)
{
	const uint64_t *end = (const void *)f->stack;

	return !end || !(end[0] | end[8] | end[64]);
}

static void switch_to(struct sim_fiber *f)
{
	struct sim_fiber *old = sim.now;

	if (f == old)
		return;
	if (!has_room(old))
		sim_fail("CRASH: the stack is full");
	old->saved_errno = errno;
	memcpy(old->tls, sim.tls, sim.tls_bytes);
	memcpy(sim.tls, f->tls, sim.tls_bytes);
	sim.now = f;
	sim_switch(&old->sp, f->sp);
	errno = sim.now->saved_errno;
}

static void redraw(void)
{
	sim_countdown = (int64_t)pick(2 * sim.slow + 1);
}

static void say_where(void)
{
	void *at[24];
	char command[1024];
	int n = backtrace(at, 24), len;

	len = snprintf(command, sizeof(command), "addr2line -ipfse /proc/%d/exe", (int)getpid());
	for (int i = 2; i < n && len < (int)sizeof(command) - 24; i++)
		len += snprintf(command + len, sizeof(command) - (size_t)len, " %p",
				(void *)((char *)at[i] - 1 - sim.base));
	snprintf(command + len, sizeof(command) - (size_t)len,
		 " 2>/dev/null | grep -v '?? ??:0' | head -20 | sed 's/^/        /'");
	fflush(stdout);
	if (system(command) < 0)
		puts("        (no addr2line)");
}

/* Events */

static bool before(const struct event *a, const struct event *b)
{
	return a->when < b->when || (a->when == b->when && a->number < b->number);
}

void sim_at(uint64_t when_ns, void (*fn)(void *), void *arg)
{
	struct event e = { when_ns, sim.event_number++, fn, arg };
	uint32_t i = sim.events++;

	if (sim.events == EVENTS)
		sim_fail("the simulation has no room for another event");
	for (; i && before(&e, &sim.heap[(i - 1) / 2]); i = (i - 1) / 2)
		sim.heap[i] = sim.heap[(i - 1) / 2];
	sim.heap[i] = e;
}

static struct event pop_event(void)
{
	struct event first = sim.heap[0], last = sim.heap[--sim.events];
	uint32_t i = 0;

	for (;;) {
		uint32_t child = 2 * i + 1;

		if (child >= sim.events)
			break;
		if (child + 1 < sim.events && before(&sim.heap[child + 1], &sim.heap[child]))
			child++;
		if (!before(&sim.heap[child], &last))
			break;
		sim.heap[i] = sim.heap[child];
		i = child;
	}
	sim.heap[i] = last;
	return first;
}

/* Who can go on, and who waits for what */

static void add_ready(struct sim_fiber *f)
{
	if (sim.stopped[f->process])
		return;
	f->ready_at = sim.ready_n;
	sim.ready[sim.ready_n++] = f;
}

static void remove_ready(struct sim_fiber *f)
{
	struct sim_fiber *last;

	if (f->ready_at < 0)
		return;
	last = sim.ready[--sim.ready_n];
	sim.ready[f->ready_at] = last;
	last->ready_at = f->ready_at;
	f->ready_at = -1;
}

static void put_due(struct sim_fiber *f, int at)
{
	sim.due[at] = f;
	f->due_at = at;
}

/* f goes where it belongs, from the free place on. */
static void place_due(struct sim_fiber *f, int at)
{
	for (; at && f->deadline < sim.due[(at - 1) / 2]->deadline; at = (at - 1) / 2)
		put_due(sim.due[(at - 1) / 2], at);
	for (;;) {
		int child = 2 * at + 1;

		if (child + 1 < sim.due_n &&
		    sim.due[child + 1]->deadline < sim.due[child]->deadline)
			child++;
		if (child >= sim.due_n || sim.due[child]->deadline >= f->deadline)
			break;
		put_due(sim.due[child], at);
		at = child;
	}
	put_due(f, at);
}

static void remove_due(struct sim_fiber *f)
{
	int at = f->due_at;

	if (at < 0)
		return;
	f->due_at = -1;
	if (at != --sim.due_n)
		place_due(sim.due[sim.due_n], at);
}

static struct sim_fiber **bucket(const void *key)
{
	return &sim.waiting[((uintptr_t)key * 0x9e3779b97f4a7c15u) >> 56];
}

static void add_waiting(struct sim_fiber *f)
{
	struct sim_fiber **first = bucket(f->key);

	f->next = *first;
	f->link = first;
	if (f->next)
		f->next->link = &f->next;
	*first = f;
}

static void remove_waiting(struct sim_fiber *f)
{
	if (!f->link)
		return;
	*f->link = f->next;
	if (f->next)
		f->next->link = f->link;
	f->link = NULL;
}

/* Neither can it go on, nor does it wait. */
static void take_out(struct sim_fiber *f)
{
	remove_ready(f);
	remove_due(f);
	remove_waiting(f);
}

static void make_ready(struct sim_fiber *f)
{
	take_out(f);
	f->state = READY;
	add_ready(f);
}

static uint64_t next_deadline(void)
{
	return sim.due_n ? sim.due[0]->deadline : SIM_NEVER;
}

/* Fibers whose time has come, and events. */
static void come_due(void)
{
	while (sim.events && sim.heap[0].when <= sim.clock) {
		struct event e = pop_event();

		e.fn(e.arg);
	}
	while (next_deadline() <= sim.clock) {
		struct sim_fiber *f = sim.due[0];

		make_ready(f);
		f->woken = false;
	}
}

/* Everybody sleeps: on to the next time that somebody waits for. */
static void leap(void)
{
	uint64_t when = next_deadline();

	if (sim.events && sim.heap[0].when < when)
		when = sim.heap[0].when;
	if (when == SIM_NEVER)
		sim_fail("HANG: everybody waits, and nobody for a time");
	if (when > sim.clock)
		sim.clock = when;
	if (sim.clock > sim.limit)
		sim_fail("HANG: the time is over, and everybody sleeps");
	sim.leaps++;
	sim.alone = 0;
	sim.alone_since = sim.clock;
}

/* Until somebody can go on. */
static struct sim_fiber *next(void)
{
	come_due();
	while (!sim.ready_n) {
		leap();
		come_due();
	}
	return sim.ready[sim.ready_n == 1 ? 0 : pick((uint32_t)sim.ready_n)];
}

static void go_on(void)
{
	enum { MOST = 20000000 };
	struct sim_fiber *f;

	if (sim.asking)
		return;
	if (++sim.decisions > MOST)
		sim_fail("HANG: %d decisions, and no end", MOST);
	redraw();
	f = next();
	if (f != sim.now || sim.now->state == WAITING) {
		sim.alone = 0;
		sim.alone_since = sim.clock;
	} else {
		sim.alone++;
	}
	switch_to(f);
	while (sim.asking) { /* a seed has failed: say where we are, and back */
		say_where();
		switch_to(&sim.root);
	}
}

void sim_yield(void)
{
	struct sim_fiber *f = sim.now;

	if (f == &sim.root || sim.asking) {
		redraw();
		return;
	}
	/*
	 * Whoever is busy alone (it polls, or looks again and again) need not be watched doing it
	 * for seconds: time passes faster and faster until there is somebody else.
	 */
	sim.clock += (50 + pick(400)) << (sim.alone / ALONE > 12 ? 12 : sim.alone / ALONE);
	if (sim.clock > sim.alone_since + SPIN_NS && sim.alone > ALONE)
		sim_fail("SPIN: a thread has been busy for %.3f s, and nobody else was",
			 (double)(sim.clock - sim.alone_since) / 1e9);
	if (sim.clock > sim.limit)
		sim_fail("HANG: the time is over, and somebody is busy still");
	/* so often in a time: where there are many decisions, rarely at each */
	if (sim.stalls && pick(1000000) < (uint64_t)sim.stalls * sim.slow &&
	    f->process != SIM_WORLD) {
		static const uint64_t lengths[] = { 20 * SIM_US, 300 * SIM_US, 3 * SIM_MS,
						    30 * SIM_MS };
		uint64_t at_most = lengths[pick(4)];

		sim_wait(NULL, sim.clock + 1 + pick(at_most), "the processor");
		return;
	}
	go_on();
}

/* Fibers */

static void finish(void)
{
	struct sim_fiber *f = sim.now;

	f->state = DEAD;
	take_out(f);
	sim_wake(f, SIM_FIBERS);
	go_on();
	abort();
}

static void begin(void)
{
	while (sim.asking) /* not even begun */
		switch_to(&sim.root);
	errno = 0;
	sim.now->result = sim.now->run(sim.now->arg);
	finish();
}

struct sim_fiber *sim_spawn(enum sim_process p, const char *name, void *(*run)(void *), void *arg)
{
	struct sim_fiber *f = NULL;
	void **sp;

	/* rather one whose stack has been touched */
	for (int i = 0; i < sim.used && !f; i++)
		if (sim.fibers[i].state == DEAD && sim.fibers[i].detached)
			f = &sim.fibers[i];
	if (!f && sim.used == SIM_FIBERS)
		return NULL;
	if (!f)
		f = &sim.fibers[sim.used++];
	f->id = ++sim.spawned * SIM_FIBERS + f->place;
	f->detached = false;
	f->process = p;
	f->run = run;
	f->arg = arg;
	f->key = NULL;
	f->what = NULL;
	snprintf(f->name, sizeof(f->name), "%s", name);
	memcpy(f->tls, sim.tls_fresh, sim.tls_bytes);
	sp = (void **)(f->stack + SIM_STACK - 64);
	*--sp = NULL;	       /* where begin would return to */
	*--sp = (void *)begin; /* aligned as after a call */
	sp -= 6;
	memset(sp, 0, 6 * sizeof(*sp));
	f->sp = sp;
	make_ready(f);
	return f;
}

void sim_rename(struct sim_fiber *f, const char *name)
{
	snprintf(f->name, sizeof(f->name), "%s", name);
}

void *sim_join(struct sim_fiber *f)
{
	while (f->state != DEAD)
		sim_wait(f, SIM_NEVER, "a thread's end");
	f->detached = true;
	return f->result;
}

void sim_detach(struct sim_fiber *f)
{
	f->detached = true;
}

enum sim_process sim_process(void)
{
	return sim.now->process;
}

struct sim_fiber *sim_self(void)
{
	return sim.now;
}

int sim_id(void)
{
	return sim.now->id;
}

bool sim_alive(int id)
{
	const struct sim_fiber *f = &sim.fibers[id > 0 ? id % SIM_FIBERS : 0];

	return f->id == id && (f->state == READY || f->state == WAITING);
}

uint64_t sim_now(void)
{
	return sim.clock;
}

void sim_hold(bool held)
{
	if (held)
		sim.held_countdown = sim_countdown;
	sim_countdown = held ? INT64_MAX : sim.held_countdown;
}

void sim_spend(uint64_t ns)
{
	sim.clock += ns;
}

uint64_t sim_decisions(void)
{
	return sim.decisions;
}

bool sim_wait(const void *key, uint64_t deadline_ns, const char *what)
{
	struct sim_fiber *f = sim.now;

	if (f == &sim.root)
		sim_fail("an event's function waits for %s", what);
	f->state = WAITING;
	f->key = key;
	f->what = what;
	f->since = sim.clock;
	f->deadline = deadline_ns;
	f->woken = true;
	remove_ready(f);
	if (deadline_ns != SIM_NEVER)
		place_due(f, sim.due_n++);
	if (key)
		add_waiting(f);
	go_on();
	f->key = NULL;
	f->what = NULL;
	return f->woken;
}

void sim_wake(const void *key, unsigned n)
{
	struct sim_fiber *waiting[SIM_FIBERS];
	unsigned have = 0;

	for (struct sim_fiber *f = *bucket(key); f; f = f->next)
		if (f->key == key)
			waiting[have++] = f;
	while (n-- && have) {
		unsigned i = n + 1 >= have ? have - 1 : (unsigned)pick(have);

		make_ready(waiting[i]);
		waiting[i] = waiting[--have];
	}
}

void sim_sleep(uint64_t ns, const char *what)
{
	sim_wait(NULL, sim.clock + ns, what);
}

void sim_stop(enum sim_process p, bool stopped)
{
	sim.stopped[p] = stopped;
	for (int i = 0; i < sim.used; i++) {
		struct sim_fiber *f = &sim.fibers[i];

		if (f->process != p || f->state != READY)
			continue;
		remove_ready(f);
		add_ready(f);
	}
}

bool sim_stopped(enum sim_process p)
{
	return sim.stopped[p];
}

void sim_kill(enum sim_process p)
{
	assert(sim.now->process != p);
	for (int i = 0; i < sim.used; i++) {
		struct sim_fiber *f = &sim.fibers[i];

		if (f->process != p || f->state == UNUSED)
			continue;
		take_out(f);
		f->state = DEAD;
		f->detached = true;
	}
	sim.stopped[p] = false;
}

void sim_limit(uint64_t until_ns)
{
	sim.limit = until_ns;
}

/* Notes and verdicts */

void sim_note(const char *fmt, ...)
{
	char *line;
	va_list args;
	int n;

	if (!sim_notes)
		return;
	line = sim.notes[sim.notes_n++ % NOTES];
	n = snprintf(line, NOTE, "%12.6f ms %-14s ", (double)sim.clock / 1e6,
		     sim.now ? sim.now->name : "");
	va_start(args, fmt);
	vsnprintf(line + n, (size_t)(NOTE - n), fmt, args);
	va_end(args);
	if (sim_notes == SIM_NOTES_PRINTED)
		puts(line);
}

const char *sim_place(const void *address)
{
	static char text[200];
	char command[128];
	FILE *out;

	snprintf(command, sizeof(command), "addr2line -isfe /proc/%d/exe %p", (int)getpid(),
		 (const void *)((const char *)address - 1 - sim.base));
	out = popen(command, "r");
	text[0] = 0;
	if (out) {
		text[fread(text, 1, sizeof(text) - 1, out)] = 0;
		pclose(out);
	}
	for (char *c = text; *c; c++)
		if (*c == '\n')
			*c = ' ';
	return text;
}

static void say_fibers(void)
{
	static const char *const processes[] = { "world",   "host",    "agent",	 "server",
						 "server2", "server3", "server4" };

	puts("who waits for what:");
	for (int i = 0; i < sim.used; i++) {
		struct sim_fiber *f = &sim.fibers[i];

		if (f->state != WAITING && f->state != READY)
			continue;
		printf("  %s/%s %s%s", processes[f->process], f->name,
		       f->state == READY ? "could go on" : f->what,
		       sim.stopped[f->process] ? " (stopped)" : "");
		if (f->state == WAITING)
			printf(" since %.6f ms", (double)f->since / 1e6);
		putchar('\n');
		if (f == sim.now)
			continue;
		sim.root = *sim.now; /* only its way back counts */
		sim.asking = true;
		{
			struct sim_fiber *me = sim.now;

			sim.now = &sim.root;
			switch_to(f);
			sim.now = me;
		}
		sim.asking = false;
	}
}

void sim_fail(const char *fmt, ...)
{
	static bool failing;
	va_list args;
	uint64_t first = sim.notes_n > NOTES ? sim.notes_n - NOTES : 0;

	if (failing)
		_exit(3);
	failing = true;
	if (sim_notes == SIM_NOTES_KEPT)
		for (uint64_t i = first; i < sim.notes_n; i++)
			puts(sim.notes[i % NOTES]);
	fputs("VERDICT: ", stdout);
	va_start(args, fmt);
	vprintf(fmt, args);
	va_end(args);
	printf(" (at %.6f ms)\n", (double)sim.clock / 1e6);
	fflush(stdout);
	if (!sim_notes)
		_exit(1);
	say_where();
	say_fibers();
	if (sim_at_failure)
		sim_at_failure();
	fflush(stdout);
	_exit(1);
}

/* Beginning */

static int find_tls(struct dl_phdr_info *info, size_t size, void *arg)
{
	if (info->dlpi_name && *info->dlpi_name)
		return 0;
	sim.base = info->dlpi_addr;
	for (int i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_TLS) {
			sim.tls = info->dlpi_tls_data;
			sim.tls_bytes = info->dlpi_phdr[i].p_memsz;
		}
	return 1;
}

void sim_prepare(void)
{
	char *p = mmap(NULL, SIM_FIBERS * SIM_STACK, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		abort();
	madvise(p, SIM_FIBERS * SIM_STACK, MADV_NOHUGEPAGE);
	for (int i = 0; i < SIM_FIBERS; i++) {
		sim.fibers[i].stack = p + (size_t)i * SIM_STACK;
		sim.fibers[i].place = i;
		sim.fibers[i].ready_at = sim.fibers[i].due_at = -1;
	}
	dl_iterate_phdr(find_tls, NULL);
	assert(sim.tls_bytes <= TLS_MAX);
	memcpy(sim.tls_fresh, sim.tls, sim.tls_bytes);
}

static void (*run_main)(void *);
static struct sim_fiber *main_fiber;

static void *main_of(void *arg)
{
	run_main(arg);
	sim.ended = true;
	sim.now->state = DEAD;
	switch_to(&sim.root);
	abort();
}

void sim_seed(uint64_t seed)
{
	sim.dice = seed;
	sim.schedule = roll(&sim.dice);
}

void sim_run(unsigned slow, unsigned stalls, void (*main)(void *), void *arg)
{
	sim.slow = slow;
	sim.stalls = stalls;
	sim.clock = 100 * SIM_S;
	sim.limit = SIM_NEVER;
	sim.root.process = SIM_WORLD;
	snprintf(sim.root.name, sizeof(sim.root.name), "-");
	sim.now = &sim.root;
	run_main = main;
	main_fiber = sim_spawn(SIM_WORLD, "main", main_of, arg);
	redraw();
	switch_to(main_fiber);
	sim.ended = true;
}
