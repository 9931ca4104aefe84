/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Movement of what lies in SODA's own objects: programs with libsoda and libsoda-move, whose page
 * buffer is smaller than what they hand over, while other threads evict it; a memory server, and an
 * agent that has no other business with it.
 */
#include <pthread.h>
#include <unistd.h>

#include "lib/harness.h"
#include "lib/peer.h"
#include "lib/world.h"
#include "soda_move.h"

enum {
	WAIT_MS = 60000,
	CHUNK = 65536,
	CHUNKS = 192, /* of the object; the page buffer has 32 */
	WORDS = CHUNKS * CHUNK / 8,
	EVERY = 1000, /* words between those of the column; not a chunk's multiple */
	COLUMN = WORDS / EVERY,
	LOCAL = 1000,
	STEPS = 3,
};

static struct world world;
static struct server agent;
static char self[4096];

struct job {
	const char *listen;
	int way;
	const char
		*file; /* of the server's directory, through the agent's store; NULL: anonymous */
};

static const struct job by_shm = { "shm://@soda-move-fam-%d-%d", SODA_MOVE_READS, NULL };
static const struct job by_tcp = { "tcp://127.0.0.1:0", SODA_MOVE_STREAM, NULL };
static const struct job of_store = { "shm://@soda-move-fam-%d-%d", SODA_MOVE_READS, "data" };

static void up(const struct job *job)
{
	static int n;
	char listen[64];
	const char *args[] = { "--listen", listen,    "--server", world.address, "--move-memory",
			       "96M",	   "--store", "8M",	  NULL };

	snprintf(listen, sizeof(listen), job->listen, (int)getpid(), n++);
	if (!job->file)
		args[6] = NULL;
	assert_int_equal(agent_start(&agent, args), 0);
}

static void down(void)
{
	assert_int_equal(server_stop(&agent), 0);
	assert_int_equal(server_complaints(&agent), 0);
	server_forget(&agent);
}

#define OK(call)                                                                                   \
	do {                                                                                       \
		int ret_ = (call);                                                                 \
		CHECK(ret_ == 0, "%d: %s", ret_, soda_move_last_error());                          \
	} while (0)

static uint64_t *open_object(const struct job *job)
{
	struct soda_config cfg = SODA_CONFIG_INIT;
	uint64_t *fam;
	size_t bytes;

	if (job->file)
		cfg.dpu = agent.address;
	else
		cfg.server = world.address;
	cfg.buffer = "2M";
	cfg.threads = 2;
	start(&cfg);
	if (job->file) {
		fam = soda_alloc_file(job->file, 0, SODA_READ_ONLY, &bytes);
		CHECK(fam, "%s", soda_last_error());
		CHECK_EQ(bytes, WORDS * 8);
		return fam;
	}
	fam = alloc_checked(WORDS * 8);
	for (size_t i = 0; i < WORDS; i++)
		fam[i] = mix(i, 0);
	return fam;
}

/* A thread that uses the object meanwhile, so that what is not held goes. */
struct rival {
	pthread_t thread;
	const volatile uint64_t *fam;
	_Atomic bool stop;
	_Atomic uint64_t rounds;
};

static void *rival_main(void *arg)
{
	struct rival *r = arg;

	while (!r->stop) {
		for (size_t i = 0; i < WORDS; i += CHUNK / 8)
			(void)r->fam[i + r->rounds % 1000];
		r->rounds++;
	}
	return NULL;
}

static void start_rival(struct rival *r, const uint64_t *fam)
{
	r->fam = fam;
	CHECK_EQ(pthread_create(&r->thread, NULL, rival_main, r), 0);
}

static void end_rival(struct rival *r)
{
	r->stop = true;
	CHECK_EQ(pthread_join(r->thread, NULL), 0);
	CHECK(r->rounds > 0, "it has evicted nothing");
}

/* The object; a column of it; and memory of the program's own, between constants. */
static const struct soda_move_buffer_options size = { .bytes = WORDS * 8 + COLUMN * 8 + LOCAL + 200,
						      .mode = 0444 };
enum { PIECES = 4 };

