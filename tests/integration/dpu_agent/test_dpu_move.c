/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Movement between real processes, through libsoda-move and the agent as they are installed:
 * producers, consumers and agents that are killed, and processes that the agent may not read.  No
 * memory server is there: movement needs none.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <linux/userfaultfd.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/limits.h"
#include "lib/peer.h"
#include "lib/proc.h"
#include "soda_move.h"

enum { SMALL_WORDS = 2000, SMALL_STEPS = 300 };
enum { WAIT_MS = 60000, STEPS = 20, WORDS = 100000, BIG_WORDS = 2 << 20, NOBODY = 65534 };
enum { CANCELLED = 32 }; /* more than a connection carries without an answer */

static struct server agent;

static void up(const char *listen)
{
	const char *args[] = { "--listen",	"tcp://127.0.0.1:0",
			       "--server",	"tcp://127.0.0.1:1",
			       "--move-memory", "256M",
			       "--allow-other", NULL };

	args[1] = listen;
	assert_int_equal(agent_start(&agent, args), 0);
}

static void down_after(int complaints)
{
	assert_int_equal(server_stop(&agent), 0);
	assert_int_equal(server_complaints(&agent), complaints);
	server_forget(&agent);
}

static void down(void)
{
	down_after(0);
}

static const char *shm(void)
{
	static char where[64];
	static int n;

	snprintf(where, sizeof(where), "shm://@soda-move-%d-%d", (int)getpid(), n++);
	return where;
}

#define OK(call)                                                                                   \
	do {                                                                                       \
		int ret_ = (call);                                                                 \
		if (ret_)                                                                          \
			fail_msg("%s: %d: %s", #call, ret_, soda_move_last_error());               \
	} while (0)

/* In a child, whose exit status says whether all was well. */
#define MUST(cond)                                                                                 \
	do {                                                                                       \
		if (!(cond)) {                                                                     \
			fprintf(stderr, "child, line %d: %s: %s\n", __LINE__, #cond,               \
				soda_move_last_error());                                           \
			_exit(1);                                                                  \
		}                                                                                  \
	} while (0)

static pid_t run(void (*child)(void))
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	alarm(WAIT_MS / 1000);
	child();
	_exit(0);
}

