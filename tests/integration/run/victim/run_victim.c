/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A program that knows nothing of SODA, for test_run.c to run under `soda run`: `run_victim CASE`
 * uses memory in its way and checks what it sees.  Exit 0, or a line and 99.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "run_victim.h"

/* What is in fabric memory has no place in the page tables until it is touched, and one region of
   4 TiB around it: its mapping is not dumped and not forked, which nothing of ours is. */
bool in_fam(const void *p)
{
	bool here = false, result = false;
	FILE *f = fopen("/proc/self/smaps", "r");
	char line[512];
	unsigned long from, to;

	CHECK(f);
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-%lx ", &from, &to) == 2 &&
		    strchr(line, '-') < strchr(line, ' '))
			here = (uintptr_t)p >= from && (uintptr_t)p < to;
		else if (here && !strncmp(line, "VmFlags:", 8))
			result = strstr(line, " dc") && strstr(line, " dd");
	}
	fclose(f);
	return result;
}

void fill(unsigned char *p, size_t n, unsigned seed)
{
	for (size_t i = 0; i < n; i += 64)
		p[i] = (unsigned char)(seed + i / 64 * 7 + (i >> 16));
}

void verify(const unsigned char *p, size_t n, unsigned seed)
{
	for (size_t i = 0; i < n; i += 64)
		CHECK(p[i] == (unsigned char)(seed + i / 64 * 7 + (i >> 16)));
}

static bool all_zero(const unsigned char *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (p[i])
			return false;
	return true;
}

static void case_malloc(void)
{
	unsigned char *p = malloc(BIG), *q, *small = malloc(1000);
	volatile size_t huge = SIZE_MAX;
	void *aligned = NULL;

	CHECK(p && in_fam(p));
	CHECK(small && !in_fam(small));
	CHECK(malloc_usable_size(p) >= BIG && malloc_usable_size(small) >= 1000);
	fill(p, BIG, 1);
	q = calloc(5, MIB);
	CHECK(q && in_fam(q) && all_zero(q, 5 * MIB));
	free(q);
	p = realloc(p, 2 * BIG);
	CHECK(p);
	verify(p, BIG, 1);
	p = realloc(p, 100); /* a block stays where its kind is */
	CHECK(p);
	verify(p, 100, 1);
	free(p);
	memset(small, 3, 1000);
	small = realloc(small, 3 * MIB); /* and moves when it grows */
	CHECK(small && in_fam(small) && small[0] == 3 && small[999] == 3);
	free(small);
	for (size_t a = 8; a <= 4 * MIB; a *= 2) {
		CHECK(!posix_memalign(&aligned, a, 2 * MIB) && in_fam(aligned));
		CHECK((uintptr_t)aligned % a == 0);
		free(aligned);
	}
	CHECK(posix_memalign(&aligned, 3, 10) == EINVAL);
	p = aligned_alloc(64, 2 * MIB);
	q = memalign(PAGE, 2 * MIB);
	CHECK(in_fam(p) && in_fam(q) && (uintptr_t)q % PAGE == 0);
	free(p);
	free(q);
	errno = 0;
	CHECK(!malloc(huge / 4) && errno == ENOMEM);
	CHECK(!calloc(huge / 2, 4) && errno == ENOMEM);
	free(NULL);
}

/* As a C++ function of the program's calls it: take(unsigned long), of the namespace `program`. */
static void *(*operator_new)(size_t);
static void *take(size_t bytes) __asm__("_ZN7program4takeEm");

static void *take(size_t bytes)
{
	unsigned char *p = operator_new(bytes);

	fill(p, bytes, 3); /* the call is not the function's last */
	return p;
}

static void case_new(void)
{
	void *(*volatile call)(size_t) = take; /* which the compiler neither inlines nor clones */
	void *library = dlopen("libstdc++.so.6", RTLD_NOW | RTLD_GLOBAL);

	if (!library)
		exit(77);
	*(void **)&operator_new = dlsym(library, "_Znwm");
	CHECK(operator_new);
	CHECK(in_fam(call(BIG)));
}