static void list(struct soda_move_piece pieces[PIECES], const uint64_t *fam, const void *local)
{
	pieces[0] = (struct soda_move_piece){
		.from = fam + 1, .bytes = 8, .stride = EVERY * 8, .count = COLUMN
	};
	pieces[1] = (struct soda_move_piece){ .from = local, .bytes = LOCAL, .offset = COLUMN * 8 };
	pieces[2] =
		(struct soda_move_piece){ .bytes = 100, .fill = 'x', .offset = COLUMN * 8 + LOCAL };
	pieces[3] = (struct soda_move_piece){ .from = fam,
					      .bytes = WORDS * 8,
					      .offset = COLUMN * 8 + LOCAL + 200 };
}

static void check_step(const struct soda_move_step *step, const char *local)
{
	const uint64_t *words = step->data;
	const char *at = (const char *)step->data + COLUMN * 8;
	uint64_t word;

	for (size_t i = 0; i < COLUMN; i++)
		CHECK(words[i] == mix(i * EVERY + 1, 0), "column, %zu", i);
	CHECK(!memcmp(at, local, LOCAL), "local memory");
	at += LOCAL;
	for (size_t i = 0; i < 200; i++)
		CHECK(at[i] == (i < 100 ? 'x' : 0), "filling, %zu", i);
	at += 200;
	for (size_t i = 0; i < WORDS; i++) {
		memcpy(&word, at + i * 8, 8);
		CHECK(word == mix(i, 0), "step %llu, word %zu: %llx",
		      (unsigned long long)step->number, i, (unsigned long long)word);
	}
}

static void child_moves(const void *arg)
{
	const struct job *job = arg;
	uint64_t *fam = open_object(job);
	struct soda_move_piece pieces[PIECES];
	struct soda_move_step step = { 0 };
	struct soda_move_ticket *t;
	struct soda_move_reader *r;
	struct soda_move_buffer *b;
	struct soda_mover *m;
	struct rival rival = { 0 };
	char local[LOCAL];

	memset(local, 'l', sizeof(local));
	list(pieces, fam, local);
	OK(soda_move_connect(agent.address, &m));
	CHECK_EQ(soda_move_way(m), job->way);
	OK(soda_move_reserve(m, "fam", &size, &b));
	OK(soda_move_open(agent.address, "fam", 0, &r));
	if (!job->file)
		CHECK_EQ(soda_advise(fam, CHUNK, SODA_PIN), 0);
	start_rival(&rival, fam);
	for (uint64_t i = 1; i <= STEPS; i++) {
		OK(soda_move(b, pieces, PIECES, &t));
		OK(soda_move_wait(t, WAIT_MS, NULL));
		OK(soda_move_next(r, i - 1, WAIT_MS, &step));
		CHECK_EQ(step.number, i);
		check_step(&step, local);
		OK(soda_move_release(r, &step));
	}
	end_rival(&rival);
	/* what the program has pinned is as it was, and nothing is held */
	CHECK_EQ(stats_now().pinned_bytes, job->file ? 0 : CHUNK);
	CHECK(stats_now().resident_peak_bytes <= 2 << 20, "over the buffer");
	soda_move_close(r);
	soda_move_disconnect(m);
}

static void moves(const struct job *job)
{
	up(job);
	expect_passes(child_moves, job);
	assert_int_equal(peer_stat_at(agent.address, "move_steps"), STEPS);
	assert_int_equal(peer_stat_at(agent.address, "move_failed"), 0);
	assert_int_equal(peer_stat_at(agent.address, job->way == SODA_MOVE_READS
							     ? "move_streamed_bytes"
							     : "move_read_bytes"),
			 0);
	down();
}

/* No agent sees sealed content, no server sees content that an agent fills; the rest moves. */
static void child_seals(const void *arg)
{
	char local[LOCAL];
	struct soda_move_piece in_object = { .bytes = CHUNK };
	struct soda_move_piece outside = { .from = local, .bytes = LOCAL };
	struct soda_move_object *o;
	struct soda_move_ticket *t;
	struct soda_move_buffer *b;
	struct soda_mover *m;

	setenv("SODA_SEAL", "1", 1);
	in_object.from = open_object(arg);
	memset(local, 'l', sizeof(local));
	OK(soda_move_connect(agent.address, &m));
	OK(soda_move_reserve(m, "sealed", &size, &b));
	CHECK_EQ(soda_move(b, &in_object, 1, &t), -ENOTSUP);
	CHECK(strstr(soda_move_last_error(), "SODA_SEAL"), "%s", soda_move_last_error());
	CHECK_EQ(soda_move_object_alloc(m, CHUNK, &o), -ENOTSUP);
	CHECK(strstr(soda_move_last_error(), "SODA_SEAL"), "%s", soda_move_last_error());
	OK(soda_move(b, &outside, 1, &t));
	OK(soda_move_wait(t, WAIT_MS, NULL));
	soda_move_disconnect(m);
}

