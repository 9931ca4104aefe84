/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The server's memory is read and written by /proc/PID/mem.  Where in it the object lies nobody
 * says: the process stores all of it anew, and the pages that are other bytes than before, as many
 * in a row as the object has blocks, are it.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "soda/bench/seal/seal.h"
#include "soda/stage/daemon.h"
#include "soda/stage/patience.h"

#define WHO "soda bench seal"

enum { PAGE = SODA_SEAL_BLOCK_BYTES, SPARED = 64 };

/* A part of the server's memory, and what it was when it was looked at. */
struct part {
	uint64_t from, bytes;
	char *data;
	bool writable;
};

struct memory {
	struct part *parts;
	uint32_t n;
};

static int fail(int err, const char *what)
{
	fprintf(stderr, WHO ": %s: %s\n", what, strerror(-err));
	return err;
}

static void forget(struct memory *m)
{
	for (uint32_t i = 0; i < m->n; i++)
		free(m->parts[i].data);
	free(m->parts);
	*m = (struct memory){ 0 };
}

static int open_memory(pid_t pid, int flags)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/mem", (int)pid);
	fd = open(path, flags | O_CLOEXEC);
	return fd < 0 ? fail(-errno, "the server's memory") : fd;
}

/* What can be read of it; the rest are zeros. */
static void read_part(int fd, struct part *p)
{
	for (uint64_t at = 0; at < p->bytes;) {
		ssize_t n = pread(fd, p->data + at, p->bytes - at, (off_t)(p->from + at));

		at = n > 0 ? at + (uint64_t)n : (at / PAGE + 1) * PAGE;
	}
}

static int add_part(struct memory *m, int fd, uint64_t from, uint64_t to, bool writable)
{
	struct part *more = realloc(m->parts, (m->n + 1) * sizeof(*more));

	if (!more)
		return -ENOMEM;
	m->parts = more;
	more[m->n] = (struct part){ from, to - from, calloc(1, to - from), writable };
	if (!more[m->n].data)
		return -ENOMEM;
	read_part(fd, &more[m->n++]);
	return 0;
}

/* All that is mapped there and can be read. */
static int look(pid_t pid, struct memory *m)
{
	char path[64], line[512], rights[5];
	unsigned long from, to;
	int fd = open_memory(pid, O_RDONLY), err = 0;
	FILE *maps;

	*m = (struct memory){ 0 };
	if (fd < 0)
		return fd;
	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	maps = fopen(path, "re");
	if (!maps)
		err = fail(-errno, path);
	while (!err && fgets(line, sizeof(line), maps))
		if (sscanf(line, "%lx-%lx %4s", &from, &to, rights) == 3 && rights[0] == 'r' &&
		    !strstr(line, "[v"))
			err = add_part(m, fd, from, to, rights[1] == 'w');
	if (maps)
		fclose(maps);
	close(fd);
	return err == -ENOMEM ? fail(err, "a copy of the server's memory") : err;
}

/* How often the text stands there, at any place. */
static uint64_t count_text(const struct memory *m, const char *text)
{
	uint64_t found = 0;

	for (uint32_t i = 0; i < m->n; i++) {
		const char *at = m->parts[i].data, *end = at + m->parts[i].bytes;

		while ((at = memmem(at, (size_t)(end - at), text, SODA_SEAL_TEXT))) {
			found++;
			at += SODA_SEAL_TEXT;
		}
	}
	return found;
}

/* Whether two pages are independent of one another: of random bytes one in 256 is the same. */
static bool differ(const char *a, const char *b)
{
	uint32_t same = 0;

	for (uint32_t i = 0; i < PAGE; i++)
		same += a[i] == b[i];
	return same < PAGE / 16;
}

/* The object, before and after. */
struct object {
	uint64_t at; /* its address in the server */
	const char *before, *after;
};

static bool find_in(const struct part *before, const struct part *after, uint32_t blocks,
		    struct object *out)
{
	uint64_t pages = after->bytes / PAGE, run = 0;