/* A program that tells glibc to map nothing: its large blocks are fabric memory all the same. */
static void case_brk(void)
{
	unsigned char *p;

	mallopt(M_MMAP_MAX, 0);
	p = malloc(BIG);
	CHECK(p && in_fam(p));
	fill(p, BIG, 2);
	verify(p, BIG, 2);
	free(p);
}

static sigjmp_buf back;

static void on_segv(int sig)
{
	siglongjmp(back, 1);
}

bool faults(volatile unsigned char *p, bool store)
{
	struct sigaction sa = { .sa_handler = on_segv }, old;
	volatile bool hit = true;

	CHECK(!sigaction(SIGSEGV, &sa, &old));
	if (!sigsetjmp(back, 1)) {
		if (store)
			*p = 1;
		else
			(void)*p;
		hit = false;
	}
	CHECK(!sigaction(SIGSEGV, &old, NULL));
	return hit;
}

static unsigned char *map(size_t bytes, int flags)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1,
		       0);

	CHECK(p != MAP_FAILED);
	return p;
}

static void case_maps(void)
{
	unsigned char *p = map(BIG, 0), *q, vec[16];
	unsigned char *local = map(BIG, MAP_NORESERVE), *tiny = map(8 * PAGE, 0);

	CHECK(in_fam(p) && !in_fam(local) && !in_fam(tiny));
	CHECK(all_zero(p, MIB));
	fill(p, BIG, 3);
	verify(p, BIG, 3);
	/* DONTNEED and FREE become zeros, also where a range begins or ends inside a chunk */
	CHECK(!madvise(p + PAGE, 3 * MIB, MADV_DONTNEED));
	CHECK(all_zero(p + PAGE, 3 * MIB) && p[3 * MIB + PAGE + 64]);
	verify(p, PAGE, 3);
	CHECK(!madvise(p + 8 * MIB, 2 * MIB, MADV_FREE));
	CHECK(all_zero(p + 8 * MIB, 2 * MIB));
	CHECK(!madvise(p, BIG, MADV_HUGEPAGE) && !madvise(p, BIG, MADV_WILLNEED));
	CHECK(madvise(p + 1, PAGE, MADV_DONTNEED) && errno == EINVAL);
	fill(p, BIG, 4);
	/* in place, smaller, then larger: the rest of it are zeros */
	CHECK(mremap(p, BIG, 5 * MIB + PAGE, 0) == p);
	CHECK(faults(p + 6 * MIB, false));
	verify(p, 5 * MIB, 4);
	q = mremap(p, 5 * MIB + PAGE, 2 * BIG, MREMAP_MAYMOVE);
	CHECK(q != MAP_FAILED && in_fam(q));
	verify(q, 5 * MIB, 4);
	CHECK(all_zero(q + 5 * MIB + PAGE, 3 * MIB));
	p = q;
	fill(p, BIG, 5);
	/* protections */
	CHECK(!mprotect(p, 2 * MIB, PROT_READ));
	CHECK(faults(p, true) && !faults(p, false));
	CHECK(!mprotect(p, 2 * MIB, PROT_NONE));
	CHECK(faults(p + MIB, false));
	CHECK(!mprotect(p, 2 * MIB, PROT_READ | PROT_WRITE));
	verify(p, BIG, 5);
	CHECK(!mlock(p, MIB) && !mincore(p, 16 * PAGE, vec) && vec[0] && vec[15]);
	CHECK(!munlock(p, MIB) && !msync(p, BIG, MS_SYNC));
	CHECK(mprotect(p + 1, PAGE, PROT_READ) && errno == EINVAL);
	/* a hole */
	CHECK(!munmap(p + 4 * MIB, MIB));
	CHECK(faults(p + 4 * MIB, false) && faults(p + 5 * MIB - 1, true));
	verify(p, 4 * MIB, 5);
	CHECK(p[5 * MIB] == (unsigned char)(5 + 5 * MIB / 64 * 7 + (5 * MIB >> 16)));
	/* anew at a fixed place of ours */
	CHECK(mmap(p, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
		   0) == p);
	CHECK(all_zero(p, MIB));
	CHECK(!munmap(p, 2 * BIG) && faults(p + MIB, false));
	/* many, used again */
	for (int i = 0; i < 200; i++) {
		p = map(MIB + (size_t)i * PAGE, 0);
		CHECK(all_zero(p, PAGE) && all_zero(p + MIB - PAGE, PAGE));
		fill(p, MIB, (unsigned)i);
		verify(p, MIB, (unsigned)i);
		CHECK(!munmap(p, MIB + (size_t)i * PAGE));
	}
	CHECK(!munmap(local, BIG) && !munmap(tiny, 8 * PAGE));
}

