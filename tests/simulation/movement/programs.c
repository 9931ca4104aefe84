/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every byte of a step follows from what its head says of itself, and the ledger has what became of
 * each list: so whoever is shown a step knows whether it may be shown, and whether it is whole.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "lib/dice.h"
#include "movement.h"
#include "soda_move.h"

enum {
	PAGE = 4096,
	BYTES = 5 * PAGE + 777,
	RECORDS = 60,
	CONSTANT_AT = 64,
	CONSTANT = 100,
	COLUMN_AT = 512,
	BODY_AT = PAGE,
	BODY = BYTES - BODY_AT,
	SOURCES = 4,
	LISTS = 4096, /* of all producers, in a seed */
	LAST = 3,     /* steps that must succeed when all is calm */
};

static const char agent[] = "sim://agent";

struct head {
	uint64_t magic, life, list, keep;
};

static const uint64_t magic = 0x736f64616d6f7665;

struct record {
	uint64_t before, value, behind;
};

/* Whole pages, so that they can go. */
struct source {
	struct head head;
	struct record records[RECORDS];
	uint8_t body[BODY];
};
enum { SOURCE_PAGES = (sizeof(struct source) + PAGE - 1) / PAGE };

/* What became of a list. */
static struct {
	bool ended;
	int status;
	uint64_t step;			/* that its producer was told; 0: none */
	uint64_t life, shown, shown_ns; /* as which step a consumer was shown it, and when first */
} ledger[LISTS];
static uint64_t lists;

/* Programs */

struct post {
	struct soda_move_ticket *ticket;
	uint64_t list, unknown; /* of this life: lists before it that nobody waits for */
	bool bad, gone, cancelled;
	struct source *source;
};

static struct program {
	unsigned number;
	bool ended;
	/* a producer's */
	struct soda_mover *mover;
	struct soda_move_buffer *buffer;
	struct soda_move_buffer_options how;
	uint64_t life_of_buffer, last, unknown, unknown_at_last;
	unsigned handed_over;
	unsigned calm_steps;   /* also a consumer's, and the next */
	uint64_t connected_ns; /* since then it has had its connection, which may be lost long
				  before it asks */
	struct source *own, *sources;
	/* a consumer's */
	struct soda_move_reader *reader;
	uint64_t opened_ns;
	uint64_t after;
	struct head seen;
} programs[MOVE_PROGRAMS];

static uint64_t roll(uint64_t n)
{
	return sim_below(n);
}

static void name_of(unsigned producer, char out[24])
{
	snprintf(out, 24, "fields-%u", producer);
}

/* An error that only a fault explains. */
static void excuse(const char *what, int ret, uint64_t began)
{
	if (!move_excused(began))
		sim_fail("WRONG CODE: %s: %d, %s", what, ret, soda_move_last_error());
}

static void nap(void)
{
	sim_sleep(roll(20 * SIM_MS), "a program that does something else");
}

/* Content */

static uint64_t word_of(const struct head *h, uint64_t i)
{
	return mix(h->list * 100000 + i, h->life);
}

static void fill(struct source *s, const struct head *h)
{
	uint64_t w;

	s->head = *h;
	for (uint64_t i = 0; i < RECORDS; i++)
		s->records[i] = (struct record){ ~i, word_of(h, i), i };
	for (size_t at = 0; at < BODY; at += sizeof(w)) {
		w = word_of(h, RECORDS + at / sizeof(w));
		memcpy(s->body + at, &w, BODY - at < sizeof(w) ? BODY - at : sizeof(w));
	}
}

/* A step as it has to be. */
static void expect(uint8_t *out, const struct head *h)
{
	static struct source s; /* no point is within */

	fill(&s, h);
	memset(out, 0, BYTES);
	memcpy(out, h, sizeof(*h));
	memset(out + CONSTANT_AT, 0x5a, CONSTANT);
	for (uint64_t i = 0; i < RECORDS; i++)
		memcpy(out + COLUMN_AT + i * sizeof(uint64_t), &s.records[i].value,
		       sizeof(uint64_t));
	memcpy(out + BODY_AT, s.body, BODY);
}

/* The first byte that is wrong, or -1. */
static long differs(const void *data, const struct head *h)
{
	static uint8_t right[BYTES];

	expect(right, h);
	if (!memcmp(data, right, BYTES))
		return -1;
	for (long i = 0; i < BYTES; i++)
		if (((const uint8_t *)data)[i] != right[i])
			return i;
	return -1;
}

/* Producers */

static void leave(struct program *p)
{
	soda_move_disconnect(p->mover);
	p->mover = NULL;
}

/* Its user is not known to the agent. */
static bool is_far(const struct program *p)
{
	return !move_plan.shares || move_plan.far[p->number];
}