/*
 * A program without SODA_SEAL has objects that their flag seals: these are refused, wherever a
 * piece meets one, and the others move.
 */
static void child_seals_one(const void *arg)
{
	char *plain = (char *)open_object(arg), *sealed = soda_alloc(CHUNK, SODA_SEALED);
	struct soda_move_piece whole = { .from = sealed, .bytes = CHUNK };
	struct soda_move_piece last = { .from = sealed + CHUNK - 1, .bytes = 1 };
	struct soda_move_piece column = { .from = sealed, .bytes = 1, .stride = 100, .count = 600 };
	struct soda_move_piece both[] = { { .from = plain, .bytes = CHUNK },
					  { .from = sealed, .bytes = 8, .offset = CHUNK } };
	const struct {
		const struct soda_move_piece *pieces;
		size_t n;
	} refused[] = { { &whole, 1 }, { &last, 1 }, { &column, 1 }, { both, 2 } };
	struct soda_move_ticket *t;
	struct soda_move_buffer *b;
	struct soda_mover *m;

	CHECK(sealed, "%s", soda_last_error());
	memset(sealed, 's', CHUNK);
	CHECK_EQ(soda_is_sealed(sealed, 1), 1);
	CHECK_EQ(soda_is_sealed(plain, WORDS * 8), 0);
	CHECK_EQ(soda_is_sealed(&t, sizeof(t)), 0);
	CHECK_EQ(soda_is_sealed(NULL, SIZE_MAX), 1);
	OK(soda_move_connect(agent.address, &m));
	OK(soda_move_reserve(m, "flagged", &size, &b));
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		CHECK_EQ(soda_move(b, refused[i].pieces, refused[i].n, &t), -ENOTSUP);
		CHECK(strstr(soda_move_last_error(), "SODA_SEALED"), "%s", soda_move_last_error());
	}
	OK(soda_move(b, both, 1, &t));
	OK(soda_move_wait(t, WAIT_MS, NULL));
	soda_free(sealed);
	soda_move_disconnect(m);
}

static void test_flag_is_refused(void **state)
{
	up(&by_shm);
	expect_passes(child_seals_one, &by_shm);
	down();
	up(&by_tcp);
	expect_passes(child_seals_one, &by_tcp);
	down();
}

static void test_sealed_is_refused(void **state)
{
	up(&by_shm);
	expect_passes(child_seals, &by_shm);
	down();
	up(&by_tcp);
	expect_passes(child_seals, &by_tcp);
	down();
}

static void test_shm(void **state)
{
	moves(&by_shm);
}

static void test_tcp(void **state)
{
	moves(&by_tcp);
}

/* A file of the node's store, which nobody can hold: what goes is asked for again. */
static void test_store(void **state)
{
	uint64_t *words = malloc(WORDS * 8);

	assert_non_null(words);
	for (size_t i = 0; i < WORDS; i++)
		words[i] = mix(i, 0);
	world_write_file(&world, of_store.file, words, WORDS * 8);
	free(words);
	moves(&of_store);
}

