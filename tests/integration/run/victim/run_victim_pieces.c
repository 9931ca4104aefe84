/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the kernel takes or gives as one stays one, from a vector whose buffers are in fabric memory
 * in part: messages, also those that are longer than the library's piece of local memory, and what
 * a pipe does not tear apart.
 */
#include "run_victim.h"

#include <netinet/in.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>

enum { LONG = 600000 };

static unsigned char *fam, *back;

/* A head that is local, and a body in fabric memory in two parts. */
static void make(struct iovec v[3], char head[8], unsigned char *body, size_t bytes)
{
	v[0] = (struct iovec){ head, 8 };
	v[1] = (struct iovec){ body, bytes / 3 };
	v[2] = (struct iovec){ body + bytes / 3, bytes - bytes / 3 };
}

static void check_datagrams(int type)
{
	char head[8] = "head 01", got[8];
	struct iovec out[3], in[3];
	unsigned char more;
	int s[2], room = 4 * LONG;

	CHECK(!socketpair(AF_UNIX, type, 0, s));
	fill(fam, 3000, 1);
	for (int i = 0; i < 2; i++) {
		make(out, head, fam, 3000);
		make(in, got, back, 5000);
		memset(back, 0, 5000);
		CHECK(writev(s[0], out, 3) == 3008 && send(s[0], "x", 1, 0) == 1);
		CHECK(readv(s[1], in, 3) == 3008 && !memcmp(got, head, 8));
		verify(back, 3000, 1);
		CHECK(recv(s[1], &more, 1, MSG_DONTWAIT) == 1 && more == 'x');
		CHECK(recv(s[1], &more, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN);
	}
	make(out, head, fam, 3000);
	CHECK(pwritev2(s[0], out, 3, -1, 0) == 3008);
	make(in, got, back, 3000);
	memset(back, 0, 3000);
	CHECK(preadv2(s[1], in, 3, -1, 0) == 3008 && !memcmp(got, head, 8));
	verify(back, 3000, 1);
	/* longer than the bounce, where the system lets a socket have so much room */
	if (!setsockopt(s[0], SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof(room))) {
		fill(fam, LONG, 2);
		make(out, head, fam, LONG);
		make(in, got, back, LONG);
		CHECK(writev(s[0], out, 3) == LONG + 8 && write(s[0], fam, LONG) == LONG);
		CHECK(readv(s[1], in, 3) == LONG + 8);
		verify(back, LONG, 2);
		memset(back, 0, LONG);
		CHECK(read(s[1], back, LONG) == LONG);
		verify(back, LONG, 2);
		CHECK(recv(s[1], &more, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN);
	}
	close(s[0]);
	close(s[1]);
}

enum { WRITERS = 4, RECORDS = 3000, RECORD = 1000 };

static int ends[2];

/* Records of less than PIPE_BUF, each of one byte, from two buffers: none is torn apart. */
static void *write_records(void *arg)
{
	unsigned char *p = fam + (uintptr_t)arg * MIB;
	char head[8];
	struct iovec v[2] = { { head, sizeof(head) }, { p, RECORD - sizeof(head) } };

	memset(head, 'a' + (int)(uintptr_t)arg, sizeof(head));
	memset(p, 'a' + (int)(uintptr_t)arg, RECORD);
	for (int i = 0; i < RECORDS; i++)
		CHECK(writev(ends[1], v, 2) == RECORD);
	return NULL;
}

static void check_pipe(void)
{
	pthread_t t[WRITERS];
	char record[RECORD];

	CHECK(!pipe(ends));
	for (uintptr_t i = 0; i < WRITERS; i++)
		CHECK(!pthread_create(&t[i], NULL, write_records, (void *)i));
	for (int i = 0; i < WRITERS * RECORDS; i++) {
		for (ssize_t done = 0, n; done < RECORD; done += n)
			CHECK((n = read(ends[0], record + done, (size_t)(RECORD - done))) > 0);
		for (int k = 1; k < RECORD; k++)
			CHECK(record[k] == record[0]);
	}
	for (int i = 0; i < WRITERS; i++)
		CHECK(!pthread_join(t[i], NULL));
	close(ends[0]);
	close(ends[1]);
}

static void *write_stream(void *arg)
{
	char head[8] = "stream!";
	struct iovec v[3];

	make(v, head, fam, 8 * MIB);
	CHECK(writev(*(int *)arg, v, 3) == 8 * MIB + 8);
	return NULL;
}

/* A blocking write of a stream ends when all is written; a read, with what is there. */
static void check_stream(int from, int to)
{
	char head[8];
	pthread_t t;
	ssize_t n;

	fill(fam, 8 * MIB, 3);
	memset(back, 0, 8 * MIB);
	CHECK(!pthread_create(&t, NULL, write_stream, &to));
	CHECK((n = read(from, head, 8)) == 8 && !memcmp(head, "stream!", 8));
	for (size_t done = 0; done < 8 * MIB; done += (size_t)n) {
		struct iovec v[2] = { { back + done, 100 }, { back + done + 100, 8 * MIB - done } };

		v[0].iov_len = done + 100 < 8 * MIB ? 100 : 8 * MIB - done;
		v[1].iov_len = 8 * MIB - done - v[0].iov_len;
		CHECK((n = readv(from, v, 2)) > 0);
	}
	verify(back, 8 * MIB, 3);
	CHECK(!pthread_join(t, NULL));
	close(from);
	close(to);
}

/* A file to which others append, too: a vector that is not too long is one write. */
static void check_file(void)
{
	char name[] = "/tmp/soda-run-XXXXXX", head[8] = "in file", got[8];
	static struct iovec many[1025];
	int fd = mkstemp(name);
	struct iovec v[3];

	CHECK(fd >= 0 && !unlink(name));
	fill(fam, 8 * MIB, 4);
	make(v, head, fam, 8 * MIB);
	CHECK(writev(fd, v, 3) == 8 * MIB + 8 && !lseek(fd, 0, SEEK_SET));
	memset(back, 0, 8 * MIB);
	make(v, got, back, 8 * MIB);
	CHECK(readv(fd, v, 3) == 8 * MIB + 8 && !memcmp(got, head, 8));
	verify(back, 8 * MIB, 4);
	CHECK(preadv(fd, v, 3, 4 * MIB) == 4 * MIB + 8);
	CHECK(readv(fd, v, 3) == 0);
	many[0] = v[1];
	CHECK(writev(fd, many, 1025) < 0 && errno == EINVAL);
	close(fd);
}

/*
 * The kernel would go on to read a piece of local memory that is used for something else by then;
 * on a socket that somebody else has told so, it is refused at the call.
 */
static void check_zero_copy(void)
{
	struct sockaddr_in to = { .sin_family = AF_INET };
	int s = socket(AF_INET, SOCK_DGRAM, 0), *on = (int *)(void *)fam, off = 0, one = 1;
	socklen_t n = sizeof(to);

	CHECK(s >= 0);
	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	CHECK(!bind(s, (struct sockaddr *)&to, n) && !getsockname(s, (struct sockaddr *)&to, &n));
	CHECK(!connect(s, (struct sockaddr *)&to, n));
	*on = 1;
	CHECK(setsockopt(s, SOL_SOCKET, SO_ZEROCOPY, on, sizeof(*on)) < 0 && errno == EOPNOTSUPP);
	CHECK(!setsockopt(s, SOL_SOCKET, SO_ZEROCOPY, &off, sizeof(off)));
	CHECK(!setsockopt(s, SOL_SOCKET, SO_KEEPALIVE, on, sizeof(*on)));
	CHECK(send(s, fam, 4000, MSG_ZEROCOPY) == 4000); /* which means nothing yet */
	if (!syscall(SYS_setsockopt, s, SOL_SOCKET, SO_ZEROCOPY, &one, sizeof(one))) {
		CHECK(send(s, fam, 4000, MSG_ZEROCOPY) < 0 && errno == EOPNOTSUPP);
		CHECK(send(s, fam, 4000, 0) == 4000);
	}
	close(s);
}

void case_pieces(void)
{
	int s[2];

	fam = malloc(BIG);
	back = malloc(BIG);
	CHECK(fam && back);
	fill(fam, BIG, 0);
	fill(back, BIG, 0);
	CHECK(in_fam(fam) && in_fam(back));
	check_datagrams(SOCK_DGRAM);
	check_datagrams(SOCK_SEQPACKET);
	check_pipe();
	CHECK(!pipe(s));
	check_stream(s[0], s[1]);
	CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, s));
	check_stream(s[0], s[1]);
	check_file();
	check_zero_copy();
	free(fam);
	free(back);
}
