/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A producer or a consumer of the campaign: movement (soda_move.h) while a conductor does its worst
 * to the agent, to connections, and to these programs.
 *
 *   mover produce|consume progress=FILE seed=N name=NAME
 *
 * Every byte of a step follows from what the step's head says of itself: whose it is and which one,
 * so that a consumer sees whether what it is shown is whole.  A producer knows the number that its
 * next step must have.  Ends with 0, or with 99 and "WHAT: ...".
 */
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "lib/dice.h"
#include "model.h"
#include "progress.h"
#include "soda_move.h"

enum {
	BYTES = (4 << 20) + (200 << 10) + 777, /* more than one SEND, and no whole pages */
	RECORDS = 2000,
	CONSTANT_AT = 64,
	CONSTANT = 100,
	COLUMN_AT = 4096,
	BODY_AT = 65536,
	BODY = BYTES - BODY_AT,
	SOURCES = 3,
	COPIES = 3,
	OPEN_S = 60, /* so long a name or an agent may be missing where all is calm */
	WAIT_MS = 40000,
	NEXT_MS = 200,
	NAP_US = 20000,
	LAST_STEPS = 3, /* that a consumer wants to see when all is calm */
};

struct head {
	uint64_t magic, life, number, bytes;
};

static const uint64_t magic = 0x736f64616d6f7665;

struct record {
	uint64_t before, value, behind;
};

struct source {
	struct head head;
	struct record records[RECORDS];
	uint8_t body[BODY];
};

static struct progress *progress;
static struct dice dice;
static const char *name;

static uint64_t roll(uint64_t n)
{
	return dice_roll(&dice) % n;
}

static void step(void)
{
	atomic_fetch_add(&progress->threads[0].steps, 1);
}

static bool is_calm(void)
{
	return atomic_load(&progress->calm);
}

/* Something cannot be had: a fault, and no more than OPEN_S once all faults are over. */
static void cannot(const char *what, int err)
{
	static time_t calm_since;

	if (is_calm() && !calm_since)
		calm_since = time(NULL);
	if (calm_since && time(NULL) - calm_since > OPEN_S)
		wrong("wrong code", "%s, %d s after the last fault: %d, %s", what, OPEN_S, err,
		      soda_move_last_error());
	usleep(NAP_US);
	step();
}

/* Content */