static void check_file(int fd, unsigned char *p, size_t n)
{
	unsigned char *q = malloc(n);
	struct iovec v[2] = { { q, n / 2 }, { q + n / 2, n - n / 2 } };

	CHECK(q);
	CHECK(pread(fd, q, n, 0) == (ssize_t)n);
	verify(q, n, 6);
	memset(q, 0, n);
	CHECK(lseek(fd, 0, SEEK_SET) == 0 && read(fd, q, n) == (ssize_t)n);
	verify(q, n, 6);
	CHECK(read(fd, q, n) == 0); /* its end */
	memset(q, 0, n);
	CHECK(preadv(fd, v, 2, 0) == (ssize_t)n);
	verify(q, n, 6);
	CHECK(pwritev(fd, v, 2, 0) == (ssize_t)n);
	CHECK(pread(fd, q, n, (off_t)n - 10) == 10); /* short at the end */
	CHECK(pread(fd, q, n, -5) < 0 && errno == EINVAL);
	CHECK(read(-1, q, n) < 0 && errno == EBADF);
	free(q);
}

static void check_stdio(FILE *f, unsigned char *p, size_t n)
{
	memset(p, 0, n);
	rewind(f);
	CHECK(fread(p, 1, n, f) == n);
	verify(p, n, 6);
	rewind(f);
	CHECK(fwrite(p, 64, n / 64, f) == n / 64 && !fflush(f));
	rewind(f);
	CHECK(!setvbuf(f, (char *)p, _IOFBF, MIB)); /* which is not used */
	CHECK(fread(p, 64, n, f) == n / 64 && feof(f));
	verify(p, n, 6);
}

struct pump {
	int fd;
	unsigned char *p;
	size_t n;
};

static void *pump(void *arg)
{
	struct pump *pump = arg;

	for (size_t done = 0; done < pump->n;) {
		ssize_t r = write(pump->fd, pump->p + done, pump->n - done);

		CHECK(r > 0);
		done += (size_t)r;
	}
	return NULL;
}

static void check_stream(int in, int out, unsigned char *p, unsigned char *q, size_t n, bool peer)
{
	struct pump arg = { out, p, n };
	pthread_t thread;

	memset(q, 0, n);
	CHECK(!pthread_create(&thread, NULL, pump, &arg));
	for (size_t done = 0; done < n;) {
		ssize_t r = peer ? recv(in, q + done, n - done, 0) : read(in, q + done, n - done);

		CHECK(r > 0);
		done += (size_t)r;
	}
	CHECK(!pthread_join(thread, NULL));
	verify(q, n, 6);
}

static void check_messages(unsigned char *p, unsigned char *q)
{
	struct iovec out[2] = { { p, 1000 }, { p + MIB, 3000 } }, in = { q, 8000 };
	struct msghdr m = { .msg_iov = out, .msg_iovlen = 2 };
	int s[2];

	CHECK(!socketpair(AF_UNIX, SOCK_DGRAM, 0, s));
	CHECK(sendmsg(s[0], &m, 0) == 4000);
	m.msg_iov = &in;
	m.msg_iovlen = 1;
	CHECK(recvmsg(s[1], &m, 0) == 4000);
	CHECK(!memcmp(q, p, 1000) && !memcmp(q + 1000, p + MIB, 3000));
	CHECK(send(s[0], p, 5000, 0) == 5000 && recv(s[1], q, 100, 0) == 100); /* cut */
	CHECK(send(s[0], p, 10, 0) == 10 && recvfrom(s[1], q, MIB, 0, NULL, NULL) == 10);
	CHECK(recv(s[1], q, MIB, MSG_DONTWAIT) < 0 && errno == EAGAIN);
	close(s[0]);
	close(s[1]);
}