/* Objects that are gone, lists that are cancelled: the next one is as if they had not been. */
static void child_fails(const void *arg)
{
	const struct job *job = arg;
	uint64_t *fam = open_object(job), *gone = alloc_checked(8 * CHUNK);
	struct soda_move_piece pieces[PIECES], bad = { .from = gone, .bytes = 8 * CHUNK };
	struct soda_move_ticket *t[8];
	struct soda_move_step step = { 0 };
	struct soda_move_reader *r;
	struct soda_move_buffer *b;
	struct soda_mover *m;
	char local[LOCAL] = "";
	unsigned cancelled = 0;

	list(pieces, fam, local);
	OK(soda_move_connect(agent.address, &m));
	OK(soda_move_reserve(m, "fam", &size, &b));
	OK(soda_move_open(agent.address, "fam", 0, &r));
	soda_free(gone);
	OK(soda_move(b, &bad, 1, &t[0]));
	CHECK_EQ(soda_move_wait(t[0], WAIT_MS, NULL), -EFAULT);
	bad.from = fam + WORDS - 100; /* it leaves the object */
	OK(soda_move(b, &bad, 1, &t[0]));
	CHECK_EQ(soda_move_wait(t[0], WAIT_MS, NULL), -EFAULT);
	for (int i = 0; i < 8; i++)
		OK(soda_move(b, pieces, PIECES, &t[i]));
	for (int i = 0; i < 8; i++)
		soda_move_cancel(t[i]);
	for (int i = 0; i < 8; i++) {
		int ret = soda_move_wait(t[i], WAIT_MS, NULL);

		CHECK(ret == 0 || ret == -ECANCELED, "%d: %s", ret, soda_move_last_error());
		cancelled += ret != 0;
	}
	CHECK(cancelled > 0, "the call took longer than eight objects");
	OK(soda_move(b, pieces, PIECES, &t[0]));
	OK(soda_move_wait(t[0], WAIT_MS, &step.number));
	OK(soda_move_next(r, step.number - 1, WAIT_MS, &step));
	check_step(&step, local);
	CHECK_EQ(stats_now().pinned_bytes, 0);
	/* its end is not held up by one that is under way */
	OK(soda_move(b, pieces, PIECES, &t[0]));
	soda_move_close(r);
	soda_move_disconnect(m);
	CHECK_EQ(stats_now().pinned_bytes, 0);
}

static void fails(const struct job *job)
{
	up(job);
	expect_passes(child_fails, job);
	peer_await_none(agent.address, "move_reserved_bytes");
	down();
}

static void test_fails_shm(void **state)
{
	fails(&by_shm);
}

static void test_fails_tcp(void **state)
{
	fails(&by_tcp);
}

/* A program that knows nothing of objects, whose heap `soda run` has put there, tickets included.
 */
static int move_as_run(const char *address)
{
	uint64_t *words = malloc(WORDS * 8);
	struct soda_move_buffer_options how = { .bytes = WORDS * 8, .mode = 0444 };
	struct soda_move_piece p = { .from = words, .bytes = WORDS * 8 };
	struct soda_move_step step = { 0 };
	struct soda_move_ticket *t;
	struct soda_move_reader *r;
	struct soda_move_buffer *b;
	struct soda_mover *m;

	CHECK(words, "no memory");
	for (size_t i = 0; i < WORDS; i++)
		words[i] = mix(i, 0);
	OK(soda_move_connect(address, &m));
	CHECK_EQ(soda_move_way(m), SODA_MOVE_READS);
	OK(soda_move_reserve(m, "run", &how, &b));
	OK(soda_move_open(address, "run", 0, &r));
	for (uint64_t i = 1; i <= STEPS; i++) {
		OK(soda_move(b, &p, 1, &t));
		OK(soda_move_wait(t, WAIT_MS, NULL));
		OK(soda_move_next(r, i - 1, WAIT_MS, &step));
		for (size_t k = 0; k < WORDS; k++)
			CHECK(((const uint64_t *)step.data)[k] == mix(k, 0), "word %zu", k);
		OK(soda_move_release(r, &step));
	}
	soda_move_close(r);
	soda_move_disconnect(m);
	return 0;
}

static void child_run(const void *arg)
{
	setenv("SODA_SERVER", world.address, 1);
	execl(build_path("tools/soda/soda"), "soda", "run", "--mem", "2M", "--threshold", "64",
	      "--", self, "run", agent.address, NULL);
	_exit(97);
}

static void test_soda_run(void **state)
{
	if (access(build_path("src/run/libsoda-run.so"), R_OK)) {
		puts("SKIP: this build has no soda run");
		skip();
	}
	up(&by_shm);
	expect_passes(child_run, NULL);
	down();
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sealed_is_refused),
		cmocka_unit_test(test_flag_is_refused),
		cmocka_unit_test(test_shm),
		cmocka_unit_test(test_tcp),
		cmocka_unit_test(test_store),
		cmocka_unit_test(test_fails_shm),
		cmocka_unit_test(test_fails_tcp),
		cmocka_unit_test(test_soda_run),
	};

	if (argc > 2 && !strcmp(argv[1], "run"))
		return move_as_run(argv[2]);
	assert_true(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0);
	return WORLD_RUN("dpu_move_fam", &world, false, tests);
}