static bool reserve(struct program *p)
{
	char name[24];
	int ret;

	name_of(p->number, name);
	p->how = (struct soda_move_buffer_options){
		.bytes = BYTES,
		.copies = (unsigned)sim_between(1, 4),
		.mode = is_far(p) || sim_chance(70) ? 0444 : 0400,
		.flags = (sim_chance(30) ? SODA_MOVE_KEEP : 0) |
			 (sim_chance(20) ? SODA_MOVE_STAGE : 0),
	};
	p->last = p->unknown = p->unknown_at_last = 0;
	p->life_of_buffer = sim_random() | 1;
	ret = soda_move_reserve(p->mover, name, &p->how, &p->buffer);
	if (ret == 0)
		return true;
	if (ret != -ENOSPC || !move_plan.tight)
		excuse("reserve", ret, p->connected_ns);
	return false;
}

static bool join(struct program *p)
{
	uint64_t began = sim_now();
	void *shared;
	int ret = soda_move_connect(agent, &p->mover);

	if (ret < 0) {
		p->mover = NULL;
		excuse("connect", ret, began);
		nap();
		return false;
	}
	p->connected_ns = began;
	p->sources = p->own;
	if (roll(2) == 0) {
		ret = soda_move_alloc(p->mover, SOURCES * SOURCE_PAGES * PAGE, &shared);
		if (ret == 0)
			p->sources = shared;
		else if (ret != -ENOSPC || !move_plan.tight)
			excuse("alloc", ret, p->connected_ns);
	}
	if (reserve(p))
		return true;
	leave(p);
	nap();
	return false;
}

static struct source *source_of(struct program *p, uint64_t i)
{
	return (struct source *)(void *)((char *)p->sources + i * SOURCE_PAGES * PAGE);
}

/* Memory goes while the agent may be reading it. */
static void take_away(struct program *p, struct post *post)
{
	if (p->sources != p->own || roll(12))
		return;
	post->gone = true;
	move_source_unmap(post->source, SOURCE_PAGES * PAGE);
}