static void expect_exit(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static void kill_hard(pid_t pid)
{
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* Step i: the words i * WORDS, i * WORDS + 1 ... */
static void fill(uint64_t *words, size_t n, uint64_t i)
{
	for (size_t k = 0; k < n; k++)
		words[k] = i * n + k;
}

static bool is_step(const uint64_t *words, size_t n, uint64_t i)
{
	for (size_t k = 0; k < n; k++)
		if (words[k] != i * n + k)
			return false;
	return true;
}

/* Producers */

/* Memory to hand over: shared with the agent, or the program's own. */
static uint64_t *memory(struct soda_mover *m, size_t words_n, bool shared)
{
	void *words = NULL;

	MUST(!shared || soda_move_alloc(m, words_n * 8, &words) == 0);
	if (!shared)
		words = malloc(words_n * 8);
	MUST(words);
	return words;
}

static void produce(size_t words_n, uint64_t steps, bool shared)
{
	struct soda_move_buffer_options how = { .bytes = words_n * 8, .copies = 3, .mode = 0444 };
	struct soda_move_ticket *t[2] = { NULL, NULL };
	struct soda_move_buffer *b;
	struct soda_mover *m;
	uint64_t *words[2];

	MUST(soda_move_connect(agent.address, &m) == 0);
	for (int i = 0; i < 2; i++)
		words[i] = memory(m, words_n, shared);
	MUST(soda_move_reserve(m, "steps", &how, &b) == 0);
	/* while one is fetched the next one is computed, in the other memory */
	for (uint64_t i = 1; i <= steps; i++) {
		struct soda_move_piece p = { .from = words[i % 2], .bytes = words_n * 8 };
		uint64_t step = 0;
		int ret = t[i % 2] ? soda_move_wait(t[i % 2], WAIT_MS, &step) : 0;

		MUST(ret == 0);
		MUST(!t[i % 2] || step == i - 2);
		fill(words[i % 2], words_n, i);
		MUST(soda_move(b, &p, 1, &t[i % 2]) == 0);
	}
	for (int i = 0; i < 2; i++)
		MUST(!t[i] || soda_move_wait(t[i], WAIT_MS, NULL) == 0);
	MUST(soda_move_end(b) == 0);
	soda_move_disconnect(m);
}

static void produce_for_ever(void)
{
	produce(BIG_WORDS, UINT64_MAX, false);
}

static void produce_shared_for_ever(void)
{
	produce(BIG_WORDS, UINT64_MAX, true);
}

/* A producer whose steps wait for their consumer: it tries again where no copy is free. */
static void produce_kept_by(int way, bool shared)
{
	struct soda_move_buffer_options how = { .bytes = WORDS * 8, .flags = SODA_MOVE_KEEP };
	struct soda_move_piece p = { .bytes = WORDS * 8 };
	struct soda_move_buffer *b;
	struct soda_mover *m;
	uint64_t *words;

	how.mode = 0444;
	MUST(soda_move_connect(agent.address, &m) == 0);
	MUST(soda_move_way(m) == way);
	p.from = words = memory(m, WORDS, shared);
	MUST(soda_move_reserve(m, "steps", &how, &b) == 0);
	for (uint64_t i = 1; i <= STEPS;) {
		struct soda_move_ticket *t;
		int ret;

		fill(words, WORDS, i);
		MUST(soda_move(b, &p, 1, &t) == 0);
		ret = soda_move_wait(t, WAIT_MS, NULL);
		MUST(ret == 0 || ret == -ENOSPC);
		if (ret)
			usleep(1000);
		i += !ret;
	}
	MUST(soda_move_end(b) == 0);
	soda_move_disconnect(m);
}

static void produce_reads(void)
{
	produce_kept_by(SODA_MOVE_READS, false);
}

static void produce_stream(void)
{
	produce_kept_by(SODA_MOVE_STREAM, false);
}

static void produce_shared(void)
{
	produce_kept_by(SODA_MOVE_READS, true);
}

/* All steps, in their order, each whole; then the producer's end. */
static void consume_all(uint64_t steps)
{
	struct soda_move_reader *r;
	struct soda_move_step step = { 0 };

	OK(soda_move_open(agent.address, "steps", WAIT_MS, &r));
	for (uint64_t i = 1; i <= steps; i++) {
		OK(soda_move_next(r, i - 1, WAIT_MS, &step));
		assert_int_equal(step.number, i);
		assert_int_equal(step.bytes, WORDS * 8);
		assert_true(is_step(step.data, WORDS, i));
		OK(soda_move_release(r, &step));
	}
	assert_int_equal(soda_move_next(r, steps, WAIT_MS, &step), -EPIPE);
	soda_move_close(r);
}

/* stat: what counts the bytes that came. */
static void passed_on(const char *listen, void (*child)(void), const char *stat)
{
	static const char *const all[] = { "move_read_bytes", "move_shared_bytes",
					   "move_streamed_bytes" };

	const uint64_t bytes = STEPS * WORDS * 8ull;
	pid_t pid;

	up(listen);
	pid = run(child);
	consume_all(STEPS);
	expect_exit(pid);
	assert_int_equal(peer_stat_at(agent.address, "move_steps"), STEPS);
	/* a ticket for which no copy is free costs no data */
	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
		assert_int_equal(peer_stat_at(agent.address, all[i]),
				 strcmp(stat, all[i]) ? 0 : bytes);
	peer_await_none(agent.address, "move_reserved_bytes"); /* it has yet to hear of their end */
	down();
}

static void test_shm(void **state)
{
	passed_on(shm(), produce_reads, "move_read_bytes");
}

static void test_shared(void **state)
{
	passed_on(shm(), produce_shared, "move_shared_bytes");
}

static void test_tcp(void **state)
{
	passed_on("tcp://127.0.0.1:0", produce_stream, "move_streamed_bytes");
}

/* A producer that is killed while its data are under way: what was shown is whole. */
static void killed(const char *listen, void (*child)(void))
{
	up(listen);
	for (unsigned round = 0; round < 4; round++) {
		struct soda_move_step step = { 0 };
		struct soda_move_reader *r;
		uint64_t after = 0;
		pid_t pid = run(child);
		int ret;

		OK(soda_move_open(agent.address, "steps", WAIT_MS, &r));
		OK(soda_move_next(r, 0, WAIT_MS, &step));
		usleep(round * 7000);
		kill_hard(pid);
		do {
			assert_true(is_step(step.data, BIG_WORDS, step.number));
			after = step.number;
			OK(soda_move_release(r, &step));
			ret = soda_move_next(r, after, WAIT_MS, &step);
		} while (ret == 0);
		assert_int_equal(ret, -EPIPE);
		soda_move_close(r);
	}
	down();
}

static void test_killed_shm(void **state)
{
	killed(shm(), produce_for_ever);
}

static void test_killed_shared(void **state)
{
	killed(shm(), produce_shared_for_ever);
}

static void test_killed_tcp(void **state)
{
	killed("tcp://127.0.0.1:0", produce_for_ever);
}

/* Another program in the same process: its memory is not the producer's. */
static void produce_and_become(void)
{
	struct soda_move_buffer_options how = { .bytes = BIG_WORDS * 8, .copies = 3, .mode = 0444 };
	uint64_t *words = calloc(BIG_WORDS, 8);
	struct soda_move_piece p = { .from = words, .bytes = BIG_WORDS * 8 };
	struct soda_move_buffer *b;
	struct soda_mover *m;

	MUST(soda_move_connect(agent.address, &m) == 0);
	MUST(soda_move_reserve(m, "steps", &how, &b) == 0);
	fill(words, BIG_WORDS, 1);
	MUST(soda_move(b, &p, 1, NULL) == 0);
	for (uint64_t i = 2; i < 40; i++)
		MUST(soda_move(b, &p, 1, NULL) == 0);
	execlp("sleep", "sleep", "60", NULL);
	_exit(1);
}

static void test_executed(void **state)
{
	struct soda_move_step step = { 0 };
	struct soda_move_reader *r;
	uint64_t after = 0;
	pid_t pid;
	int ret;

	up(shm());
	pid = run(produce_and_become);
	OK(soda_move_open(agent.address, "steps", WAIT_MS, &r));
	while ((ret = soda_move_next(r, after, WAIT_MS, &step)) == 0) {
		assert_true(is_step(step.data, BIG_WORDS, 1));
		after = step.number;
		OK(soda_move_release(r, &step));
	}
	assert_int_equal(ret, -EPIPE); /* the connection ended with the program, not the process */
	assert_int_equal(waitpid(pid, NULL, WNOHANG), 0);
	kill_hard(pid);
	soda_move_close(r);
	down();
}

/* The agent is killed: everybody is told, and what is mapped stays. */
static void produce_until_lost(void)
{
	struct soda_move_buffer_options how = { .bytes = WORDS * 8 };
	uint64_t *words = malloc(WORDS * 8);
	struct soda_move_piece p = { .from = words, .bytes = WORDS * 8 };
	struct soda_move_buffer *b;
	struct soda_move_ticket *t;
	struct soda_mover *m;
	int ret = 0;

	how.mode = 0444;
	MUST(soda_move_connect(agent.address, &m) == 0);
	MUST(soda_move_reserve(m, "steps", &how, &b) == 0);
	for (uint64_t i = 1; ret == 0; i++) {
		fill(words, WORDS, i);
		ret = soda_move(b, &p, 1, &t);
		if (ret == 0)
			ret = soda_move_wait(t, WAIT_MS, NULL);
	}
	MUST(ret == -ENOTCONN);
	MUST(soda_move_end(b) == -ENOTCONN);
	soda_move_disconnect(m);
}

static void test_agent_killed(void **state)
{
	struct soda_move_step step, other;
	struct soda_move_reader *r;
	pid_t pid;

	up(shm());
	pid = run(produce_until_lost);
	OK(soda_move_open(agent.address, "steps", WAIT_MS, &r));
	OK(soda_move_next(r, 3, WAIT_MS, &step));
	server_kill(&agent);
	expect_exit(pid);
	assert_true(is_step(step.data, WORDS, step.number));
	assert_int_equal(soda_move_next(r, step.number, -1, &other), -ENOTCONN);
	soda_move_close(r);
	server_forget(&agent);
}

/* Other calls of the same connection, while a thread that waits has it. */
static void *reserve_and_end(void *arg)
{
	const struct soda_move_buffer_options how = { .bytes = 1, .mode = 0444 };
	struct soda_move_buffer *b;
	int ret = 0;

	for (uint64_t n = 0; ret == 0; n++) {
		ret = soda_move_reserve(arg, "other", &how, &b);
		if (ret == 0)
			ret = soda_move_end(b);
		if (ret == 0 && n % 8 == 0)
			usleep(1000); /* and none for a while */
	}
	MUST(ret == -ENOTCONN);
	return NULL;
}

/* Steps of one SEND, one at a time, without a limit of time: who waits sends them itself. */
static void produce_small_until_lost(void)
{
	struct soda_move_buffer_options how = { .bytes = SMALL_WORDS * 8, .mode = 0444 };
	static uint64_t words[SMALL_WORDS];
	struct soda_move_piece p = { .from = words, .bytes = sizeof(words) };
	struct soda_move_buffer *b;
	struct soda_move_ticket *t;
	struct soda_mover *m;
	uint64_t step, steps = 0;
	pthread_t other;
	int ret = 0;

	MUST(soda_move_connect(agent.address, &m) == 0);
	MUST(soda_move_way(m) == SODA_MOVE_STREAM);
	MUST(soda_move_reserve(m, "steps", &how, &b) == 0);
	MUST(pthread_create(&other, NULL, reserve_and_end, m) == 0);
	while (ret == 0 || ret == -EFAULT) {
		bool bad = steps % 5 == 4 && ret == 0;

		p.from = bad ? (void *)1 : words;
		fill(words, SMALL_WORDS, steps + 1);
		ret = soda_move(b, &p, 1, &t);
		if (ret == 0)
			ret = soda_move_wait(t, -1, &step);
		MUST(ret != -EFAULT || bad);
		MUST(ret != 0 || (!bad && step == ++steps));
	}
	MUST(ret == -ENOTCONN);
	pthread_join(other, NULL);
	soda_move_disconnect(m);
}

static void test_small_by_tcp(void **state)
{
	struct soda_move_step step = { 0 };
	struct soda_move_reader *r;
	pid_t pid;

	up("tcp://127.0.0.1:0");
	pid = run(produce_small_until_lost);
	OK(soda_move_open(agent.address, "steps", WAIT_MS, &r));
	do {
		OK(soda_move_next(r, step.number, WAIT_MS, &step));
		assert_true(is_step(step.data, SMALL_WORDS, step.number));
		OK(soda_move_release(r, &step));
	} while (step.number < SMALL_STEPS);
	server_kill(&agent);
	expect_exit(pid);
	soda_move_close(r);
	server_forget(&agent);
}

/*
 * Tickets are cancelled while the agent stands still, and the courier waits for room on the
 * connection: the first of them is the courier's already, and nothing of it was sent.
 */
static void test_cancelled_unsent_by_tcp(void **state)
{
	struct soda_move_buffer_options how = { .bytes = WORDS * 8, .copies = 3, .mode = 0444 };
	uint64_t *words = calloc(WORDS, 8);
	struct soda_move_piece p = { .from = words, .bytes = 8 };
	struct soda_move_ticket *t[CANCELLED];
	struct soda_move_buffer *b;
	struct soda_mover *m;

	up("tcp://127.0.0.1:0");
	OK(soda_move_connect(agent.address, &m));
	OK(soda_move_reserve(m, "steps", &how, &b));
	assert_int_equal(kill(agent.pid, SIGSTOP), 0);
	for (unsigned i = 0; i < CANCELLED; i++)
		OK(soda_move(b, &p, 1, &t[i]));
	usleep(20000); /* the courier comes so far, mostly; if not, the case is another one */
	for (unsigned i = 0; i < CANCELLED; i++) {
		int ret = soda_move_cancel(t[i]);

		assert_true(ret == 0 || ret == -EALREADY); /* it stops a moment later */
	}
	assert_int_equal(kill(agent.pid, SIGCONT), 0);
	for (unsigned i = 0; i < CANCELLED; i++) {
		int ret = soda_move_wait(t[i], WAIT_MS, NULL);

		assert_true(ret == 0 || ret == -ECANCELED);
	}
	OK(soda_move(b, &p, 1, &t[0]));
	OK(soda_move_wait(t[0], WAIT_MS, NULL));
	soda_move_disconnect(m);
	down();
	free(words);
}

/* A consumer that is killed holds nothing any more. */
static void hold(void)
{
	struct soda_move_step steps[3];
	struct soda_move_reader *r;

	MUST(soda_move_open(agent.address, "steps", WAIT_MS, &r) == 0);
	for (uint64_t i = 0; i < 3; i++)
		MUST(soda_move_next(r, i, WAIT_MS, &steps[i]) == 0);
	raise(SIGSTOP);
	_exit(1);
}

static void test_consumer_killed(void **state)
{
	struct soda_move_buffer_options how = { .bytes = WORDS * 8, .copies = 3 };
	uint64_t *words = calloc(WORDS, 8);
	struct soda_move_piece p = { .from = words, .bytes = WORDS * 8 };
	struct soda_move_ticket *t;
	struct soda_move_buffer *b;
	struct soda_mover *m;
	int status, ret;
	pid_t pid;

	up(shm());
	pid = run(hold); /* before this process has threads */
	OK(soda_move_connect(agent.address, &m));
	OK(soda_move_reserve(m, "steps", &how, &b));
	for (int i = 0; i < 3; i++)
		OK(soda_move(b, &p, 1, NULL));
	assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
	assert_true(WIFSTOPPED(status));
	OK(soda_move(b, &p, 1, &t));
	assert_int_equal(soda_move_wait(t, WAIT_MS, NULL), -ENOSPC);
	kill_hard(pid);
	for (int i = 0; i < LOOKS; i++) {
		OK(soda_move(b, &p, 1, &t));
		ret = soda_move_wait(t, WAIT_MS, NULL);
		if (ret == 0)
			break;
		assert_int_equal(ret, -ENOSPC);
		usleep(10000);
	}
	assert_int_equal(ret, 0);
	soda_move_disconnect(m);
	free(words);
	down();
}

/* Processes that the kernel would let the agent read by CAP_SYS_PTRACE alone send their data. */

static void produce_undumpable(void)
{
	MUST(prctl(PR_SET_DUMPABLE, 0) == 0);
	produce_stream();
}

static void produce_as_nobody(void)
{
	MUST(setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
	MUST(prctl(PR_SET_DUMPABLE, 1) == 0);
	produce_stream();
}

static void produce_shared_undumpable(void)
{
	MUST(prctl(PR_SET_DUMPABLE, 0) == 0);
	produce_kept_by(SODA_MOVE_STREAM, true);
}

static void test_undumpable(void **state)
{
	passed_on(shm(), produce_undumpable, "move_streamed_bytes");
}

/* But memory that they share with it needs no right. */
static void test_shared_undumpable(void **state)
{
	passed_on(shm(), produce_shared_undumpable, "move_shared_bytes");
}

static void test_other_user(void **state)
{
	if (geteuid()) {
		print_message("SKIP: only root can be another user\n");
		skip();
	}
	passed_on(shm(), produce_as_nobody, "move_streamed_bytes");
}

/* An agent that ends does not wait for producers and consumers. */
static void test_stopped(void **state)
{
	struct soda_move_step step;
	struct soda_move_reader *r;
	pid_t pid;

	up(shm());
	pid = run(produce_until_lost);
	OK(soda_move_open(agent.address, "steps", WAIT_MS, &r));
	OK(soda_move_next(r, 0, WAIT_MS, &step));
	down();
	expect_exit(pid);
	soda_move_close(r);
}

/* Pages that nobody puts there, until zero_pages(): whoever has them read waits. */
static void *pages_that_do_not_come(size_t bytes, int *fd_p)
{
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register reg = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	reg.range.start = (uintptr_t)p;
	reg.range.len = bytes;
	MUST(fd >= 0 && p != MAP_FAILED);
	MUST(ioctl(fd, UFFDIO_API, &api) == 0 && ioctl(fd, UFFDIO_REGISTER, &reg) == 0);
	*fd_p = fd;
	return p;
}

static void zero_pages(int fd, void *p, size_t bytes)
{
	struct uffdio_zeropage zero = { .range = { .start = (uintptr_t)p, .len = bytes } };

	MUST(ioctl(fd, UFFDIO_ZEROPAGE, &zero) == 0);
}

static bool has_userfaultfd(void)
{
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);

	if (fd >= 0)
		close(fd);
	else
		print_message("an ordinary user's userfaultfd serves no reads by the kernel\n");
	return fd >= 0;
}

/* A list whose page does not come is under way. */
static struct soda_move_ticket *hold_a_getter(struct soda_mover **m_p, int *fd_p, void **page_p)
{
	struct soda_move_buffer_options how = { .bytes = 4096 };
	struct soda_move_piece p = { .bytes = 4096 };
	struct soda_move_ticket *t;
	struct soda_move_buffer *b;
	char name[32];

	p.from = *page_p = pages_that_do_not_come(4096, fd_p);
	snprintf(name, sizeof(name), "held-%d", (int)getpid());
	MUST(soda_move_connect(agent.address, m_p) == 0);
	MUST(soda_move_way(*m_p) == SODA_MOVE_READS);
	MUST(soda_move_reserve(*m_p, name, &how, &b) == 0);
	MUST(soda_move(b, &p, 1, &t) == 0);
	return t;
}

static void hold_for_ever(void)
{
	struct soda_mover *m;
	void *page;
	int fd;

	hold_a_getter(&m, &fd, &page);
	for (;;)
		pause();
}

static void hold_for_a_while(void)
{
	struct soda_move_ticket *t;
	struct soda_mover *m;
	void *page;
	int fd;

	t = hold_a_getter(&m, &fd, &page);
	while (peer_stat_at(agent.address, "move_late") < 1)
		usleep(10000);
	zero_pages(fd, page, 4096);
	MUST(soda_move_wait(t, WAIT_MS, NULL) == 0);
	soda_move_disconnect(m);
}

/* Programs hold more getters than there are; others are served all the same, and the agent ends. */
static void test_held_getters(void **state)
{
	pid_t held[SODA_MOVE_GETTERS + 1];

	if (!has_userfaultfd())
		skip();
	up(shm());
	for (int i = 0; i <= SODA_MOVE_GETTERS; i++)
		held[i] = run(hold_for_ever);
	peer_await_stat(agent.address, "move_buffers", SODA_MOVE_GETTERS + 1);
	for (int i = 0; i < 3; i++) {
		pid_t pid = run(produce_reads);

		consume_all(STEPS);
		expect_exit(pid);
	}
	peer_await_stat(agent.address, "move_late", SODA_MOVE_GETTERS + 1);
#ifdef __SANITIZE_ADDRESS__
	/* its search for leaks would wait at the agent's end for the getters, which do not stop */
	for (int i = 0; i <= SODA_MOVE_GETTERS; i++)
		kill_hard(held[i]);
	down_after(SODA_MOVE_GETTERS + 1);
#else
	down_after(SODA_MOVE_GETTERS + 2); /* a line for each, and one when they are left behind */
	for (int i = 0; i <= SODA_MOVE_GETTERS; i++)
		kill_hard(held[i]);
#endif
}

/* What such a get brings in the end is published; getters are as many as before, and all serve. */
static void test_getters_let_go(void **state)
{
	pid_t held[SODA_MOVE_GETTERS + 1];

	if (!has_userfaultfd())
		skip();
	up(shm());
	for (int i = 0; i <= SODA_MOVE_GETTERS; i++)
		held[i] = run(hold_for_a_while);
	for (int i = 0; i <= SODA_MOVE_GETTERS; i++)
		expect_exit(held[i]);
	peer_await_none(agent.address, "move_late");
	assert_int_equal(peer_stat_at(agent.address, "move_steps"), SODA_MOVE_GETTERS + 1);
	assert_int_equal(server_stop(&agent), 0);
	server_forget(&agent);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_shm),
		cmocka_unit_test(test_shared),
		cmocka_unit_test(test_tcp),
		cmocka_unit_test(test_killed_shm),
		cmocka_unit_test(test_killed_shared),
		cmocka_unit_test(test_killed_tcp),
		cmocka_unit_test(test_executed),
		cmocka_unit_test(test_agent_killed),
		cmocka_unit_test(test_small_by_tcp),
		cmocka_unit_test(test_consumer_killed),
		cmocka_unit_test(test_undumpable),
		cmocka_unit_test(test_shared_undumpable),
		cmocka_unit_test(test_other_user),
		cmocka_unit_test(test_stopped),
		cmocka_unit_test(test_held_getters),
		cmocka_unit_test(test_getters_let_go),
		cmocka_unit_test(test_cancelled_unsent_by_tcp),
	};

	cmocka_set_test_filter(getenv("SODA_TEST_ONLY")); /* NULL: all of them */
	return cmocka_run_group_tests_name("movement between processes", tests, NULL, NULL);
}