	for (uint64_t i = 0; i < pages; i++) {
		run = differ(before->data + i * PAGE, after->data + i * PAGE) ? run + 1 : 0;
		if (run == blocks) {
			uint64_t at = (i + 1 - run) * PAGE;

			*out = (struct object){ after->from + at, before->data + at,
						after->data + at };
			return true;
		}
	}
	return false;
}

static int find(const struct memory *before, const struct memory *after, uint32_t blocks,
		struct object *out)
{
	for (uint32_t i = 0; i < after->n; i++)
		for (uint32_t k = 0; k < before->n && after->parts[i].writable; k++)
			if (before->parts[k].from == after->parts[i].from &&
			    before->parts[k].bytes == after->parts[i].bytes &&
			    find_in(&before->parts[k], &after->parts[i], blocks, out))
				return 0;
	return fail(-ENOENT, "the object in the server's memory");
}

/* What the server will have as block i: other bytes than the process has sent last. */
static void forge(const struct object *o, uint32_t i, uint32_t n, char out[PAGE])
{
	const char *own = o->after + (size_t)i * PAGE;
	uint32_t other = i + 1 < n ? i + 1 : 0;

	memcpy(out, own, PAGE);
	switch (i % 5) {
	case 0: /* changed by a bit */
		out[(i * 2654435761u) % PAGE] ^= (char)(1u << i / 5 % 8);
		break;
	case 1: /* another block in its place */
		memcpy(out, o->after + (size_t)other * PAGE, PAGE);
		break;
	case 2: /* rolled back: what was once right */
		memcpy(out, o->before + (size_t)i * PAGE, PAGE);
		break;
	case 3: /* cut off */
		memset(out + PAGE / 2, 0, PAGE / 2);
		break;
	default: /* forgotten */
		memset(out, 0, PAGE);
	}
}

static int tamper(pid_t pid, const struct object *o, uint32_t n)
{
	int fd = open_memory(pid, O_RDWR), err = 0;
	char forged[PAGE];

	for (uint32_t i = 0; i < n && fd >= 0 && !err; i++) {
		forge(o, i, n, forged);
		if (pwrite(fd, forged, PAGE, (off_t)(o->at + (uint64_t)i * PAGE)) != PAGE)
			err = fail(-errno, "a change of the server's memory");
	}
	if (fd >= 0)
		close(fd);
	return fd < 0 ? fd : err;
}

struct stage {
	struct soda_bench_daemon server;
	pid_t victim;
	int fd;
	char text[SODA_SEAL_TEXT + 1];
};

/* Never returns. */
static void exec_victim(const struct stage *s, int fd, bool sealed, uint32_t blocks)
{
	char number[16], all[16], spared[16];

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	snprintf(number, sizeof(number), "%d", fd);
	snprintf(all, sizeof(all), "%u", blocks);
	snprintf(spared, sizeof(spared), "%d", SPARED);
	unsetenv("SODA_DPU");
	unsetenv("SODA_MODE");
	setenv("SODA_SERVER", s->server.address, 1);
	setenv("SODA_SEAL", sealed ? "1" : "0", 1);
	execl("/proc/self/exe", "soda", "bench", ".sealed", number, all, spared, s->text,
	      (char *)NULL);
	_exit(127);
}

static int hear(struct stage *s, struct soda_seal_answer *answer_p)
{
	struct soda_patience_process process = { .pid = s->victim,
						 .name = "the process with the object",
						 .waits = true };
	int err = soda_patience_read(s->fd, &process, "an answer");

	if (!err && recv(s->fd, answer_p, sizeof(*answer_p), 0) != (ssize_t)sizeof(*answer_p))
		err = fail(-ECHILD, "the process with the object has ended");
	if (!err && answer_p->err)
		fprintf(stderr, WHO ": %s\n", answer_p->why);
	return err ? err : answer_p->err;
}