static uint64_t word_of(const struct head *h, uint64_t i)
{
	return (h->life * 0x9e3779b97f4a7c15 ^ h->number * 0xd1b54a32d192ed03) +
	       i * 0x2545f4914f6cdd1d;
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

/* The first byte of a step that is not as it should be, or "". */
static char differs[160];

static void must_be(const void *at, const void *expected, size_t bytes, const struct head *h,
		    size_t offset)
{
	if (!*differs && memcmp(at, expected, bytes))
		snprintf(differs, sizeof(differs),
			 "life %llx, number %llu, at %zu: not what was handed over",
			 (unsigned long long)h->life, (unsigned long long)h->number, offset);
}

static void check_zeros(const uint8_t *data, const struct head *h, size_t from, size_t to)
{
	for (; from < to; from++)
		must_be(data + from, "", 1, h, from);
}

/* All of a step, into `differs`; its head. */
static struct head check(const struct soda_move_step *s)
{
	const uint8_t *data = s->data;
	struct head h;
	uint64_t w;

	memcpy(&h, data, sizeof(h));
	if (s->bytes != BYTES || h.magic != magic || h.bytes != BYTES)
		snprintf(differs, sizeof(differs), "step %llu has no head: %llx, %llu bytes",
			 (unsigned long long)s->number, (unsigned long long)h.magic,
			 (unsigned long long)s->bytes);
	check_zeros(data, &h, sizeof(h), CONSTANT_AT);
	for (size_t i = CONSTANT_AT; i < CONSTANT_AT + CONSTANT; i++)
		must_be(data + i, "\x5a", 1, &h, i);
	check_zeros(data, &h, CONSTANT_AT + CONSTANT, COLUMN_AT);
	for (uint64_t i = 0; i < RECORDS; i++) {
		w = word_of(&h, i);
		must_be(data + COLUMN_AT + i * sizeof(w), &w, sizeof(w), &h,
			COLUMN_AT + i * sizeof(w));
	}
	check_zeros(data, &h, COLUMN_AT + RECORDS * sizeof(w), BODY_AT);
	for (size_t at = 0; at < BODY; at += sizeof(w)) {
		w = word_of(&h, RECORDS + at / sizeof(w));
		must_be(data + BODY_AT + at, &w, BODY - at < sizeof(w) ? BODY - at : sizeof(w), &h,
			BODY_AT + at);
	}
	return h;
}

/* The producer */

struct post {
	struct soda_move_ticket *ticket;
	bool bad, cancelled;
};

static struct {
	struct soda_mover *mover;
	struct soda_move_buffer *buffer;
	uint64_t life, number;
	uint64_t last;		/* step of this life */
	uint64_t whole_calm;	/* steps that were published when all was calm */
	void *hole;		/* memory that is not there, behind a page that is */
	struct source *own;	/* SOURCES of them, as the next two */
	struct source *sources; /* of this connection: `own`, or memory that the agent shares */
} producer;

static void leave(void)
{
	soda_move_disconnect(producer.mover);
	producer.mover = NULL;
	producer.last = 0;
}

static bool join(void)
{
	const struct soda_move_buffer_options how = { .bytes = BYTES,
						      .copies = COPIES,
						      .mode = 0444 };
	int ret = soda_move_connect(NULL, &producer.mover);
	void *shared;

	if (ret < 0) {
		producer.mover = NULL;
		cannot("connect", ret);
		return false;
	}
	producer.life = dice_roll(&dice);
	producer.sources = producer.own;
	if (roll(2) &&
	    soda_move_alloc(producer.mover, SOURCES * sizeof(struct source), &shared) == 0)
		producer.sources = shared; /* it may be lost again, or have no memory for it */
	ret = soda_move_reserve(producer.mover, name, &how, &producer.buffer);
	if (ret == 0)
		return true;
	leave();
	cannot("reserve", ret);
	return false;
}

/* False: the connection is lost. */
static bool hand_over(struct source *s, struct post *p)
{
	struct head h = { magic, producer.life, ++producer.number, BYTES };
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

	*p = (struct post){ .bad = roll(12) == 0 };
	fill(s, &h);
	if (p->bad)
		pieces[roll(2) * 2].from = producer.hole;
	ret = soda_move(producer.buffer, pieces, 4, &p->ticket);
	if (ret && ret != -ENOTCONN)
		wrong("wrong code", "soda_move: %d, %s", ret, soda_move_last_error());
	if (ret == 0 && roll(12) == 0)
		p->cancelled = soda_move_cancel(p->ticket) == 0;
	return ret == 0;
}

static bool judge(const struct post *p)
{
	uint64_t number = 0;
	int ret = soda_move_wait(p->ticket, WAIT_MS, &number);

	if (ret == -ENOTCONN)
		return false;
	if (ret == 0 && !p->bad && number == producer.last + 1) {
		producer.last++;
		producer.whole_calm += is_calm();
		return true;
	}
	/* ENOSPC: a consumer that was killed holds a step still */
	if ((ret == -EFAULT && p->bad) || (ret == -ECANCELED && p->cancelled) || ret == -ENOSPC)
		return true;
	wrong("wrong code", "a ticket%s%s ended with %d, step %llu after %llu: %s",
	      p->bad ? " without memory" : "", p->cancelled ? ", cancelled," : "", ret,
	      (unsigned long long)number, (unsigned long long)producer.last,
	      ret ? soda_move_last_error() : "");
}

/* Some tickets, one behind the other; their memory is used again once they have ended. */
static void produce_some(struct source *sources)
{
	struct post posts[SOURCES];
	uint64_t n = 1 + roll(SOURCES), posted = 0;
	bool connected = true;

	while (connected && posted < n) {
		connected = hand_over(&sources[posted], &posts[posted]);
		posted += connected;
	}
	for (uint64_t i = 0; i < posted && connected; i++)
		connected = judge(&posts[i]);
	if (!connected) {
		/* what has not been shown by now is never shown, whatever becomes of it */
		memset(sources, 0xee, SOURCES * sizeof(*sources));
		cannot("the connection is kept", -ENOTCONN);
		leave();
	}
	step();
}

static void produce(void)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	producer.own = calloc(SOURCES, sizeof(*producer.own));
	producer.hole = mmap(NULL, BYTES + page, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (!producer.own || producer.hole == MAP_FAILED)
		wrong("cannot start", "memory: %s", strerror(errno));
	mprotect((uint8_t *)producer.hole + page, BYTES, PROT_NONE);
	while (!is_calm() || !producer.whole_calm) {
		if (producer.mover || join())
			produce_some(producer.sources);
		atomic_fetch_add(&progress->threads[0].ops, 1);
	}
	leave();
	free(producer.own);
}

/* The consumer */

static struct {
	struct soda_move_reader *reader;
	uint64_t after;	     /* the last step, of this reader */
	struct head last;    /* what it said */
	uint64_t whole_calm; /* steps that were whole when all was calm */
} consumer;

static bool open_name(void)
{
	int ret = soda_move_open(NULL, name, NEXT_MS, &consumer.reader);

	if (ret == 0)
		return true;
	consumer.reader = NULL;
	consumer.after = 0;
	consumer.last = (struct head){ 0 };
	cannot("open", ret);
	return false;
}

static void close_reader(void)
{
	soda_move_close(consumer.reader);
	consumer.reader = NULL;
	consumer.after = 0;
	consumer.last = (struct head){ 0 };
}

/*
 * What is held does not change, unless the connection is lost meanwhile: then the RELEASE fails,
 * and what was seen does not count.  Its result.
 */
static int look_at(const struct soda_move_step *s)
{
	struct head h;
	int ret;

	*differs = 0;
	h = check(s);
	if (roll(3) == 0) {
		usleep((useconds_t)roll(NAP_US));
		check(s);
	}
	ret = soda_move_release(consumer.reader, s);
	if (ret)
		return ret;
	if (*differs)
		wrong("wrong bytes", "%s", differs);
	if (s->number <= consumer.after ||
	    (consumer.after && (h.life != consumer.last.life || h.number <= consumer.last.number)))
		wrong("wrong bytes",
		      "step %llu after %llu: number %llu after %llu, life %llx after %llx",
		      (unsigned long long)s->number, (unsigned long long)consumer.after,
		      (unsigned long long)h.number, (unsigned long long)consumer.last.number,
		      (unsigned long long)h.life, (unsigned long long)consumer.last.life);
	consumer.after = s->number;
	consumer.last = h;
	consumer.whole_calm += is_calm();
	return 0;
}

static void consume_one(void)
{
	struct soda_move_step s;
	int ret = soda_move_next(consumer.reader, consumer.after, NEXT_MS, &s);

	if (ret == 0)
		ret = look_at(&s);
	if (ret == -ETIMEDOUT)
		cannot("a step", ret);
	else if (ret == -EPIPE || ret == -ENOTCONN || ret == -ENOMEM || ret == -EMFILE)
		close_reader();
	else if (ret)
		wrong("wrong code", "the next step: %d, %s", ret, soda_move_last_error());
	step();
}

static void consume(void)
{
	while (!is_calm() || consumer.whole_calm < LAST_STEPS) {
		if (consumer.reader || open_name())
			consume_one();
		atomic_fetch_add(&progress->threads[0].ops, 1);
	}
	close_reader();
}

static void read_option(const char *arg)
{
	if (!strncmp(arg, "progress=", 9))
		progress = map_file(arg + 9, sizeof(*progress));
	else if (!strncmp(arg, "seed=", 5))
		dice.state = mix(strtoull(arg + 5, NULL, 0), 1) | 1;
	else if (!strncmp(arg, "name=", 5))
		name = arg + 5;
	else
		wrong("cannot start", "option \"%s\"", arg);
}

int main(int argc, char **argv)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL); /* nobody is left behind */
	for (int i = 2; i < argc; i++)
		read_option(argv[i]);
	if (!progress || !name || !dice.state)
		wrong("cannot start", "produce|consume progress=FILE seed=N name=NAME");
	atomic_store(&progress->state, RUNNING);
	if (!strcmp(argv[1], "produce"))
		produce();
	else
		consume();
	atomic_store(&progress->threads[0].doing, ENDED);
	atomic_store(&progress->state, DONE);
	return 0;
}