static void case_calls(void)
{
	char name[] = "/tmp/soda-run-XXXXXX";
	unsigned char *p = malloc(BIG), *q = malloc(8 * MIB);
	int fd = mkstemp(name), ends[2];
	FILE *f;

	CHECK(fd >= 0 && p && q && in_fam(p) && in_fam(q));
	fill(p, BIG, 6);
	CHECK(write(fd, p, BIG) == BIG); /* more than the page buffer */
	check_file(fd, p, BIG);
	f = fdopen(fd, "r+");
	CHECK(f);
	check_stdio(f, p, BIG);
	fclose(f);
	unlink(name);
	CHECK(!pipe(ends));
	check_stream(ends[0], ends[1], p, q, 8 * MIB, false);
	close(ends[0]);
	close(ends[1]);
	CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
	check_stream(ends[0], ends[1], p, q, 8 * MIB, true);
	check_messages(p, q);
	memset(q, 0, MIB);
	CHECK(getrandom(q, 200, 0) == 200 && !all_zero(q, 200));
	free(p);
	free(q);
}

static void *churn(void *arg)
{
	unsigned seed = (unsigned)(uintptr_t)arg;

	for (unsigned i = 0; i < 30; i++) {
		size_t n = MIB + (size_t)((i * 7 + seed * 13) % 17) * 100000;
		unsigned char *p = i % 2 ? malloc(n) : map(n, 0);

		CHECK(p);
		fill(p, n, seed + i);
		verify(p, n, seed + i);
		if (i % 2)
			free(p);
		else
			CHECK(!munmap(p, n));
	}
	return NULL;
}

static pthread_key_t key;

/* Of a thread's value, as often as the C library looks for more of them. */
static void at_the_end(void *value)
{
	uintptr_t round = (uintptr_t)value;
	unsigned char *p = malloc(2 * MIB);

	CHECK(p && (round > 1 || in_fam(p)));
	fill(p, 2 * MIB, 5);
	p = realloc(p, 3 * MIB);
	CHECK(p);
	verify(p, 2 * MIB, 5);
	free(p);
	if (round < PTHREAD_DESTRUCTOR_ITERATIONS)
		pthread_setspecific(key, (void *)(round + 1));
}

static void *end(void *arg)
{
	void *p = arg ? malloc(MIB) : NULL;

	CHECK(!pthread_setspecific(key, (void *)1));
	free(p);
	return NULL;
}

static void case_threads(void)
{
	pthread_t t[4];

	CHECK(!pthread_key_create(&key, at_the_end));
	for (uintptr_t i = 0; i < 4; i++)
		CHECK(!pthread_create(&t[i], NULL, end, (void *)(i % 2)));
	for (int i = 0; i < 4; i++)
		CHECK(!pthread_join(t[i], NULL));
	for (uintptr_t i = 0; i < 4; i++)
		CHECK(!pthread_create(&t[i], NULL, churn, (void *)i));
	for (int i = 0; i < 4; i++)
		CHECK(!pthread_join(t[i], NULL));
}

/* malloc() and free() are no points of cancellation. */
static void *allocates_cancelled(void *arg)
{
	void **kept = arg;

	CHECK(!pthread_cancel(pthread_self()));
	for (int i = 0; i < 8; i++) {
		void *p = malloc(BIG);

		CHECK(p);
		free(p);
	}
	*kept = malloc(BIG);
	pthread_testcancel();
	return NULL;
}

static void case_cancel(void)
{
	pthread_t thread;
	void *end, *kept = NULL;

	for (int i = 0; i < 8; i++) {
		CHECK(!pthread_create(&thread, NULL, allocates_cancelled, &kept));
		CHECK(!pthread_join(thread, &end) && end == PTHREAD_CANCELED);
		CHECK(kept);
		fill(kept, BIG, 3);
		verify(kept, BIG, 3);
		free(kept);
	}
}

/*
 * The vector that the C library's loader keeps for a thread is local: the C library reads it with
 * all signals blocked when it frees the stacks of detached threads.
 */
static void *has_local_vector(void *arg)
{
#if defined(__x86_64__)
	void *const *head = __builtin_thread_pointer();

	CHECK(head[1] && !in_fam(head[1]));
#endif
	return NULL;
}

static void case_loader(void)
{
	pthread_t thread;

	CHECK(!pthread_create(&thread, NULL, has_local_vector, NULL));
	CHECK(!pthread_join(thread, NULL));
}