static int ask(struct stage *s, uint32_t what, struct soda_seal_answer *answer_p)
{
	if (send(s->fd, &what, sizeof(what), MSG_NOSIGNAL) != (ssize_t)sizeof(what))
		return fail(-ECHILD, "the process with the object has ended");
	return hear(s, answer_p);
}

static void make_text(char text[SODA_SEAL_TEXT + 1])
{
	uint8_t random[SODA_SEAL_TEXT / 2] = { 0 };

	getrandom(random, sizeof(random), 0);
	for (size_t i = 0; i < sizeof(random); i++)
		snprintf(text + 2 * i, 3, "%02x", random[i]);
}

static int set_stage(struct stage *s, bool shm, bool sealed, uint32_t blocks)
{
	char listen[64] = "tcp://127.0.0.1:0";
	struct soda_seal_answer answer;
	int pair[2], err;

	*s = (struct stage){ .fd = -1 };
	make_text(s->text);
	if (shm)
		snprintf(listen, sizeof(listen), "shm://@soda-seal-%ld-%d", (long)getpid(), sealed);
	err = soda_bench_server_start(&s->server, listen, (uint64_t)blocks * PAGE + (64u << 20),
				      NULL, &(struct soda_bench_start){ 0 });
	if (err)
		return err;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		return fail(-errno, "socketpair");
	s->victim = fork();
	if (s->victim == 0)
		exec_victim(s, dup(pair[1]), sealed, blocks);
	close(pair[1]);
	s->fd = pair[0];
	return s->victim < 0 ? fail(-EAGAIN, "fork") : hear(s, &answer);
}

static void clear_stage(struct stage *s)
{
	struct soda_patience_process process = { .pid = s->victim,
						 .name = "the process with the object" };

	if (s->fd >= 0)
		close(s->fd);
	if (s->victim > 0)
		soda_patience_end(&process, 0);
	soda_bench_daemon_stop(&s->server);
}

/* Fill the object with version 1, and look for its text. */
static int search(struct stage *s, struct memory *m, uint64_t *found_p)
{
	struct soda_seal_answer answer;
	int err = ask(s, 1, &answer);

	if (!err)
		err = look(s->server.pid, m);
	if (!err)
		*found_p = count_text(m, s->text);
	return err;
}

static int search_plain(bool shm, uint32_t blocks, uint64_t *found_p)
{
	struct memory m = { 0 };
	struct stage s;
	int err = set_stage(&s, shm, false, blocks);

	if (!err)
		err = search(&s, &m, found_p);
	forget(&m);
	clear_stage(&s);
	return err;
}

static int change(struct stage *s, const struct memory *before, uint32_t n,
		  struct soda_seal_attack *out)
{
	struct soda_seal_answer answer;
	struct memory after = { 0 };
	struct object o;
	int err = ask(s, 2, &answer);

	if (!err)
		err = look(s->server.pid, &after);
	if (!err)
		err = find(before, &after, n + SPARED, &o);
	if (!err)
		err = tamper(s->server.pid, &o, n);
	forget(&after);
	if (!err)
		err = ask(s, 0, &answer);
	if (err)
		return err;
	out->tampered = n;
	out->detected = answer.detected;
	out->served = answer.served;
	out->lines = answer.lines;
	out->spoilt = answer.spoilt;
	return 0;
}

int soda_seal_attack_run(bool shm, uint32_t blocks, struct soda_seal_attack *out)
{
	struct memory before = { 0 };
	struct stage s;
	int err;

	*out = (struct soda_seal_attack){ 0 };
	err = search_plain(shm, blocks + SPARED, &out->found_plain);
	if (err)
		return err;
	err = set_stage(&s, shm, true, blocks + SPARED);
	if (!err)
		err = search(&s, &before, &out->found_sealed);
	if (!err)
		err = change(&s, &before, blocks, out);
	forget(&before);
	clear_stage(&s);
	return err;
}