/* False: the connection is lost. */
static bool hand_over(struct program *p, struct post *post, struct source *s)
{
	static char *hole;
	struct head h = { magic, p->life_of_buffer, ++lists, p->how.flags & SODA_MOVE_KEEP };
	bool unwanted = roll(10) == 0;
	struct soda_move_piece pieces[] = {
		{ .from = s->body, .bytes = BODY, .offset = BODY_AT },
		{ .bytes = CONSTANT, .offset = CONSTANT_AT, .fill = 0x5a },
		{ .from = &s->records[0].value,
		  .bytes = sizeof(uint64_t),
		  .stride = sizeof(struct record),
		  .count = RECORDS,
		  .offset = COLUMN_AT },
		{ .from = &s->head, .bytes = sizeof(s->head) },
	};
	int ret;

	if (lists == LISTS)
		sim_fail("the simulation is wrong: more lists than it has room for");
	if (!hole) {
		hole = mmap(NULL, SOURCE_PAGES * PAGE, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		move_source_unmap(hole, SOURCE_PAGES * PAGE);
	}
	*post = (struct post){
		.list = lists, .bad = !unwanted && roll(12) == 0, .source = s, .unknown = p->unknown
	};
	fill(s, &h);
	if (post->bad)
		pieces[roll(2) * 2].from = hole;
	p->handed_over++;
	ret = soda_move(p->buffer, pieces, 4, unwanted ? NULL : &post->ticket);
	sim_note("list %llu%s%s: %d", (unsigned long long)post->list, post->bad ? ", bad" : "",
		 unwanted ? ", unwanted" : "", ret);
	if (ret == -EAGAIN) { /* the unwanted ones have not ended */
		post->list = 0;
		return true;
	}
	if (ret) {
		excuse("soda_move", ret, p->connected_ns);
		return ret != -ENOTCONN;
	}
	if (unwanted) {
		p->unknown++;
		return true;
	}
	if (roll(10) == 0)
		post->cancelled = soda_move_cancel(post->ticket) == 0;
	take_away(p, post);
	return true;
}

static int await(struct soda_move_ticket *t, uint64_t *step_p)
{
	int ret = -EINPROGRESS;

	while (ret == -EINPROGRESS) {
		if (sim_chance(30)) { /* late */
			nap();
			ret = soda_move_test(t, step_p);
		} else {
			ret = soda_move_wait(t, sim_chance(50) ? -1 : (int)roll(300), step_p);
		}
	}
	return ret;
}

static void check_step(struct program *p, const struct post *post, uint64_t step)
{
	uint64_t most = p->last + 1 + post->unknown - p->unknown_at_last;

	if (post->bad || step <= p->last || step > most)
		sim_fail("WRONG CODE: list %llu%s is step %llu, after %llu and at most %llu",
			 (unsigned long long)post->list, post->bad ? ", bad," : "",
			 (unsigned long long)step, (unsigned long long)p->last,
			 (unsigned long long)most);
	p->last = step;
	p->unknown_at_last = post->unknown;
	p->calm_steps += move_calm;
}

/* False: the connection is lost. */
static bool judge(struct program *p, struct post *post)
{
	uint64_t step = 0;
	int ret = await(post->ticket, &step);

	if (post->gone)
		move_source_map(post->source, SOURCE_PAGES * PAGE);
	sim_note("list %llu has ended: %d, step %llu", (unsigned long long)post->list, ret,
		 (unsigned long long)step);
	ledger[post->list].ended = true;
	ledger[post->list].status = ret;
	ledger[post->list].step = step;
	if (ret == 0)
		check_step(p, post, step);
	else if (ret == -ENOSPC && !p->how.flags && !move_plan.consumers)
		sim_fail("WRONG CODE: no copy was free, and nobody holds or keeps one");
	else if (ret == -ENOTCONN || ret == -ENOMEM || ret == -ESRCH)
		excuse("a ticket", ret, p->connected_ns);
	else if (!(ret == -ENOSPC || (ret == -EFAULT && (post->bad || post->gone)) ||
		   (ret == -ECANCELED && post->cancelled)))
		sim_fail("WRONG CODE: list %llu%s%s%s ended with %d",
			 (unsigned long long)post->list, post->bad ? ", bad," : "",
			 post->gone ? ", whose memory went," : "",
			 post->cancelled ? ", cancelled," : "", ret);
	return ret != -ENOTCONN;
}

/* What has not been shown by now is never shown, whatever becomes of it. */
static void spoil(struct program *p)
{
	memset(source_of(p, 0), 0xee, SOURCES * SOURCE_PAGES * PAGE);
}

static void produce_some(struct program *p)
{
	struct post posts[SOURCES];
	uint64_t n = sim_between(1, SOURCES), posted = 0;
	bool connected = true;

	while (connected && posted < n) {
		connected = hand_over(p, &posts[posted], source_of(p, posted));
		if (connected && !posts[posted].ticket)
			break; /* nobody says when its memory may be used again */
		posted += connected;
	}
	for (uint64_t i = 0; i < posted; i++)
		connected = judge(p, &posts[i]) && connected;
	if (!connected) {
		spoil(p);
		sim_sleep(roll(8 * SIM_S), "a program that does not know what to do");
	}
	if (connected && p->unknown == p->unknown_at_last && roll(15))
		return;
	/* its end waits for those that nobody waits for */
	if (connected && roll(3)) {
		int ret = soda_move_end(p->buffer);

		if (ret)
			excuse("end", ret, p->connected_ns);
		connected = ret == 0 && reserve(p);
	} else if (connected) {
		connected = false;
	}
	if (!connected)
		leave(p);
	if (!connected)
		memset(p->own, 0xdd, SOURCES * SOURCE_PAGES * PAGE);
}

static void produce(struct program *p)
{
	p->own = mmap(NULL, SOURCES * SOURCE_PAGES * PAGE, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	while (p->handed_over < move_plan.steps || !move_calm || p->calm_steps < LAST) {
		if (p->handed_over >= move_plan.steps && !move_calm) {
			sim_sleep(SIM_S, "calm");
			continue;
		}
		if (p->mover || join(p))
			produce_some(p);
	}
	if (p->mover)
		leave(p);
}

/* Consumers */

static void close_reader(struct program *p)
{
	soda_move_close(p->reader);
	p->reader = NULL;
	p->after = 0;
	p->seen = (struct head){ 0 };
}

static bool open_one(struct program *p)
{
	uint64_t began = sim_now();
	char name[24];
	int ret;

	name_of((unsigned)roll(move_plan.producers), name);
	ret = soda_move_open(agent, name, (int)roll(500), &p->reader);
	p->connected_ns = began;
	p->opened_ns = sim_now();
	if (ret == 0)
		return true;
	p->reader = NULL;
	if (ret != -ENOENT && ret != -EACCES)
		excuse("open", ret, began);
	nap();
	return false;
}

/* Others have perhaps passed a later step before the reader came: what they have is not kept for
 * it. */
static bool passed_before(const struct program *p, uint64_t life)
{
	for (uint64_t i = 1; i <= lists; i++)
		if (ledger[i].life == life && ledger[i].shown > p->after &&
		    ledger[i].shown_ns <= p->opened_ns)
			return true;
	return false;
}

static void note_shown(const struct soda_move_step *s, const struct head *h)
{
	if (h->list >= LISTS || ledger[h->list].shown)
		return;
	ledger[h->list].life = h->life;
	ledger[h->list].shown = s->number;
	ledger[h->list].shown_ns = sim_now();
}

static void check_shown(struct program *p, const struct soda_move_step *s, const struct head *h)
{
	if (h->magic != magic || !h->list || h->list > lists)
		sim_fail("WRONG BYTES: step %llu has no head", (unsigned long long)s->number);
	if (ledger[h->list].ended && ledger[h->list].status && ledger[h->list].status != -ENOTCONN)
		sim_fail("SHOWN: step %llu is list %llu, which ended with %d",
			 (unsigned long long)s->number, (unsigned long long)h->list,
			 ledger[h->list].status);
	if (ledger[h->list].step && ledger[h->list].step != s->number)
		sim_fail("WRONG STEP: %llu is list %llu, whose producer was told %llu",
			 (unsigned long long)s->number, (unsigned long long)h->list,
			 (unsigned long long)ledger[h->list].step);
	if (p->after &&
	    (h->life != p->seen.life || h->list <= p->seen.list || s->number <= p->after))
		sim_fail("WRONG STEP: %llu, list %llu, after %llu, list %llu",
			 (unsigned long long)s->number, (unsigned long long)h->list,
			 (unsigned long long)p->after, (unsigned long long)p->seen.list);
	if (p->after && h->keep && s->number != p->after + 1 && !passed_before(p, h->life))
		sim_fail("NOT KEPT: step %llu after %llu", (unsigned long long)s->number,
			 (unsigned long long)p->after);
}

/*
 * What is held does not change, unless the connection is lost meanwhile: then the RELEASE fails,
 * and what was seen does not count.
 */
static int look_at(struct program *p, const struct soda_move_step *s)
{
	struct head h;
	long wrong;
	int ret;

	memcpy(&h, s->data, sizeof(h));
	wrong = differs(s->data, &h);
	if (roll(3) == 0) {
		nap();
		wrong = wrong < 0 ? differs(s->data, &h) : wrong;
	}
	note_shown(s, &h);
	ret = soda_move_release(p->reader, s);
	if (ret)
		return ret;
	check_shown(p, s, &h);
	if (wrong >= 0)
		sim_fail("WRONG BYTES: step %llu, list %llu, at %ld", (unsigned long long)s->number,
			 (unsigned long long)h.list, wrong);
	p->after = s->number;
	p->seen = h;
	p->calm_steps += move_calm;
	return 0;
}

static void consume_one(struct program *p)
{
	struct soda_move_step s;
	int ret = soda_move_next(p->reader, p->after, (int)roll(400), &s);

	sim_note("the step after %llu: %d, %llu", (unsigned long long)p->after, ret,
		 ret ? 0 : (unsigned long long)s.number);
	if (ret == 0)
		ret = look_at(p, &s);
	if (ret == 0 && roll(20))
		return;
	if (ret == -ETIMEDOUT) {
		nap();
		return;
	}
	if (ret && ret != -EPIPE)
		excuse("the next step", ret, p->connected_ns);
	close_reader(p);
}

static bool any_producer(void)
{
	for (unsigned i = 0; i < move_plan.producers; i++)
		if (!programs[i].ended)
			return true;
	return false;
}

static void consume(struct program *p)
{
	while (any_producer()) {
		if (!move_calm && roll(50) == 0) { /* it has something else to do */
			sim_sleep(roll(3 * SIM_S), "a consumer that does not come");
		} else if (p->reader || open_one(p)) {
			consume_one(p);
		}
	}
	if (p->reader)
		close_reader(p);
}

static void *program_main(void *arg)
{
	struct program *p = arg;

	if (p->number < MOVE_PRODUCERS)
		produce(p);
	else
		consume(p);
	p->ended = true;
	return NULL;
}

void move_begin(unsigned i)
{
	struct program *p = &programs[i];
	unsigned handed_over = p->handed_over;

	*p = (struct program){ .number = i, .handed_over = handed_over };
	move_source_begin(move_process(i));
	sim_detach(sim_spawn(move_process(i), i < MOVE_PRODUCERS ? "producer" : "consumer",
			     program_main, p));
}

void move_killed(unsigned i)
{
	move_source_killed(move_process(i));
}

bool move_all_ended(void)
{
	for (unsigned i = 0; i < MOVE_PRODUCERS; i++)
		if (i < move_plan.producers && !programs[i].ended)
			return false;
	for (unsigned i = 0; i < move_plan.consumers; i++)
		if (!programs[MOVE_PRODUCERS + i].ended)
			return false;
	return true;
}