/* A child has local memory, and starts other programs as ever. */
static void case_fork(void)
{
	unsigned char *p = malloc(BIG), *q;
	int status;
	pid_t pid;

	fill(p, BIG, 7);
	pid = fork();
	if (pid == 0) {
		q = malloc(4 * MIB);
		CHECK(q && !in_fam(q));
		fill(q, 4 * MIB, 8);
		q = realloc(q, 5 * MIB);
		verify(q, 4 * MIB, 8);
		free(q);
		free(p);
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	verify(p, BIG, 7);
	CHECK(system("exit 0") == 0);
	free(p);
}

/* A plug-in that is found by this program's own RUNPATH, and is to have the C library's free(). */
static void case_plugin(void)
{
	void *h = dlopen("run_plugin.so", RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
	void *(*grow)(void *, size_t);
	void *(*make)(size_t);
	void (*release)(void *);
	unsigned char *p;

	CHECK(h);
	*(void **)&grow = dlsym(h, "plugin_grow");
	*(void **)&make = dlsym(h, "plugin_make");
	*(void **)&release = dlsym(h, "plugin_free");
	CHECK(grow && make && release);
	p = malloc(8 * MIB);
	CHECK(p && in_fam(p));
	fill(p, 8 * MIB, 31);
	p = grow(p, 16 * MIB);
	CHECK(p);
	verify(p, 8 * MIB, 31);
	release(p);
	p = make(8 * MIB);
	CHECK(p && p[8 * MIB - 1] == 'x');
	p = realloc(p, 16 * MIB);
	CHECK(p && p[8 * MIB - 1] == 'x');
	free(p);
	CHECK(!dlopen("no_such_plugin.so", RTLD_NOW | RTLD_DEEPBIND) && dlerror());
	CHECK(!dlclose(h));
}

/* Ended by somebody else, once it has used some. */
static void case_killed(void)
{
	unsigned char *p = malloc(BIG);

	CHECK(p);
	for (unsigned i = 0; i < 8; i++) {
		fill(p, BIG, i);
		usleep(10000);
	}
	kill(getpid(), SIGKILL);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} cases[] = {
		{ "malloc", case_malloc },
		{ "brk", case_brk },
		{ "new", case_new },
		{ "maps", case_maps },
		{ "calls", case_calls },
		{ "threads", case_threads },
		{ "fork", case_fork },
		{ "waits", case_waits },
		{ "held", case_held },
		{ "too many", case_too_many },
		{ "ioctl", case_ioctl },
		{ "direct", case_direct },
		{ "forms", case_forms },
		{ "killed", case_killed },
		{ "linux", case_linux },
		{ "split", case_split },
		{ "small", case_small },
		{ "every", case_every },
		{ "times", case_times },
		{ "become", case_become },
		{ "closed", case_closed },
		{ "mlockall", case_mlockall },
		{ "silent", case_silent },
		{ "left", case_left },
		{ "returned", case_returned },
		{ "pieces", case_pieces },
		{ "plain", case_plain },
		{ "starts", case_starts },
		{ "descriptors", case_descriptors },
		{ "robbed", case_robbed },
		{ "replaced", case_replaced },
		{ "forks", case_forks },
		{ "masks", case_masks },
		{ "cancel", case_cancel },
		{ "loader", case_loader },
		{ "submit", case_submit },
		{ "refused", case_refused },
		{ "allowed", case_allowed },
		{ "rings-held", case_rings_held },
		{ "rings-child", case_rings_child },
		{ "plugin", case_plugin },
		{ "snapshot", case_snapshot },
		{ "own uffd", case_own_uffd },
		{ "signals", case_alternate },
		{ "coroutine", case_coroutine },
		{ "reserved", case_reserved },
		{ "at once", case_at_once },
		{ "rare", case_rare },
		{ "altstack", case_altstack },
		{ "limits", case_limits },
		{ "identity", case_identity },
		{ "filter", case_filter },
		{ "once", case_once },
		{ "old signals", case_old_signals },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		if (argc > 1 && !strcmp(argv[1], cases[i].name)) {
			cases[i].run();
			return 0;
		}
	return 2;
}
