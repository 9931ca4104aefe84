/* SPDX-License-Identifier: BSD-3-Clause */
#include "conformance.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int raw_connect(const struct env *e)
{
	const char *address = soda_listener_address(e->listener);
	struct timeval patience = { .tv_sec = 30 };
	int fd, ret;

	if (strncmp(address, "tcp://127.0.0.1:", 16) == 0) {
		struct sockaddr_in at = { .sin_family = AF_INET,
					  .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
					  .sin_port = htons((uint16_t)atoi(address + 16)) };

		fd = socket(AF_INET, SOCK_STREAM, 0);
		ret = connect(fd, (struct sockaddr *)&at, sizeof(at));
	} else {
		struct sockaddr_un at = { .sun_family = AF_UNIX };
		size_t n = strlen(address + 7);

		memcpy(at.sun_path + 1, address + 7, n); /* behind "shm://@" */
		fd = socket(AF_UNIX, SOCK_STREAM, 0);
		ret = connect(fd, (struct sockaddr *)&at,
			      (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n));
	}
	assert_int_equal(ret, 0);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	return fd;
}

void raw_send(int fd, const void *bytes, size_t n)
{
	assert_int_equal(send(fd, bytes, n, MSG_NOSIGNAL), n);
}

void raw_trickle(int fd, const uint8_t *bytes, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		raw_send(fd, bytes + i, 1);
		usleep(500);
	}
}

void raw_recv(int fd, void *bytes, size_t n)
{
	assert_int_equal(recv(fd, bytes, n, MSG_WAITALL), n);
}

/* The peer closes, whatever it may have said before, and does not keep us waiting. */
void assert_closed(int fd)
{
	uint8_t byte;
	ssize_t n;

	while ((n = recv(fd, &byte, 1, 0)) > 0)
		;
	assert_true(n == 0 || errno == ECONNRESET);
	close(fd);
}

size_t raw_frame(uint8_t *out, unsigned type, uint32_t length)
{
	soda_wire_put_frame(out,
			    &(struct soda_wire_frame){ .type = (uint8_t)type, .length = length });
	return SODA_WIRE_FRAME_BYTES;
}

size_t raw_hello(uint8_t *out, uint32_t magic, uint32_t version, uint32_t kind)
{
	struct soda_wire_hello h = { .magic = magic,
				     .version = version,
				     .kind = kind,
				     .chunk_bytes = 65536,
				     .client_id = 9,
				     .secret = FAKE_SECRET };

	soda_wire_put_hello(out + raw_frame(out, SODA_MSG_HELLO, SODA_WIRE_HELLO_BYTES), &h);
	return SODA_WIRE_FRAME_BYTES + SODA_WIRE_HELLO_BYTES;
}

size_t raw_read_request(uint8_t *out, uint16_t region, uint64_t page, uint32_t size, uint64_t tag)
{
	struct soda_wire_read r = {
		.region_id = region, .page_offset = page, .dest_addr = tag, .size = size
	};

	memset(out, 0, SODA_WIRE_HEAD_BYTES);
	raw_frame(out, SODA_MSG_READ, SODA_WIRE_READ_BYTES);
	soda_wire_put_read(out + SODA_WIRE_HEAD_BYTES - SODA_WIRE_READ_BYTES, &r);
	return SODA_WIRE_HEAD_BYTES;
}

size_t raw_write_request(uint8_t *out, uint16_t region, uint64_t page, uint32_t size)
{
	struct soda_wire_write w = { .region_id = region, .page_offset = page, .size = size };

	memset(out, 0, SODA_WIRE_HEAD_BYTES);
	raw_frame(out, SODA_MSG_WRITE, SODA_WIRE_WRITE_BYTES + size);
	soda_wire_put_write(out + SODA_WIRE_HEAD_BYTES - SODA_WIRE_WRITE_BYTES, &w);
	return SODA_WIRE_HEAD_BYTES;
}

/* Said HELLO, and was welcome. */
int raw_data(const struct env *e)
{
	uint8_t out[64], in[SODA_WIRE_FRAME_BYTES + SODA_WIRE_WELCOME_BYTES];
	int fd = raw_connect(e);

	raw_send(fd, out, raw_hello(out, SODA_WIRE_MAGIC, SODA_WIRE_VERSION, SODA_CONN_DATA));
	raw_recv(fd, in, sizeof(in));
	assert_int_equal(in[0], SODA_MSG_OK);
	return fd;
}

void assert_reply(int fd, unsigned type, unsigned status, uint64_t tag, uint32_t data)
{
	struct soda_wire_frame f;
	uint8_t in[SODA_WIRE_HEAD_BYTES];
	uint64_t got = 0;

	raw_recv(fd, in, sizeof(in));
	soda_wire_get_frame(in, &f);
	assert_int_equal(f.type, type);
	assert_int_equal(f.status, status);
	assert_int_equal(f.length, 8 + data);
	for (unsigned i = 0; i < 8; i++)
		got |= (uint64_t)in[sizeof(in) - 8 + i] << 8 * i;
	assert_true(got == tag);
}

/* A good client's link works. */
void assert_works(struct link *l)
{
	static uint8_t buf[65536];

	memset(buf, 0, sizeof(buf));
	assert_int_equal(soda_conn_post_read(l->data, &l->mr, 65536, 65536, buf, 0), 0);
	finish(l->data, 1, 0);
	assert_int_equal(wrong_bytes(buf, 7, 65536, 65536), 0);
	assert_int_equal(
		soda_conn_call(l->control, SODA_MSG_PING, NULL, 0, NULL, 0, NULL, TIMEOUT_MS, NULL),
		0);
}
